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
        await tasks.start(_listen, asked, [])
        try:
            if await unless(asked, start):
                failure = await _outcome(asked, wait)
                await stop()
        except Exception as error:  # noqa: BLE001 - raised below, free of the group's wrapping
            failure = failure or error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def unless_signalled(step: Step) -> None:
    """Run a step, cancelled by the first signal, which then ends the process as it would.

    Raises KeyboardInterrupt after Ctrl-C and SystemExit after SIGTERM. asyncio's own answer to Ctrl-C cancels a task once, which a time limit that ends in the same
    moment swallows; the scope here goes on cancelling until the step is over.
    """
    if threading.current_thread() is not threading.main_thread():
        await step()
        return
    asked, ended = anyio.Event(), False
    failure: BaseException | None = None
    seen: list[signal.Signals] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(_listen, asked, seen)
        try:
            ended = await unless(asked, step)
        except Exception as error:  # noqa: BLE001 - raised below, free of the group's wrapping
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not ended and seen[0] is signal.SIGINT:
        raise KeyboardInterrupt
    if not ended:
        raise SystemExit(128 + seen[0])


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


async def unless(asked: anyio.Event, step: Step) -> bool:
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


async def _outcome(asked: anyio.Event, wait: Step) -> Exception | None:
    """What went wrong while waiting; the application is stopped all the same."""
    try:
        await unless(asked, wait)
    except Exception as error:  # noqa: BLE001 - raised after the stop
        return error
    return None


async def _cancel_on(asked: anyio.Event, scope: anyio.CancelScope) -> None:
    await asked.wait()
    scope.cancel()


async def _listen(
    asked: anyio.Event,
    seen: list[signal.Signals],
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    if sys.platform == "win32":
        task_status.started()  # no loop signal handlers there: Ctrl-C cancels the whole run
        return
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        task_status.started()
        await _count(signals, asked, seen)


async def _count(
    signals: AsyncIterator[signal.Signals], asked: anyio.Event, seen: list[signal.Signals]
) -> None:
    async for number in signals:
        seen.append(number)
        if asked.is_set():
            # Somebody insists: no handlers, no flushing that could hang again.
            os._exit(128 + number)
        asked.set()
