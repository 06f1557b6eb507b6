"""A real process drains on a signal, exits 0, and ends at once when somebody insists."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HANG_GUARD = 120  # seconds

PROGRAM = """
import anyio
from lexigram.app import Application
from lexigram.config import AppConfig, LexigramConfig
from lexigram.di import Provider

class Worker(Provider):
    async def boot(self, container):
        print("booted", flush=True)
    async def shutdown(self):
        print("draining", flush=True)
        await anyio.sleep({drain})
        print("drained", flush=True)

if __name__ == "__main__":
    Application("svc", LexigramConfig(app=AppConfig(shutdown_timeout={timeout})),
                providers=[Worker]).run()
"""


@contextmanager
def process(tmp_path: Path, *, drain: str, timeout: float = 30) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "svc.py"
    script.write_text(textwrap.dedent(PROGRAM).format(drain=drain, timeout=timeout))
    with subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.mark.promise
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_zero(tmp_path: Path, number: signal.Signals) -> None:
    with process(tmp_path, drain="0") as running:
        assert line(running) == "booted"
        running.send_signal(number)
        assert line(running) == "draining"
        assert line(running) == "drained"
        assert running.wait(HANG_GUARD) == 0
        assert running.stderr is not None
        assert len(running.stderr.read().splitlines()) <= 3


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    with process(tmp_path, drain="1e9") as running:
        assert line(running) == "booted"
        running.send_signal(signal.SIGTERM)
        assert line(running) == "draining"
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG_GUARD) == 128 + signal.SIGTERM


def test_a_drain_that_hangs_ends_within_the_shutdown_timeout(tmp_path: Path) -> None:
    with process(tmp_path, drain="1e9", timeout=0.1) as running:
        assert line(running) == "booted"
        running.send_signal(signal.SIGTERM)
        assert line(running) == "draining"
        assert running.wait(HANG_GUARD) == 1
        assert running.stderr is not None
        assert "LEX_ERR_APP_003" in running.stderr.read()


def test_a_signal_during_the_start_undoes_it_and_exits_zero(tmp_path: Path) -> None:
    program = """
import anyio
from lexigram.app import Application
from lexigram.di import Provider

class First(Provider):
    priority = 0
    async def shutdown(self):
        print("undone", flush=True)

class Slow(Provider):
    async def boot(self, container):
        print("booting", flush=True)
        await anyio.sleep_forever()

if __name__ == "__main__":
    Application("svc", providers=[First, Slow]).run()
"""
    script = tmp_path / "svc.py"
    script.write_text(program)
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as running:
        assert line(running) == "booting"
        running.send_signal(signal.SIGTERM)
        assert line(running) == "undone"
        assert running.wait(HANG_GUARD) == 0
