"""Background duties of workers: reap expired leases, promote due runs, remove old groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from lexigram.concurrency import as_failure
from lexigram.observability import get_logger
from lexigram.sql.errors import is_file_lost
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.plan import error_text
from lexigram.workflow.durable.worker.pools import Metrics

logger = get_logger(__name__)

_TEND_SECONDS = 5.0  # at least this often, even when nothing is known to be due
_TEND_GAP = 0.1  # and not more often than this
_SWEEP_SECONDS = 60.0  # locks that are over, groups that were miscounted; one worker of all
_PRUNE_SECONDS = 600.0  # one worker of all
_UPKEEP_SECONDS = 24 * 3600.0

# Workers of this process that run, and what they hold: none of it is reaped by another one here.
live: dict[str, Mapping[tuple[int, str], None]] = {}


class Duties:
    """The duties of one worker. ``on_promoted`` is called when there is more to claim."""

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        metrics: Metrics,
        *,
        retention: float,
        upkeep: Callable[[], Awaitable[Any]] | None,
        on_promoted: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._metrics = metrics
        self._retention = retention
        self._upkeep = upkeep
        self._on_promoted = on_promoted
        # a run may have got a time, or a resource may be free
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Check now: something may be due."""
        self._news.set()

    def start(self, start: Callable[..., None]) -> None:
        """``start`` takes the name of a task, its function and the arguments."""
        start("tend", self._tend_on)
        start("reap", self._repeat, self._reap, self._engine.terms.lease / 2)
        start("sweep", self._repeat, self._sweep, _SWEEP_SECONDS)
        if self._retention:
            start("prune", self._repeat, self._prune, _PRUNE_SECONDS)
        if self._upkeep is not None:
            start("upkeep", self._repeat, self._keep_up, _UPKEEP_SECONDS)

    async def _repeat(self, work: Callable[[], Awaitable[None]], every: float) -> None:
        """Call it now and at every interval."""
        while True:
            try:
                await work()
            except DurableError as error:
                if is_file_lost(error):
                    raise
                logger.warning("a duty failed", worker=self._worker_id, error=str(error))
            await anyio.sleep(every)

    async def _tend_on(self) -> None:
        """Due runs and free resources: when the next is due, and soon after news of one."""
        while True:
            wait = _TEND_SECONDS
            try:
                wait = await self._tend()
            except DurableError as error:
                if is_file_lost(error):
                    raise
                logger.warning("cannot look for due runs", worker=self._worker_id, error=str(error))
            await anyio.sleep(min(wait, _TEND_GAP))
            with anyio.move_on_after(wait - _TEND_GAP):
                await self._news.wait()
            self._news.clear()

    async def _tend(self) -> float:
        tended = await self._engine.store.tend()
        if tended.promoted:
            self._on_promoted()
        return _TEND_SECONDS if tended.next_due is None else max(tended.next_due, 0.002)

    async def _reap(self) -> None:
        held = [lease for leases in live.values() for _, lease in list(leases)]
        reaped = await self._engine.store.reap([*live], held)
        if gone := [worker for worker in reaped.workers if worker not in live]:
            self._metrics.incr("worker_reaped", len(gone))
        if taken_back := len(reaped.steps) - len(reaped.poison):
            self._metrics.incr("step_reset_by_reaper", taken_back)
            logger.warning("steps of dead workers taken back", steps=taken_back)
        if reaped.poison:
            self._metrics.incr("step_poisoned", len(reaped.poison))
            logger.error(
                "steps failed as poison: their handlers ended their workers", steps=reaped.poison
            )

    async def _sweep(self) -> None:
        if not await self._engine.store.take_duty("sweep", _SWEEP_SECONDS):
            return
        if swept := await self._engine.sweep_expired_resource_locks():
            self._metrics.incr("resource_lock_swept", swept)
        if wrong := await self._engine.store.reconcile():
            logger.error("miscounted groups were repaired", groups=wrong)

    async def _prune(self) -> None:
        if not await self._engine.store.take_duty("prune", _PRUNE_SECONDS):
            return
        removed = 0
        while gone := await self._engine.prune(self._retention):
            removed += gone
        if removed:
            logger.info("old runs removed", runs=removed)

    async def _keep_up(self) -> None:
        if self._upkeep is None or not await self._engine.store.take_duty(
            "upkeep", _UPKEEP_SECONDS
        ):
            return
        try:
            await self._upkeep()
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning(
                "the upkeep failed; it is retried tomorrow",
                error=error_text(failure),
                exc_info=failure,
            )
