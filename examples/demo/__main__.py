"""``make demo``: ingest the docs and some samples, search them, look at what happened."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from typing import TextIO

from examples.demo.app import DATA
from lexigram.cli.main import main as lexigram

PATHS = ["docs", "examples/demo/samples"]
# A question, how to ask it, and the source that must be among the first three passages.
SEARCHES = (
    ("how do I clean the mirror of my telescope", (), "samples/telescope.pdf"),
    ("animals against slugs in the garden", ("--hybrid",), "samples/minutes.docx"),
    ("what happens to a run when its worker is killed", (), "docs/how-to/durable-runs.md"),
)
APP = "examples.demo.app:create"
HERE = ["--data", str(DATA)]


def main() -> int:
    """The exit code: 0 when everything was ingested and every search found its source."""
    began = time.monotonic()
    show(["ingest", *PATHS, *HERE])
    problems: list[str] = []
    for question, how, expected in SEARCHES:
        text = show(["search", question, *how, "--k", "3", *HERE])
        sources = re.findall(r"^\d+\. (.*)  \d", text, re.MULTILINE)
        if not any(expected in source for source in sources):
            problems.append(f"{question!r}: {expected} is not in the first three of {sources}")
    status = json.loads(silent(["ingest", "status", "--json", *HERE]))
    group = str(status["ingestions"][0]["group"])
    show(["workflow", "stats", group, "--app", APP])
    for problem in problems:
        print(f"demo: {problem}", file=sys.stderr)
    print(f"\nThat took {time.monotonic() - began:.0f} s. To try next:\n")
    for command in (
        f'lexigram search "your question" --hybrid {" ".join(HERE)}',
        f"lexigram ingest README.md examples --include '*.md' {' '.join(HERE)}",
        f"lexigram ingest status {' '.join(HERE)}",
        f"lexigram workflow runs --group {group} --app {APP}",
        f"lexigram lancedb info default --dir {DATA}/lancedb",
    ):
        print(f"  .venv/bin/{command}")
    return 1 if problems else 0


def show(arguments: list[str]) -> str:
    """Run a command as if it had been typed; what it printed. Ends the demo when it fails."""
    typed = " ".join(f'"{word}"' if " " in word else word for word in arguments)
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}$ lexigram {typed}{plain}", flush=True)
    return _run_command(arguments, _Tee(sys.stdout))


def silent(arguments: list[str]) -> str:
    """The same without showing it."""
    return _run_command(arguments, io.StringIO())


def _run_command(arguments: list[str], into: io.StringIO) -> str:
    with contextlib.redirect_stdout(into):
        code = lexigram(arguments)
    if code:
        sys.exit(code)
    return re.sub(r"\033\[[\d;]*m", "", into.getvalue())


class _Tee(io.StringIO):
    """Keeps what is written to a stream and writes it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


if __name__ == "__main__":
    sys.exit(main())
