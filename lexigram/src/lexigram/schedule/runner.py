"""The loop that fires: wakes at the next due time, on news, and by slow poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from lexigram import clock
from lexigram.concurrency import call
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.leasing import Backoff
from lexigram.leasing.subscriptions import Waiter
from lexigram.observability import get_logger
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql.errors import is_file_lost

logger = get_logger(__name__)

_FORGET_EVERY = 3600.0  # seconds
_RETRY = Backoff(first=0.5, cap=10.0)


class Runner:
    """Fires in this process until it is stopped; any number of processes may do it.

    What fails, such as the database, is tried again, more and more slowly; ``problem`` says so
    meanwhile.
    """

    def __init__(
        self, scheduler: Scheduler, callbacks: Callbacks, declared: Callable[[], Sequence[str]]
    ) -> None:
        self.problem: str | None = None
        self._scheduler = scheduler
        self._callbacks = callbacks
        self._declared = declared
        self._retired = False
        self._forget_at = 0.0
        self._stopping = anyio.Event()
        self._failed = 0
        self._host: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Fire until ``stop`` is called, then wait for the callbacks that run."""
        self._host = asyncio.current_task()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._callbacks.renew, name="schedule leases")
            # Left in this order: first the looking is cancelled, then callbacks are waited for.
            async with anyio.create_task_group() as work, anyio.create_task_group() as looking:
                looking.start_soon(self._look_for_ever, work, name="schedule look")
                await self._stopping.wait()
                looking.cancel_scope.cancel()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping.set()

    async def _look_for_ever(self, work: TaskGroup) -> None:
        while True:
            try:
                await call(self._look_steadily, work, host=self._host)
            except DatabaseError as error:
                self.problem = error.message
                if is_file_lost(error):
                    logger.error("schedules fire no more", error=str(error))  # noqa: TRY400
                    return
                logger.warning("schedules not looked at", error=error.message)
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"
                logger.exception("schedules not looked at")
            self._failed += 1
            await anyio.sleep(_RETRY.delay(self._failed))

    async def _look_steadily(self, work: TaskGroup) -> None:
        async with self._scheduler.wakeup.waiting() as waiter:
            while True:
                await self._look(work)
                self.problem, self._failed = None, 0
                await self._wait(waiter)

    async def _look(self, work: TaskGroup) -> None:
        if not self._retired:
            gone = await self._scheduler.retire(self._declared())
            if gone:
                logger.info("schedules no longer in the code are inactive", schedules=gone)
            self._retired = True
        await self._scheduler.fire_due()
        # Claimed and not started, they would wait for their lease to run out.
        with anyio.CancelScope(shield=True):
            await self._callbacks.start_pending(work, self._host)
        if clock.monotonic() >= self._forget_at:
            await self._scheduler.forget()
            self._forget_at = clock.monotonic() + _FORGET_EVERY

    async def _wait(self, waiter: Waiter) -> None:
        due = await self._scheduler.next_due()
        if due is None:
            await waiter.wait()
            return
        # A millisecond is the unit of ticks: without it a wake-up just before would find nothing.
        await waiter.wait(at_most=max(0.0, (due + 1) / 1000 - clock.timestamp()))
