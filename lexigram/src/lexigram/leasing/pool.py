"""The loop of a worker: claim leased items while there is room, run each, drain at the end."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from lexigram.concurrency import call
from lexigram.leasing._contexts import await_in_context
from lexigram.leasing.backoff import Backoff

_CLAIM_RETRY = Backoff(first=0.05, cap=5.0)


class StopReason(Enum):
    """Why a handler is cancelled."""

    CANCELLED = auto()  # on request
    LOST = auto()  # the lease is over
    STOPPED = auto()  # the worker stops


class LeasedRun:
    """A claimed item on its way through a pool; ``scope`` is for the call of its handler."""

    __slots__ = ("is_reported", "key", "scope", "stop_reason")

    def __init__(self, key: object) -> None:
        self.key = key
        self.scope = anyio.CancelScope()
        self.stop_reason: StopReason | None = None
        self.is_reported = False

    def stop(self, reason: StopReason) -> None:
        """Cancel the handler, but not the report of its end; the first reason counts."""
        if self.stop_reason is None and not self.is_reported:
            self.stop_reason = reason
            self.scope.cancel()


Run = TypeVar("Run", bound=LeasedRun)


class LeasePool(Generic[Run]):
    """Runs up to ``size`` items at a time; ``prefetch`` more may be held and wait for their turn.

    ``claim(room)`` claims items, passes each to ``add``, and returns how many there were.
    ``run(item)`` calls the handler, reports its end, and calls ``forget``: what it leaves is held.
    ``wait_for_work()`` returns when there may be something to claim.
    ``on_outage(error, failures)`` gets what ``claim`` and ``wait_for_work`` raise, and how often in
    a row: it logs it, or raises it to end the pool. ``release(items)`` gives back what did not begin.

    Tasks are made when they are needed, and run one item after the other: a task for every item
    took a quarter more processor time, in memory and on PostgreSQL. An item has a context of its
    own: what its handler sets in context variables ends with it.
    """

    def __init__(
        self,
        size: int,
        *,
        claim: Callable[[int], Awaitable[int]],
        run: Callable[[Run], Coroutine[Any, Any, None]],
        wait_for_work: Callable[[], Coroutine[Any, Any, object]],
        on_outage: Callable[[Exception, int], None],
        release: Callable[[Sequence[Run]], Awaitable[None]],
        prefetch: int = 0,
    ) -> None:
        # claimed and not reported, by key
        self.held: dict[object, Run] = {}
        # items whose handlers run
        self.running = 0
        self._size = size
        self._prefetch = prefetch
        self._claim = claim
        self._run = run
        self._wait_for_work = wait_for_work
        self._on_outage = on_outage
        self._release = release
        self._waiting: deque[Run] = deque()
        # tasks without an item, the last one to rest first
        self._resting: list[asyncio.Future[Run]] = []
        self._freed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._pause = anyio.CancelScope()  # around every wait of the claiming loop
        self._tasks: TaskGroup | None = None
        # the task whose group the tasks of items are in: it alone may cancel them
        self.host: asyncio.Task[Any] | None = None

    # --- the loop -------------------------------------------------------------------------------

    def open(self, tasks: TaskGroup, stopping: asyncio.Event | None = None) -> None:
        """Run items in tasks of this group, which is of the current task, until ``stopping``."""
        self._tasks, self.host = tasks, asyncio.current_task()
        self._stopping = stopping or asyncio.Event()
        if stopping is not None:
            tasks.start_soon(self._interrupt)

    async def claim_until_stopped(self) -> None:
        """Claim whenever there is room and there may be work."""
        failures = 0
        while not self._stopping.is_set():
            try:
                is_full = await self.claim()
                await self._wait(self._freed.wait() if is_full else self._wait_for_work())
                failures = 0
            except Exception as error:  # noqa: BLE001 - ``on_outage`` decides which ends the pool
                failures += 1
                self._on_outage(error, failures)
                await self._wait(anyio.sleep(_CLAIM_RETRY.delay(failures)))

    async def claim(self) -> bool:
        """Claim as many as there is room for, and start them; True when the room is used up."""
        room = self._size + self._prefetch - len(self.held)
        if room <= 0:
            return True
        claimed = await self._claim(room)
        self._start_waiting()
        return claimed >= room

    async def drain(self, timeout: float) -> None:
        """Give back what has not begun, wait ``timeout`` seconds for the rest, then cancel it."""
        unstarted = list(self._waiting)
        self._waiting.clear()
        if unstarted:
            for run in unstarted:
                run.stop(StopReason.STOPPED)
            await self._release(unstarted)
        with anyio.move_on_after(timeout):
            await self._idle.wait()
        for run in list(self.held.values()):
            run.stop(StopReason.STOPPED)
        await self._idle.wait()

    async def wait_until_idle(self) -> None:
        """Return when nothing runs or waits for its turn."""
        await self._idle.wait()

    async def wait_until_freed(self) -> None:
        """Return when there is room again, or after ``wake``."""
        await self._freed.wait()
        self._freed.clear()

    # --- for ``claim`` and ``run`` --------------------------------------------------------------

    def hold(self, run: Run) -> None:
        """Count an item among those whose leases are kept."""
        self.held[run.key] = run

    def add(self, run: Run, *, first: bool = False) -> None:
        """Hold an item, and run it when a task is free; ``first``: before those that wait."""
        self.hold(run)
        if first:
            self._waiting.appendleft(run)
        else:
            self._waiting.append(run)

    def forget(self, run: Run) -> None:
        """It has been reported, or nobody can report it: its place is free."""
        self.held.pop(run.key, None)
        self._freed.set()

    def wake(self) -> None:
        """There may be room again: claim."""
        self._freed.set()

    def clear(self) -> list[Run]:
        """After the tasks have ended: forget everything; returns what was held."""
        left, self.held, self.running = list(self.held.values()), {}, 0
        self._waiting.clear()
        self._idle.set()
        return left

    # --- tasks ----------------------------------------------------------------------------------

    async def _interrupt(self) -> None:
        await self._stopping.wait()
        self._pause.cancel()

    async def _wait(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait, but not longer than until ``stopping``."""
        with anyio.CancelScope() as self._pause:
            if self._stopping.is_set():
                self._pause.cancel()
            await waiting
        self._freed.clear()

    def _start_waiting(self) -> None:
        assert self._tasks is not None, "opened first"
        while self._waiting and self.running < self._size:
            self.running += 1
            self._idle.clear()
            run = self._waiting.popleft()
            if self._resting:
                self._resting.pop().set_result(run)
            else:
                self._tasks.start_soon(partial(call, self._run_many, run, host=self.host))

    async def _run_many(self, run: Run) -> None:
        """One of up to ``size`` tasks; it ends with the task group."""
        while True:
            try:
                await await_in_context(contextvars.copy_context(), self._run(run))
            finally:
                self.running -= 1
                self._freed.set()
                if not self.running and not self._waiting:
                    self._idle.set()
            if self._waiting:
                self.running += 1
                run = self._waiting.popleft()
            else:
                run = await self._rest()

    async def _rest(self) -> Run:
        called: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._resting.append(called)
        try:
            return await called
        except asyncio.CancelledError:
            if called in self._resting:  # else it got an item, which is still held
                self._resting.remove(called)
            raise
