"""Process signals: the first asks the application to drain, the second ends it at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable

import anyio

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve_until_signal(
    wait: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
) -> None:
    """Wait for a signal or for ``wait`` to return, then ``stop``; a second signal ends all."""
    asked = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, asked)
        tasks.start_soon(_relay, wait, asked)
        await asked.wait()
        try:
            await stop()
        finally:
            tasks.cancel_scope.cancel()


async def _relay(wait: Callable[[], Awaitable[None]], asked: anyio.Event) -> None:
    await wait()
    asked.set()


async def _listen(asked: anyio.Event) -> None:
    if sys.platform == "win32":
        await anyio.sleep_forever()  # no loop signal handlers there: Ctrl-C cancels the run
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async for number in signals:
            if asked.is_set():
                # Somebody insists: no handlers, no flushing that could hang again.
                os._exit(128 + number)
            asked.set()
