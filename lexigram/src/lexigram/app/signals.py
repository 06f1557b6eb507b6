"""Process signals: the first asks the application to drain, the second ends it at once.

They are received outside the event loop, so that a loop that is blocked delays neither.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WAKE, _END = b"\x00", b"\xff"  # beside numbers of signals
# A command that got SIGTERM ends within this time; service managers kill after ten seconds.
COMMAND_GRACE_SECONDS = 8.0

Step = Callable[[], Awaitable[None]]


async def run_until_signal(start: Step, wait: Step, stop: Step) -> None:
    """Start, wait for a signal or for ``wait`` to return, stop.

    A signal during the start cancels it, so that it undoes itself; a second signal at any
    time ends the process without further ado, also while the event loop is blocked.
    """
    asked = anyio.Event()
    failure: BaseException | None = None
    # Before the start: a signal that arrives while booting must not kill half an application.
    with _receive_signals(asked):
        try:
            if await unless(asked, start):
                failure = await _outcome(asked, wait)
                await stop()
        except Exception as error:  # noqa: BLE001 - raised below, what happened first goes first
            failure = failure or error
    if failure is not None:
        raise failure


async def unless_signalled(step: Step) -> None:
    """Run a step, cancelled by the first signal, which then ends the process as it would.

    Raises KeyboardInterrupt after Ctrl-C and SystemExit after SIGTERM. A step that does not end
    within COMMAND_GRACE_SECONDS after SIGTERM, because a thread or the event loop is busy, is
    ended with the process; after Ctrl-C a second one does that. asyncio's own answer to Ctrl-C
    cancels a task once, which a time limit that ends in the same moment swallows; the scope here
    goes on cancelling until the step is over.
    """
    if threading.current_thread() is not threading.main_thread():
        await step()
        return
    asked = anyio.Event()
    with _receive_signals(asked, grace=COMMAND_GRACE_SECONDS) as receiver:
        ended = await unless(asked, step)
    if not ended and receiver.first is signal.SIGINT:
        raise KeyboardInterrupt
    if not ended and receiver.first is not None:
        raise SystemExit(128 + receiver.first)


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


class _Receiver:
    """Counts stop signals in two places, because each place misses what the other one sees.

    Python's own handlers run between two steps of the interpreter in the main thread: not while
    it is inside a long call of a library written in C. The bytes that the interpreter writes for
    each signal are read by a thread: not while such a call keeps the interpreter lock, nor after
    another library has set the wake-up descriptor. Each place sees a signal at most once, so the
    larger count is right.
    """

    def __init__(self, act: Callable[[], object], grace: float | None) -> None:
        self._act = act
        self._grace = grace
        self._deadline: float | None = None
        self._handled = 0
        self._read = 0
        self._reading, self._writing = socket.socketpair()  # a pipe cannot be waited for everywhere
        self._writing.setblocking(False)
        self.first: signal.Signals | None = None
        threading.Thread(target=self._watch, name="lexigram.signals", daemon=True).start()

    def handle(self, number: int, _frame: object) -> None:
        """Python's handler of the signal."""
        self._handled += 1
        self._receive(number, self._handled)
        self._writing.send(_WAKE)  # the thread has a deadline to look at now

    def fileno(self) -> int:
        """Where the interpreter writes the number of each signal."""
        return self._writing.fileno()

    def close(self) -> None:
        """End the thread. Closing alone would not: a forked child may have the socket open too."""
        self._writing.send(_END)
        self._writing.close()

    def _watch(self) -> None:
        with self._reading:
            while _END not in (data := self._next()):
                for number in data:
                    if number in STOP_SIGNALS:
                        self._read += 1
                        self._receive(number, self._read)

    def _next(self) -> bytes:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        if not select.select([self._reading], [], [], left)[0]:
            os.write(2, f"SIGTERM: not ended after {self._grace:g} s; exiting\n".encode())
            os._exit(128 + signal.SIGTERM)
        return self._reading.recv(64)

    def _receive(self, number: int, count: int) -> None:
        if count > 1:
            # The second signal: no handlers, no flushing that could hang again.
            os._exit(128 + number)
        if self.first is None:
            self.first = signal.Signals(number)
            if self._grace is not None and self.first is signal.SIGTERM:
                self._deadline = time.monotonic() + self._grace
            self._act()


@contextmanager
def _receive_signals(asked: anyio.Event, *, grace: float | None = None) -> Iterator[_Receiver]:
    """Set the event on the first stop signal while the block lasts; exit on the second."""
    loop = asyncio.get_running_loop()
    receiver = _Receiver(lambda: loop.call_soon_threadsafe(asked.set), grace)
    wakeup = signal.set_wakeup_fd(receiver.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, receiver.handle) for number in STOP_SIGNALS}
    try:
        yield receiver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        receiver.close()


def _give_signals_back() -> None:
    """In a forked child: its signals are its own, and the parent learns of none of them."""
    if isinstance(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), _Receiver):
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_signals_back)
