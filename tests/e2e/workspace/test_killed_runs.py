"""A run of the tests that is killed leaves nothing that the next run trips over."""

import os
import signal
import subprocess
import sys

import anyio
import pytest
from docblocks import ROOT

from lexigram.testing import wait_until

HANG_GUARD = 120.0  # seconds; a start of pytest takes a while on a busy machine
# A server in a session of its own, the folder of one, and a test that does not end.
WAITING = """
import os, pathlib, signal, subprocess, tempfile
import pytest
from tests.names import unique_name

@pytest.mark.quick
def test_waits():
    folder = pathlib.Path(tempfile.gettempdir(), f"{unique_name()}.waiting")
    folder.mkdir()
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    written = pathlib.Path(__file__).with_name("writing")
    written.write_text(f"{server.pid} {os.getpid()} {folder}")
    written.rename(written.with_name("processes"))
    signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
async def test_the_next_run_ends_and_removes_what_a_run_left(tmp_path, how):
    file, written = tmp_path / "test_waiting.py", tmp_path / "processes"
    file.write_text(WAITING)
    with run(file, stdout=subprocess.DEVNULL, start_new_session=True) as first:
        await wait_until(anyio.Path(written).exists, timeout=HANG_GUARD)
        server, worker, folder = written.read_text().split()
        if how is signal.SIGKILL:
            first.kill()
        else:
            os.killpg(first.pid, how)  # as a terminal does
    with run(file, "--collect-only", stdout=subprocess.PIPE) as second:
        output, _ = second.communicate(timeout=HANG_GUARD)
    assert second.returncode == 0, output
    assert "leftovers of runs that were killed" in output
    assert not await anyio.Path(folder).exists()
    for process in (server, worker):
        await wait_until(lambda process=process: is_gone(process), timeout=HANG_GUARD)


def run(file, *arguments, **options):
    """`make test` of this file alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.run", "-c", "pyproject.toml", *arguments, str(file)],
        cwd=ROOT,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


async def is_gone(process):
    """True for a process that has ended, also where its parent has not asked for its end yet."""
    try:
        return await anyio.Path(f"/proc/{process}/cmdline").read_bytes() == b""
    except (FileNotFoundError, ProcessLookupError):
        return True
