"""The README is true for a stranger: an empty folder, an environment with the wheels, its commands."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import anyio
import docblocks
import httpx
from docblocks import ROOT
from tests.make import make

from lexigram.testing import wait_until
from lexigram.testing.services import free_port

README = ROOT / "README.md"
EXAMPLE = ROOT / "examples" / "orders"
HANG_GUARD = 120.0  # seconds; processes start slowly on a busy machine
CODE_LINES = 40  # of the first example; blank ones do not count
FIRST_SCREEN = 40  # lines
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def test_the_first_example_of_the_readme_is_the_one_of_the_examples():
    first = next(docblocks.blocks(README))
    shown = [line for line in first.text.splitlines() if line]
    source = (EXAMPLE / "app.py").read_text(encoding="utf-8")
    assert shown == [line for line in source.splitlines() if line]
    assert len(shown) <= CODE_LINES
    assert first.line < FIRST_SCREEN / 4


def test_the_configuration_of_the_readme_is_the_one_of_the_examples():
    (shown,) = [b for b in docblocks.blocks(README) if b.options.get("file") == "application.yaml"]
    assert shown.text == (EXAMPLE / "application.yaml").read_text(encoding="utf-8")


async def test_a_stranger_gets_from_the_readme_to_a_run_that_survives_a_kill(tmp_path, wheels):
    async with Stranger(tmp_path, wheels) as stranger:
        for block in docblocks.blocks(README):
            await stranger.follow(block)
    assert stranger.did == {"make", "pip", "python", "lexigram", "curl", "kill"}
    output = stranger.log.read_text(encoding="utf-8")
    assert output.count("charge order 2") == output.count("refund order 2") == 1
    assert "ship order 2" not in output


class Stranger:
    """Does what the page says, in order; a server's lines are waited for in its output."""

    def __init__(self, folder: Path, wheels: dict[str, Path]) -> None:
        self.folder = folder / "empty"
        self.folder.mkdir()
        self.log = folder / "output.txt"
        self.did: set[str] = set()
        self._wheels = wheels
        self._port = str(free_port())
        self._environment = folder / "environment"
        self._dependencies = folder / "dependencies"  # of this environment, without what is ours
        self._dependencies.mkdir()
        for entry in SITE_PACKAGES.iterdir():
            if not entry.name.startswith("lexigram") and entry.suffix != ".pth":
                (self._dependencies / entry.name).symlink_to(entry)
        self._server: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        self._output = self._stack.enter_context(self.log.open("wb"))
        self._run(sys.executable, "-m", "venv", "--without-pip", self._environment)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
        self._stack.close()

    async def follow(self, block: docblocks.Block) -> None:
        text = block.text.replace(":8000", f":{self._port}").replace(
            "port 8000", f"port {self._port}"
        )
        if "file" in block.options:
            (self.folder / block.options["file"]).write_text(text, encoding="utf-8")
        elif block.language == "console":
            for _, command, expected in docblocks.commands(replace(block, text=text)):
                words = shlex.split(command, comments=True)
                self.did.add(words[0])
                seen = self.log.stat().st_size
                printed = await getattr(self, f"_{words[0]}")(words)
                if expected:
                    await self._expect(words, expected, printed, seen)

    async def _make(self, words: list[str]) -> str:
        if words == ["make", "wheels"]:
            assert len(self._wheels) == 5
            return ""
        done = make("-n", *words[1:])  # they run in test_demo.py, and here right now
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def _pip(self, words: list[str]) -> str:
        """The wheels that the command asks for with what they require; nothing is downloaded."""
        asked = [re.split(r"\[|==", word)[0].replace("-", "_") for word in words[4:]]
        assert words[:4] == ["pip", "install", "--find-links", "dist"]
        found = [self._wheels[name] for name in ("lexigram_contracts", *asked)]
        uv = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
        return self._run(*uv, "--python", self._environment / "bin" / "python", *found)

    async def _python(self, words: list[str]) -> str:
        return self._run(*words)

    async def _lexigram(self, words: list[str]) -> str | None:
        if words[-1] != "&":
            return self._run(*words)
        self._server = subprocess.Popen(  # noqa: ASYNC220 - it starts in a moment
            [self._environment / "bin" / words[0], *words[1:-1]],
            cwd=self.folder,
            env=self._variables(),
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        return None

    async def _curl(self, words: list[str]) -> None:
        async with httpx.AsyncClient() as client:
            assert (await client.post(words[-1])).status_code == 202

    async def _kill(self, words: list[str]) -> None:
        assert words == ["kill", "-9", "%1"]
        assert self._server is not None
        await wait_until(self._has_charged, timeout=HANG_GUARD)
        self._server.kill()
        self._server.wait()

    async def _has_charged(self) -> bool:
        """The first step of the second order is stored, so it is not called again."""
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{self._port}/api/v1/workflow/runs/2/state"
            return bool((await client.get(url)).json().get("done") == ["charge"])

    async def _expect(
        self, words: list[str], expected: str, printed: str | None, seen: int
    ) -> None:
        if printed is None:  # a server, or what makes it print
            for text in expected.splitlines():
                await wait_until(
                    lambda text=text: self._has_printed(text, seen), timeout=HANG_GUARD
                )
            return

        async def agrees() -> bool:  # a run that just ended may be a moment away from its state
            again = await anyio.to_thread.run_sync(lambda: self._run(*words))
            return docblocks.agrees(expected, again)

        await wait_until(agrees, timeout=HANG_GUARD)

    async def _has_printed(self, text: str, seen: int) -> bool:
        return text.encode() in (await anyio.Path(self.log).read_bytes())[seen:]

    def _run(self, *words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self._variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
        path = f"{self._environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        ours = {"PATH": path, "PYTHONPATH": str(self._dependencies), "PYTHONUNBUFFERED": "1"}
        return {**kept, **ours, "NO_COLOR": "1", "COLUMNS": "100"}
