"""What killed runs of the tests leave is recognized by the run that made it."""

import os
import subprocess
import sys
from contextlib import ExitStack

import anyio
import pytest
from tests.leftovers import kill_abandoned_processes
from tests.names import RUN_VARIABLE, is_abandoned, owner_of, unique_name

from lexigram.testing import wait_until


@pytest.fixture
def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def start():
    """A process of a session of its own, which the signal that killed its run does not reach."""
    with ExitStack() as stack:

        async def start(run):
            process = stack.enter_context(
                subprocess.Popen(  # noqa: ASYNC220 - it starts in a moment
                    ["sleep", "600"],
                    env={**os.environ, RUN_VARIABLE: str(run)},
                    start_new_session=True,
                )
            )
            stack.callback(process.kill)
            variables = anyio.Path(f"/proc/{process.pid}/environ")
            await wait_until(variables.read_bytes, timeout=60)  # a moment after the start
            return process

        yield start


async def test_processes_of_a_run_that_was_killed_are_killed_and_no_others(ended, start):
    abandoned, own = await start(ended), await start(os.getpid())
    kill_abandoned_processes()  # unless a run that starts beside this one is faster
    assert abandoned.wait(60) == -9
    assert own.poll() is None


def test_a_name_tells_whether_its_run_has_ended(ended, monkeypatch):
    monkeypatch.setenv(RUN_VARIABLE, str(ended))
    assert owner_of(unique_name()) == ended
    assert is_abandoned(unique_name())
    monkeypatch.setenv(RUN_VARIABLE, str(os.getpid()))
    assert not is_abandoned(unique_name())
    assert not is_abandoned("lexigram")
