"""A real process drains on a signal, exits 0, and ends at once when somebody insists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import Popen

HANG_GUARD = 120  # seconds

DRAINING = """
import anyio
from lexigram.app import Application
from lexigram.config import AppConfig, LexigramConfig
from lexigram.di import Provider

class Worker(Provider):
    async def shutdown(self):
        print("draining", flush=True)
        await anyio.sleep({drain})
        print("drained", flush=True)

if __name__ == "__main__":
    Application("svc", LexigramConfig(app=AppConfig(shutdown_timeout={timeout})),
                providers=[Worker]).run()
"""


@contextmanager
def program(tmp_path: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "svc.py"
    script.write_text(text)
    with Popen(
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
    with program(tmp_path, DRAINING.format(drain="0", timeout=30)) as running:
        assert " started" in errors(running)
        running.send_signal(number)
        assert line(running) == "draining"
        assert line(running) == "drained"
        assert running.wait(HANG_GUARD) == 0
        assert running.stderr is not None
        assert len(running.stderr.read().splitlines()) <= 2


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    with program(tmp_path, DRAINING.format(drain="1e9", timeout=30)) as running:
        assert " started" in errors(running)
        running.send_signal(signal.SIGTERM)
        assert line(running) == "draining"
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG_GUARD) == 128 + signal.SIGTERM


def test_a_drain_that_hangs_ends_within_the_shutdown_timeout(tmp_path: Path) -> None:
    with program(tmp_path, DRAINING.format(drain="1e9", timeout=0.1)) as running:
        assert " started" in errors(running)
        running.send_signal(signal.SIGTERM)
        assert line(running) == "draining"
        assert running.wait(HANG_GUARD) == 1
        assert running.stderr is not None
        assert "LEX_ERR_APP_003" in running.stderr.read()


def test_a_signal_during_the_start_undoes_it_and_exits_zero(tmp_path: Path) -> None:
    text = """
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
    with program(tmp_path, text) as running:
        assert line(running) == "booting"
        running.send_signal(signal.SIGTERM)
        assert line(running) == "undone"
        assert running.wait(HANG_GUARD) == 0


BLOCKED = """
import anyio
from lexigram.app import Application

async def work():
    print("blocked", flush=True)
    {block}

if __name__ == "__main__":
    anyio.run(Application("svc").serve, work)
"""

# In steps of the interpreter, in a call that signals interrupt, and in one that they do not.
BLOCKS = {
    "python": "while True: pass",
    "sleep": "import time; time.sleep(3600)",
    "library": "import hashlib; hashlib.pbkdf2_hmac('sha256', b'a', b'b', 2**31 - 1)",
    "wake-up descriptor": "import signal, time; signal.set_wakeup_fd(-1); time.sleep(3600)",
}


def errors(running: subprocess.Popen[str]) -> str:
    assert running.stderr is not None
    return running.stderr.readline()


def send(running: subprocess.Popen[str], number: signal.Signals) -> None:
    """Two signals of one number at once are one: wait until this one has arrived."""
    running.send_signal(number)
    status = Path(f"/proc/{running.pid}/status")
    while any(
        int(text.split()[1], 16) >> (number - 1) & 1
        for text in status.read_text().splitlines()
        if text.startswith(("ShdPnd", "SigPnd"))
    ):
        pass


@pytest.mark.promise
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_second_signal_ends_a_process_whose_loop_is_blocked(tmp_path: Path, block: str) -> None:
    with program(tmp_path, BLOCKED.format(block=block)) as running:
        assert line(running) == "blocked"
        send(running, signal.SIGTERM)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(HANG_GUARD) == 128 + signal.SIGINT


COMMAND = """
import anyio, time
from lexigram.app import signals

signals.COMMAND_GRACE_SECONDS = 0.1

async def step():
    print("blocked", flush=True)
    {block}

anyio.run(signals.unless_signalled, step)
"""
BUSY = {
    "loop": "time.sleep(3600)",
    "thread": "await anyio.to_thread.run_sync(time.sleep, 3600)",
}


@pytest.mark.promise
@pytest.mark.parametrize("block", BUSY.values(), ids=BUSY)
def test_a_command_that_cannot_be_cancelled_exits_soon_after_sigterm(
    tmp_path: Path, block: str
) -> None:
    with program(tmp_path, COMMAND.format(block=block)) as running:
        assert line(running) == "blocked"
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG_GUARD) == 128 + signal.SIGTERM
        assert running.stderr is not None
        assert running.stderr.read() == "SIGTERM: not ended after 0.1 s; exiting\n"


def test_a_second_interrupt_ends_a_command_that_cannot_be_cancelled(tmp_path: Path) -> None:
    with program(tmp_path, COMMAND.format(block=BUSY["thread"])) as running:
        assert line(running) == "blocked"
        send(running, signal.SIGINT)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(HANG_GUARD) == 128 + signal.SIGINT


def test_a_forked_child_ends_by_a_signal_and_the_parent_goes_on(tmp_path: Path) -> None:
    text = """
import anyio, os, signal, sys, time
from lexigram.app import Application

async def work():
    if (child := os.fork()) == 0:
        time.sleep(3600)
    print(child, flush=True)
    print(await anyio.to_thread.run_sync(os.waitpid, child, 0), flush=True)
    await anyio.sleep_forever()

if __name__ == "__main__":
    anyio.run(Application("svc").serve, work)
"""
    with program(tmp_path, text) as running:
        child = int(line(running))
        os.kill(child, signal.SIGTERM)
        assert line(running) == f"({child}, {int(signal.SIGTERM)})"
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG_GUARD) == 0
