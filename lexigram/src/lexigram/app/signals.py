"""Process signals: the first asks the application to drain, the second ends it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Step = Callable[[], Awaitable[None]]


async def run_until_signal(start: Step, wait: Step, stop: Step) -> None:
    """Start, wait for a signal or for ``wait`` to return, stop.

    A signal during the start cancels it, so that it undoes itself; a second signal at any
    time ends the process without further ado.
    """
    asked = anyio.Event()
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        # Before the start: a signal that arrives while booting must not kill half an application.
        await tasks.start(_listen, asked)
        try:
            if await _unless(asked, start):
                await _unless(asked, wait)
                await stop()
        except Exception as error:  # noqa: BLE001 - raised below, free of the group's wrapping
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


@contextmanager
def on_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` on Ctrl-C while the block lasts, instead of raising KeyboardInterrupt in it.

    An exception out of nowhere could come before anybody knows what is to be cancelled. Outside
    the main thread there are no signals, and nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _unless(asked: anyio.Event, step: Step) -> bool:
    """Run a step, cancelled when the event comes first; True when it came to its end."""
    finished = False
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on, asked, tasks.cancel_scope)
        try:
            await step()
            finished = True
        except Exception as error:  # noqa: BLE001 - raised below, free of the group's wrapping
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return finished


async def _cancel_on(asked: anyio.Event, scope: anyio.CancelScope) -> None:
    await asked.wait()
    scope.cancel()


async def _listen(
    asked: anyio.Event, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    if sys.platform == "win32":
        task_status.started()  # no loop signal handlers there: Ctrl-C cancels the whole run
        return
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        task_status.started()
        await _count(signals, asked)


async def _count(signals: AsyncIterator[signal.Signals], asked: anyio.Event) -> None:
    async for number in signals:
        if asked.is_set():
            # Somebody insists: no handlers, no flushing that could hang again.
            os._exit(128 + number)
        asked.set()
