"""The pools of a worker: they claim runs, do their steps one after the other, and report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
from attrs import Factory, define, evolve, field

from lexigram import clock
from lexigram.leasing import Backoff, Coalescer, lease_token
from lexigram.observability import get_logger
from lexigram.sql.errors import is_file_lost
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.store.base import persist
from lexigram.workflow.durable.store.records import (
    Beat,
    Claim,
    End,
    Ended,
    EndKind,
    Selection,
    State,
    StepKind,
    make_end,
)

if TYPE_CHECKING:
    from lexigram.workflow.durable.worker._heartbeat import LeaseHeartbeat
    from lexigram.workflow.durable.worker._notices import Notices
    from lexigram.workflow.durable.worker.steps import StepContext, StepRunner

logger = get_logger(__name__)

_AGAIN = Backoff(first=0.05, cap=5.0)
_BATCH = 200  # ends in one transaction
_CLEANUP_SECONDS = 10.0  # for claims under way
_LOOK_SECONDS = 1.0  # between looks for handlers that came later, while runs wait for some


class Pools:
    """All pools of a worker. ``is_ending`` says whether the tasks of the worker are to end.

    ``look_for_events`` is called when a step may have made events that handlers of its plan want.
    """

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        pools: Sequence[Pool],
        kinds: StepKinds,
        runner: StepRunner,
        heartbeat: LeaseHeartbeat,
        metrics: Metrics,
        notices: Notices | None,
        *,
        is_ending: Callable[[], bool],
        look_for_events: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._pools = pools
        self._kinds = kinds
        self._runner = runner
        self._heartbeat = heartbeat
        self._metrics = metrics
        self._notices = notices
        self._is_ending = is_ending
        self._look_for_events = look_for_events
        self._reports = Coalescer[End, Ended | None](engine.store.finish, limit=_BATCH)
        self.isolation = Isolation(self.wake)
        # claimed and not reported, by run and lease
        self.runs: dict[tuple[int, str], HeldRun] = {}
        # nothing more is claimed
        self.stopping = asyncio.Event()
        # no run is held
        self.idle = asyncio.Event()
        # a plan with lifecycle handlers came by: news may be of their events
        self.hears_plans = False

    def open(self) -> None:
        """Before ``start``, also after an end."""
        self.stopping, self.idle = asyncio.Event(), asyncio.Event()
        self.idle.set()
        for pool in self._pools:
            pool.closed.clear()

    def start(self, start: Callable[..., None]) -> None:
        """``start`` takes the name of a task, its function and the arguments."""
        for pool in self._pools:
            for _ in range(pool.size):
                start(f"consume {pool.name}", self._consume, pool)
            start(f"claim {pool.name}", self._claim_on, pool)

    def wake(self) -> None:
        """There may be more to claim."""
        for pool in self._pools:
            pool.changed.set()

    async def close(self) -> None:
        """After ``stopping`` is set: end the claiming, give back what has not begun."""
        for pool in self._pools:
            pool.changed.set()
            # A claim under way is waited for: cut off, it would leave leases without a holder.
            with anyio.move_on_after(_CLEANUP_SECONDS):
                await pool.closed.wait()
            while not pool.waiting.empty():
                await self._give_back(pool.waiting.get_nowait())

    def interrupt(self) -> None:
        """Ask the handlers that run to stop."""
        for run in list(self.runs.values()):
            run.stop(StopReason.STOPPED)

    async def give_back(self) -> None:
        """Release all that is held."""
        for run in list(self.runs.values()):
            await self._give_back(run)

    def note(self, beats: Sequence[Beat]) -> None:
        """Act on the results of a heartbeat."""
        for beat in beats:
            run = self.runs.get((beat.run_id, beat.lease))
            if run is None or run.is_reported:
                continue
            if not beat.is_kept:
                run.stop(StopReason.LOST)
            elif beat.wanted == "cancel":
                run.stop(StopReason.CANCELLED)

    async def beat(self, run: HeldRun) -> bool:
        """Renew the lease of a run now; False when it is lost."""
        [beat] = await self._engine.store.heartbeat(
            self._worker_id,
            [(run.claim.run_id, run.claim.lease)],
            self._heartbeat.lacks,
            self._heartbeat.lacks_handlers,
        )
        self.note([beat])
        return beat.is_kept

    # --- claiming -------------------------------------------------------------------------------

    async def _claim_on(self, pool: Pool) -> None:
        failures = 0
        while not self.stopping.is_set():
            pool.changed.clear()
            free = 0 if self.isolation.is_wanted else pool.size - pool.busy
            got = 0
            if free > 0:
                try:
                    got = await self._claim(pool, free)
                    failures = 0
                    if self._kinds.wants_look(pool.kinds_there) and await self._look(pool):
                        continue
                except DurableError as error:
                    if is_file_lost(error):
                        raise
                    failures += 1
                    self._metrics.incr("claim_error", pool=pool.name)
                    logger.warning("cannot claim", worker=self._worker_id, error=str(error))
                    with anyio.move_on_after(_AGAIN.delay(failures)):
                        await self.stopping.wait()
                    continue
            if got < free or not free:
                await pool.changed.wait()
        pool.closed.set()

    async def _look(self, pool: Pool) -> bool:
        """There may be steps that it could do and does not claim yet; True when there are."""
        if not await self._kinds.look(pool.kinds_there):
            return False
        are_more = False
        for one in self._pools:
            kinds = [kind.id for kind in self._kinds.here if one.selection.takes(kind.queue)]
            if kinds != one.selection.kinds:
                one.selection = evolve(one.selection, kinds=kinds)
                one.changed.set()
                are_more = True
        lacks = self._kinds.lacking(self._has_pool)
        if lacks != self._heartbeat.lacks:
            self._heartbeat.lacks = lacks
            self._heartbeat.wake()
        return are_more

    def _has_pool(self, queue: str) -> bool:
        return any(pool.selection.takes(queue) for pool in self._pools)

    async def _claim(self, pool: Pool, free: int) -> int:
        self._metrics.incr("claim_attempts", pool=pool.name)
        began = clock.monotonic()
        claimed = await self._engine.store.claim(
            self._worker_id, lease_token(), pool.selection, free
        )
        duration, pool.kinds_there = clock.monotonic() - began, claimed.kinds
        for claim in claimed.claims:
            run = HeldRun(claim, pool)
            self.runs[run.key] = run
            self._heartbeat.held[run.key] = None
            pool.busy += 1
            self.idle.clear()
            pool.waiting.put_nowait(run)
        # Last: when a metric cannot be recorded, the claimed steps run all the same.
        self._metrics.observe("claim_duration", duration, pool=pool.name)
        if claimed.lost_races:
            self._metrics.incr("claim_lost_race", claimed.lost_races, pool=pool.name)
        if claimed.claims:
            self._metrics.incr("claim_success", len(claimed.claims), pool=pool.name)
        else:
            self._metrics.incr("claim_idle", pool=pool.name)
        return len(claimed.claims)

    # --- one step -------------------------------------------------------------------------------

    async def _consume(self, pool: Pool) -> None:
        """One consumer: does one claimed run after the other."""
        while True:
            run = await pool.waiting.get()
            try:
                with run.scope:
                    while await self._step(run):
                        pass
                if not run.is_reported:  # its handler was interrupted, or ignored the stop
                    await self._report(
                        run, run.end or make_end(run.claim, EndKind.RELEASED, "released")
                    )
            except BaseException:
                if not self._is_ending():  # a defect of ours: the step must not wait for its end
                    with anyio.CancelScope(shield=True):
                        await self._give_back(run)
                raise
            self._forget(run)

    async def _step(self, run: HeldRun) -> bool:
        """Do the step that was claimed; True when the lease is kept for the next one."""
        if run.why is not None:  # stopped while the end of the step before was written
            return False
        claim = run.claim
        # One loss may have any cause; who was begun again and lost again is a suspect.
        alone = claim.lost > 0 and (claim.begun > 0 or self._engine.terms.max_lost == 1)
        await self.isolation.enter(alone=alone)
        try:
            if claim.lost and not await self._begin(claim, alone=alone):
                return False
            return await self._do(run)
        finally:
            self.isolation.leave(alone=alone)

    async def _begin(self, claim: Claim, *, alone: bool) -> bool:
        """Count that a step begins whose worker ended before; False: it must not begin."""
        logger.warning(
            "a step begins again after its worker ended",
            run=claim.run_id,
            step=claim.step_no,
            lost=claim.lost,
            begun=claim.begun + 1,
            alone=alone,
        )
        try:
            return await self._engine.begin_step(claim.run_id, claim.lease)
        except DurableError as error:
            logger.warning("cannot begin a step", run=claim.run_id, error=str(error))
            return False

    async def _do(self, run: HeldRun) -> bool:
        claim = run.claim
        plan = self._engine.plans.get(claim.plan_id)
        if plan is None:
            try:
                plan = await self._engine.plan(claim.plan_id)
            except DurableError as error:
                logger.warning("cannot read a plan", run=claim.run_id, error=str(error))
                return False
        step = plan.steps[claim.step_no - 1]
        if not self._runner.has(step.handler):
            self._kinds.forget(step.requires)
            logger.warning("a step is left to other workers", step=step.name, handler=step.handler)
            return False
        if plan.lifecycle:
            self.hears_plans = True
            self._look_for_events()
        if self._notices is not None:
            await self._notices.publish_start(claim, plan)
        began = clock.monotonic()
        end = await self._runner.attempt(run, plan, step)
        if run.scope.cancel_called:
            run.end = end  # reported outside of the scope
            return False
        self._metrics.observe("step_duration", clock.monotonic() - began, pool=run.pool.name)
        ended = await self._report(run, end)
        if plan.lifecycle:
            self._look_for_events()
        if self._notices is not None and ended is not None:
            await self._notices.publish_end(claim, plan, end, ended)
        if ended is None or ended.state is not State.RUNNING:
            return False
        run.again(claim.at(ended, plan.steps[ended.step_no - 1]))
        return True

    async def _report(self, run: HeldRun, end: End) -> Ended | None:
        """Write the end; a step whose end the store keeps refusing runs again."""
        run.is_reported = True
        try:
            ended = await persist(lambda: self._reports.add(end), self._engine.terms.lease)
        except DurableError as error:
            logger.error(  # noqa: TRY400 - the trace is of no use here
                "the end of a step could not be written; it will run again",
                run=end.run_id,
                error=str(error),
            )
            return None
        if ended is None or ended.state is not State.RUNNING:
            self._forget(run)
        self._count(run, end, ended)
        return ended

    def _count(self, run: HeldRun, end: End, ended: Ended | None) -> None:
        pool = run.pool.name
        if ended is None:
            phase = "complete" if end.kind is EndKind.COMPLETED else str(end.kind)
            self._metrics.incr("lease_lost", phase=phase)
            logger.warning(
                "the lease of a step was lost; what it did here does not count",
                run=end.run_id,
                step=end.step_no,
            )
        elif end.kind is EndKind.COMPLETED:
            self._metrics.incr("step_completed", pool=pool)
        elif end.kind in (EndKind.RELEASED, EndKind.PARKED):
            self._metrics.incr("step_released", pool=pool)
        elif end.kind is EndKind.FAILED or ended.state is State.FAILED:
            self._metrics.incr("step_failed", pool=pool)
            logger.error(
                "a step failed permanently", run=end.run_id, step=end.step_no, error=end.message
            )
        else:
            self._metrics.incr("step_error", pool=pool)

    def _forget(self, run: HeldRun) -> None:
        """The slot is free again."""
        if self.runs.pop(run.key, None) is not None:
            self._heartbeat.held.pop(run.key, None)
            run.pool.busy -= 1
            run.pool.changed.set()
        if not self.runs:
            self.idle.set()

    async def _give_back(self, run: HeldRun) -> None:
        end = make_end(run.claim, EndKind.RELEASED, "released")
        try:
            if (await self._engine.store.finish([end]))[0] is not None:
                self._metrics.incr("step_released", pool=run.pool.name)
        except DurableError as error:
            logger.warning("a step was not released", run=run.claim.run_id, error=str(error))
        self._forget(run)


class Pool:
    """Consumers of the same types."""

    def __init__(self, name: str, size: int, selection: Selection) -> None:
        self.name = name
        self.size = size
        # with the kinds of steps that it claims
        self.selection = selection
        # how many kinds the database had at the last claim
        self.kinds_there = 0
        self.busy = 0
        self.waiting: asyncio.Queue[HeldRun] = asyncio.Queue()
        # there may be work, or a free consumer
        self.changed = asyncio.Event()
        # no more claims will come
        self.closed = asyncio.Event()


@define(eq=False)
class HeldRun:
    """A claimed run on its way through a pool."""

    claim: Claim
    pool: Pool
    key: tuple[int, str] = field(
        default=Factory(lambda run: (run.claim.run_id, run.claim.lease), takes_self=True),
        init=False,
    )
    # around all of its steps
    scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    why: StopReason | None = field(default=None, init=False)
    context: StepContext | None = field(default=None, init=False)
    # of a handler that continued after it was asked to stop
    end: End | None = field(default=None, init=False)
    is_reported: bool = field(default=False, init=False)
    # steps in a row under this lease
    taken: int = field(default=1, init=False)

    def again(self, claim: Claim) -> None:
        """The next step under the same lease."""
        self.claim, self.context, self.is_reported = claim, None, False
        self.taken += 1

    def stop(self, why: StopReason) -> None:
        """Cancel the handler, but not the report of its end; the first reason counts."""
        if self.why is None:
            self.why = why
            if self.context is not None:
                self.context.cancelled = why is StopReason.CANCELLED
            if not self.is_reported:
                self.scope.cancel()


class StopReason(Enum):
    """Why a handler was asked to stop."""

    CANCELLED = auto()  # the run was cancelled
    LOST = auto()  # the lease or the lock is over
    STOPPED = auto()  # the worker stops


class StepKinds:
    """The kinds in the database, and those for which ``handlers`` has a function.

    A handler is looked up when a run waits for it, so that nothing unused is imported. A function
    with an attribute ``serves`` decides itself which requirements it meets.
    """

    def __init__(self, engine: DurableEngine, handlers: Mapping[str, Callable[..., Any]]) -> None:
        self._engine = engine
        self._handlers = handlers
        self._all: dict[int, StepKind] = {}
        # what steps require: whether it is here
        self._known: dict[str, bool] = {}
        self._lock = asyncio.Lock()
        self._next_look = 0.0
        self._is_loaded = False

    @property
    def count(self) -> int:
        """How many kinds it has seen."""
        return len(self._all) if self._is_loaded else -1

    @property
    def here(self) -> Sequence[StepKind]:
        """Those whose handler is here."""
        return [kind for kind in self._all.values() if self._known.get(kind.handler)]

    def lacking(self, takes: Callable[[str], bool]) -> Sequence[int]:
        """Those whose handler is not here, and those of pools that ``takes`` refuses."""
        return [
            kind.id
            for kind in self._all.values()
            if self._known.get(kind.handler) is False or not takes(kind.queue)
        ]

    def knows(self, required: str) -> bool:
        """Whether what a step requires is known to be here."""
        return self._known.get(required, False)

    def forget(self, required: str) -> None:
        """The handler is not here after all."""
        self._known[required] = False
        self._next_look = clock.monotonic() + _LOOK_SECONDS

    def wants_look(self, count: int) -> bool:
        """Whether there may be more: the database has another number of kinds, or some are unknown."""
        if count != self.count:
            return True
        is_open = any(not self._known.get(kind.handler) for kind in self._all.values())
        return is_open and clock.monotonic() >= self._next_look

    async def look(self, count: int) -> bool:
        """Look again, unless another task just has; True when it did."""
        async with self._lock:
            if not self.wants_look(count):
                return False
            kinds = await self._engine.store.kinds()
            self._all = {kind.id: kind for kind in kinds}
            waiting = {kind.handler for kind in kinds if kind.waits_since is not None}
            wanted = sorted(name for name in waiting if not self._known.get(name))
            if wanted:  # a handler may have to be imported
                self._known |= await anyio.to_thread.run_sync(self._check_here, wanted)
            self._next_look, self._is_loaded = clock.monotonic() + _LOOK_SECONDS, True
            return True

    def _check_here(self, required: Collection[str]) -> dict[str, bool]:
        return {name: self._is_here(name) for name in required}

    def _is_here(self, required: str) -> bool:
        """In a thread."""
        function = self._handlers.get(required)
        if function is not None:
            return True
        name, _, of = required.partition(":")
        serves = getattr(self._handlers.get(name), "serves", None) if of else None
        is_here = serves is not None and bool(serves(of))
        if not is_here and required not in self._known:
            logger.warning("no handler %s here: its steps are left to other workers", required)
        return is_here


class Isolation:
    """Handlers run side by side, a suspect alone: ``await enter(alone=...)``, ``leave(alone=...)``.

    A suspect is a step or event whose process ended while its handler ran. What runs beside it
    when that happens again would be suspected with it. A suspect that waits comes before those that have not begun. ``on_end`` is called when the last
    suspect has left.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        # handlers that run side by side
        self.together = 0
        # that wait to run alone, or do
        self._suspects = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """True while a suspect runs or waits: nothing else may begin."""
        return self._suspects > 0

    async def enter(self, *, alone: bool) -> None:
        """Wait until the handler may begin."""
        if alone:
            await self._enter_alone()
            return
        while self._suspects:
            await self._changed.wait()
        self.together += 1

    def leave(self, *, alone: bool) -> None:
        """The handler has ended."""
        if alone:
            self._turn.release()
            self._end_suspect()
        else:
            self.together -= 1
        self._notify()

    async def _enter_alone(self) -> None:
        self._suspects += 1
        try:
            await self._turn.acquire()
            try:
                while self.together:
                    await self._changed.wait()
            except BaseException:
                self._turn.release()
                raise
        except BaseException:
            self._end_suspect()
            self._notify()
            raise

    def _end_suspect(self) -> None:
        self._suspects -= 1
        if not self._suspects:
            self._on_end()

    def _notify(self) -> None:
        # Each waiter looks again; those that come later wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()


class Metrics(Protocol):
    """Takes the statistics of a worker."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...


class LoggingMetrics:
    """Statistics as lines of the log, at DEBUG."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, value=value, labels=labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, seconds=value, labels=labels)
