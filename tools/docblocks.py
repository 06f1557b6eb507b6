"""Run the code blocks of a Markdown page, so that what is printed there is true.

In order, in one folder per page:

- ``python`` runs as its own script; a following ``text output`` block is what it prints.
- ``python file=NAME`` (or any language with ``file=``) is written for the later blocks.
- ``no-run="reason"`` after the language: shown only; the reason is required.
- ``console``: lines ``$ command`` are run when the command is one of COMMANDS, the lines below
  are its output; ``# exit 2`` after a command expects that exit code. ``...`` matches anything.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("lexigram", "lex", "python", "pytest")
TIMEOUT_SECONDS = 50
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`]*)$")
_OPTION = re.compile(r'(?P<key>[\w-]+)(?:=(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+)))?')
_MATCH = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class BlockError(AssertionError):
    """A block did not do what the page says; the text names page and line."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    options: dict[str, str]
    text: str
    line: int  # of its first line of text


@dataclass
class Page:
    """A page being run in its own folder."""

    path: Path
    folder: Path
    start: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    printed: str = field(default="", init=False)  # by the last python block

    def run(self) -> int:
        """Run every block; the number of blocks that were run or compared."""
        return sum(self._block(block) for block in blocks(self.path))

    def _block(self, block: Block) -> bool:
        if "no-run" in block.options:
            if not block.options["no-run"]:
                raise self._error(block.line, 'no-run needs a reason: no-run="why"')
            return False
        if "file" in block.options:
            target = self.folder / block.options["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self._python(block)
        elif block.language in {"console", "sh", "bash"}:
            return self._console(block)
        elif "output" in block.options:
            self._compare(block.line, block.text, self.printed)
        else:
            return False
        return True

    def _python(self, block: Block) -> None:
        script = self.folder / f"block_at_line_{block.line}.py"
        # Blank lines first, so that a traceback shows the line of the page.
        script.write_text("\n" * (block.line - 1) + block.text, encoding="utf-8")
        self.printed = self._command(block.line, ["python", script.name], 0)

    def _console(self, block: Block) -> bool:
        ran = False
        for line, command, expected in commands(block):
            words = shlex.split(command, comments=True)
            if words and words[0] in COMMANDS:
                code = re.search(r"# exit (\d+)$", command)
                printed = self._command(line, words, int(code[1]) if code else 0)
                if expected:
                    self._compare(line, expected, printed)
                ran = True
        return ran

    def _command(self, line: int, words: list[str], code: int) -> str:
        scripts = Path(sys.executable).parent
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST"))}
        environment |= {
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        done = self.start(
            [str(scripts / words[0]), *words[1:]],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != code:
            said = f"exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
            raise self._error(line, f"{shlex.join(words)}: {said}")
        # A failing command says its piece on stderr; both are what a reader of the page sees.
        return done.stdout if code == 0 else done.stdout + done.stderr

    def _compare(self, line: int, expected: str, printed: str) -> None:
        if not agrees(expected, printed):
            raise self._error(line, f"expected\n{expected}\nbut it printed\n{printed}")

    def _error(self, line: int, text: str) -> BlockError:
        return BlockError(f"{self.path.relative_to(ROOT)}:{line}: {text}")


def pages() -> list[Path]:
    """Every page whose blocks must run: README files, CONTRIBUTING and docs."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("lexigram*/README.md"), *ROOT.glob("docs/**/*.md")]
    found += ROOT.glob("examples/**/*.md")
    return sorted(found)


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        indent = len(opening["indent"])
        while number < len(lines) and lines[number].strip() != opening["ticks"]:
            number += 1
        text = "".join(f"{line[indent:]}\n" for line in lines[start:number])
        yield _block(opening["info"], text, start + 1)
        number += 1


def _block(info: str, text: str, line: int) -> Block:
    language, _, rest = info.strip().partition(" ")
    options = {m["key"]: m["quoted"] or m["plain"] or "" for m in _OPTION.finditer(rest)}
    return Block(language, options, text, line)


def agrees(expected: str, printed: str) -> bool:
    """Whether the output is what the page shows; spaces do not count, and ``...`` is anything."""
    return doctest.OutputChecker().check_output(expected, printed, _MATCH)


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """(line, command, expected output) of each ``$`` line."""
    line, command, output = 0, "", ""
    for number, text in enumerate(block.text.splitlines(), block.line):
        if not text.startswith("$ "):
            output += f"{text}\n"
            continue
        if command:
            yield line, command, output.strip()
        line, command, output = number, text[2:], ""
    if command:
        yield line, command, output.strip()
