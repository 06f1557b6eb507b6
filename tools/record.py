"""Record the picture of the README: the orders example in a folder of its own, killed and resumed.

python tools/record.py     writes docs/images/orders.svg
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import httpx
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from lexigram.testing import wait_until
from lexigram.testing.services import free_port

ROOT = Path(__file__).resolve().parent.parent
IMAGE = ROOT / "docs" / "images" / "orders.svg"
SCRIPTS = Path(sys.executable).parent
WIDTH = 116
# No fonts from elsewhere: the reader's monospace font does.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
TABLE = "CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder))
        anyio.run(recording.play)
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    svg = recording.console.export_svg(
        title="lexigram", code_format=FORMAT, unique_id="orders", font_aspect_ratio=0.6
    )
    IMAGE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    print(f"wrote {IMAGE.relative_to(ROOT)}")
    return 0


class Recording:
    """What the terminal of a user shows, without the log."""

    def __init__(self, folder: Path) -> None:
        with Path(os.devnull).open("w") as nowhere:
            self.console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        self.console.file = sys.stdout
        self._folder = folder
        self._port = free_port()
        self._seen = 0
        self._server: subprocess.Popen[bytes]

    async def play(self) -> None:
        """The session of the README."""
        shutil.copy(ROOT / "examples" / "orders" / "app.py", self._folder / "orders.py")
        shutil.copy(ROOT / "examples" / "orders" / "application.yaml", self._folder)
        self._run(
            "python", "-c", f"import sqlite3; sqlite3.connect('orders.db').execute('{TABLE}')"
        )
        with (self._folder / "output.txt").open("wb") as output:
            await self._serve(output)
            await self._order(1, "tea", "ship order 1")
            await self._order(2, "anvil", "charge order 2")
            await wait_until(self._has_charged)
            self._type("kill -9 %1")
            self._server.kill()
            self._server.wait()
            await self._serve(output, "refund order 2")
            await wait_until(lambda: self._has_status("FAILED"))
            await self._show("lexigram queue ls --app orders:app")
            await self._show("lexigram workflow show 2 --app orders:app")
            self._server.terminate()
            self._server.wait()

    async def _serve(self, output: Any, *expected: str) -> None:
        self._type("lexigram serve orders:app &")
        self._server = subprocess.Popen(  # noqa: ASYNC220 - it starts in a moment
            [SCRIPTS / "lexigram", "serve", "orders:app", "--port", str(self._port)],
            cwd=self._folder,
            env=_variables(),
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        await self._print("listens on", *expected)

    async def _order(self, number: int, item: str, expected: str) -> None:
        self._type(f"curl -X POST http://127.0.0.1:8000/orders/{number}/{item}")
        async with httpx.AsyncClient() as client:
            (await client.post(f"{self._url}/orders/{number}/{item}")).raise_for_status()
        await self._print(expected)

    async def _has_charged(self) -> bool:
        return bool((await self._state()).get("done") == ["charge"])

    async def _has_status(self, status: str) -> bool:
        return bool((await self._state()).get("status") == status)

    async def _state(self) -> dict[str, Any]:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self._url}/api/v1/workflow/runs/2/state")
            return dict(answer.json())

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def _print(self, *expected: str) -> None:
        """Show what the server has printed once it has printed all that is expected."""
        path = anyio.Path(self._folder / "output.txt")

        async def has_all() -> bool:
            printed = (await path.read_text())[self._seen :]
            return all(text in printed for text in expected)

        await wait_until(has_all)
        printed = (await path.read_text())[self._seen :]
        self._seen += len(printed)
        self.console.print(printed.replace(str(self._port), "8000").rstrip(), highlight=True)

    async def _show(self, command: str) -> None:
        self._type(command)
        printed = await anyio.to_thread.run_sync(lambda: self._run(*command.split()))
        self.console.print(Text(printed.rstrip()))

    def _type(self, command: str) -> None:
        self.console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))

    def _run(self, *words: str) -> str:
        return subprocess.run(
            words,
            cwd=self._folder,
            env=_variables(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def _variables() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEX_")}
    kept["PATH"] = f"{SCRIPTS}{os.pathsep}{kept['PATH']}"
    return {**kept, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"}


if __name__ == "__main__":
    sys.exit(main())
