"""Runs the double as a process of its own: ``with PubSubDouble() as double: double.host``."""

import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lexigram.testing.services import do_without

ROOT = Path(__file__).parents[3]


def demand_pubsub():
    """Skip a module where google-cloud-pubsub is missing; CI, which must have it, fails there."""
    try:
        found = importlib.util.find_spec("google.pubsub_v1")
    except ModuleNotFoundError:
        found = None
    if found is not None:
        _keep_grpc()
        return
    try:
        do_without("the double of Pub/Sub needs google-cloud-pubsub (extra gcp)")
    except pytest.skip.Exception as skipped:
        pytest.skip(str(skipped), allow_module_level=True)


def _keep_grpc():
    """Without it, the library stops its thread with the last channel: whenever that is collected.

    In a loop that is never closed, because the library does not bear that; and in one of its own,
    because between tests there is none.
    """
    import grpc.aio

    async def begin():
        grpc.aio.init_grpc_aio()

    if not _KEPT:
        _KEPT.append(asyncio.new_event_loop())
        _KEPT[0].run_until_complete(begin())


_KEPT = []


async def settle_calls():
    """Return when the library has reported the calls that were cancelled in this loop.

    It reports them from a thread, a moment later, whichever loop runs by then, and fails there if
    theirs is closed. It reports in order: a new call that fails is reported after them.
    """
    if "grpc" not in sys.modules:
        return
    import grpc.aio

    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await channel.unary_unary("/lexigram.Nobody/Answers")(b"", timeout=30)


class PubSubDouble:
    """One server, with any project. ``fault(Publish=["UNAVAILABLE", 2])``: the next two fail.

    ``folder``: of ``secrets.make``; it then wants TLS and tokens.
    """

    def __init__(self, folder=None):
        self._more = [str(folder)] if folder else []

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.doubles.pubsub", *self._more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = self._process.stdout.readline()
        assert line, "the double died"
        self.port = int(line)
        self.host = f"127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    async def fault(self, **faults):
        """Statuses by method, each with how often; none ends all of them. ``ALL``: any method."""
        import grpc

        if "ALL" in faults:
            faults["*"] = faults.pop("ALL")
        async with grpc.aio.insecure_channel(self.host) as channel:
            call = channel.unary_unary("/lexigram.Double/Fault")
            await call(json.dumps(faults).encode())
