"""A worker: pools that claim steps, call their handlers and write how they ended."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from attrs import evolve

from lexigram import clock
from lexigram.concurrency import TaskSupervisor, as_failure
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.limits import check_name
from lexigram.leasing import Backoff, Coalescer, lease_token
from lexigram.observability import get_logger
from lexigram.sql.errors import is_file_lost
from lexigram.sql.leasing import WakeUp
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError, PlanInvalidError
from lexigram.workflow.durable.models import WorkflowRun
from lexigram.workflow.durable.plan import LifeCycleEvent
from lexigram.workflow.durable.store.base import persist
from lexigram.workflow.durable.store.records import (
    CHANNEL,
    CHANNEL_WANTED,
    Beat,
    Claim,
    End,
    Ended,
    EndKind,
    State,
)
from lexigram.workflow.durable.worker._duties import Duties, live
from lexigram.workflow.durable.worker._heartbeat import LeaseHeartbeat
from lexigram.workflow.durable.worker._notices import Notices
from lexigram.workflow.durable.worker.events import Deliveries, Listener, Publish
from lexigram.workflow.durable.worker.pools import (
    HeldRun,
    Isolation,
    LoggingMetrics,
    Metrics,
    Pool,
    StepKinds,
    StopReason,
    WorkerConfig,
)
from lexigram.workflow.durable.worker.steps import (
    ArtifactBinder,
    Progress,
    Services,
    StepRunner,
    end_of,
)

logger = get_logger(__name__)

_BATCH = 200  # ends in one transaction
_CLEANUP_SECONDS = 10.0  # for handlers that were asked to stop, and their last reports
_BEATS = 5  # heartbeats per lease: some may fail before it is lost
_AGAIN = Backoff(first=0.05, cap=5.0)
RESTART = Backoff(first=0.5, cap=30.0)  # of a task of the worker that failed
GIVE_UP_AFTER = 5  # failures in a row: another process may do better


class Worker:
    """``await worker.start()`` … ``await worker.stop()``; any number in a process.

    ``handlers`` has the functions by the names that plans use. ``documents`` loads what handlers
    get as ``doc``; without it they get None. ``artifacts`` binds ``ctx.artifact`` and decides
    which steps are skipped because their artifacts exist. ``listeners`` are called for the start
    and the end of each group, by one worker of all; an error is retried. ``publish`` is called at
    once, and at most once, for events of runs and steps in this process; it gets a function
    that makes the notice. ``upkeep`` is called once a day by one worker of all, for further
    maintenance. The ``id`` is generated, with ``name`` as its prefix.
    """

    def __init__(
        self,
        config: WorkerConfig,
        engine: DurableEngine,
        handlers: Mapping[str, Callable[..., Any]],
        *,
        services: Services | None = None,
        documents: Callable[[WorkflowRun], Awaitable[Any]] | None = None,
        artifacts: ArtifactBinder | None = None,
        listeners: Mapping[LifeCycleEvent, Listener] | None = None,
        publish: Publish | None = None,
        upkeep: Callable[[], Awaitable[Any]] | None = None,
        metrics: Metrics | None = None,
        progress: ProgressTrackerProtocol | None = None,
        name: str | None = None,
    ) -> None:
        interval = config.checkin_interval or engine.terms.lease / _BEATS
        if interval > engine.terms.lease / 2:
            raise PlanInvalidError(
                f"a heartbeat every {interval:g} s cannot keep leases of {engine.terms.lease:g} s",
                hint="make checkin_interval at most a fifth of the lease",
            )
        self.id = lease_token() if name is None else f"{name}-{lease_token()}"
        if name is not None:
            check_name("name", name)
            check_name("name", self.id)
        self.config = config
        self._engine = engine
        self._metrics: Metrics = metrics or LoggingMetrics()
        self._notices = None if publish is None else Notices(publish, self.id)
        self._reports = Coalescer[End, Ended | None](engine.store.finish, limit=_BATCH)
        self._heartbeat = LeaseHeartbeat(engine, self.id, interval, self._note, self._note_events)
        self._isolation = Isolation(self._go_on_claiming)
        self._supervisor = TaskSupervisor(
            f"worker {self.id}",
            delay=RESTART.delay,
            host=lambda: self._owner,
            give_up_after=GIVE_UP_AFTER,
            is_final=is_file_lost,
        )
        self._kinds = StepKinds(engine, handlers)
        self._runner = StepRunner(
            engine,
            self.id,
            self._kinds,
            handlers,
            services=services,
            documents=documents,
            artifacts=artifacts,
            progress=progress,
            failure_of=self._supervisor.failure_of,
            is_stopping=lambda: self._stopping,
            beat=self._beat,
        )
        self._duties = Duties(
            engine,
            self.id,
            self._metrics,
            retention=config.retention,
            upkeep=upkeep,
            on_promoted=self._go_on_claiming,
        )
        self._deliveries = Deliveries(
            engine,
            self.id,
            self._heartbeat,
            self._runner.handler,
            dict(listeners or {}),
            config.poll_interval,
            self._supervisor,
            self._isolation,
            config.listener_timeout,
        )
        self._runs: dict[tuple[int, str], HeldRun] = {}
        self._pools = [
            Pool(name, size, evolve(config.selection(name), kinds=()))
            for name, size in config.consumers.items()
        ]
        self._stopping = False
        self._timeout = 30.0
        self._stop_wanted = asyncio.Event()
        self._idle = asyncio.Event()
        # a plan with lifecycle handlers came by: news may be of their events
        self._hears_plans = False
        self._owner: asyncio.Task[None] | None = None
        # of the group with all tasks, once it is there
        self._scope: anyio.CancelScope | None = None
        self._failure: BaseException | None = None

    # --- for callers ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Check in and begin to claim. A second call does nothing."""
        if self.is_alive:
            return
        self._stopping, self._failure = False, None
        self._stop_wanted, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        for pool in self._pools:
            pool.closed.clear()
        await self._heartbeat.start()
        live[self.id] = self._heartbeat.held
        started = asyncio.Event()
        # An empty context: steps must not inherit a transaction of the caller of ``start``.
        self._owner = asyncio.create_task(
            self._work(started), name=f"worker-{self.id}", context=contextvars.Context()
        )
        waiting = asyncio.create_task(started.wait())
        try:
            await asyncio.wait({waiting, self._owner}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not started.is_set() and self._failure is not None:
            raise self._failure

    async def stop(self, timeout: float = 30.0) -> None:
        """Claim nothing more, wait up to ``timeout`` for running steps, release the rest."""
        owner = self._owner
        if owner is None:
            return
        self._timeout, self._stopping = timeout, True
        self._stop_wanted.set()
        try:
            await asyncio.wait({owner})
        except asyncio.CancelledError:
            owner.cancel()
            raise
        self._owner = None

    async def ended(self) -> None:
        """Wait until it claims no more, by ``stop`` or against its will; see ``failure``."""
        if self._owner is not None:
            await asyncio.wait({self._owner})

    @property
    def is_alive(self) -> bool:
        """True while it claims."""
        return self._owner is not None and not self._owner.done()

    @property
    def failure(self) -> BaseException | None:
        """What ended it against its will."""
        return self._failure

    @property
    def failed_tasks(self) -> Mapping[str, str]:
        """Its tasks that failed within the last minute and were restarted, with the error."""
        return self._supervisor.failed

    @property
    def blocked(self) -> float | None:
        """Seconds for which its event loop did not run, when that was long and a moment ago."""
        return self._heartbeat.blocked

    @property
    def busy(self) -> int:
        """Steps that it holds now."""
        return len(self._runs)

    @property
    def progress(self) -> Mapping[int, Progress]:
        """The last progress of running steps, by the id of the step."""
        contexts = [run.context for run in self._runs.values()]
        return {
            context.run_step.id: context.reported
            for context in contexts
            if context is not None and context.reported is not None
        }

    # --- the loops ------------------------------------------------------------------------------

    async def _work(self, started: asyncio.Event) -> None:
        database = self._engine.database
        wakeup = WakeUp(database, CHANNEL, self.config.poll_interval)
        try:
            async with wakeup.waiting() as news, anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                for pool in self._pools:
                    for _ in range(pool.size):
                        self._start(tasks, f"consume {pool.name}", self._consume, pool)
                    self._start(tasks, f"claim {pool.name}", self._claim_on, pool)
                self._duties.start(partial(self._start, tasks))
                self._start(tasks, "wishes", self._hear_wishes)
                self._deliveries.start(tasks)
                self._start(tasks, "news", self._spread, news)
                self._start(tasks, "heartbeat", self._keep_beating)
                started.set()
                await self._stop_wanted.wait()
                await self._let_running_end(tasks)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            # Reported by health, and by ``start`` when it was too early.
            self._failure = _only(failure)
            logger.exception("the worker failed and claims no more", worker=self.id)
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._leave()

    def _start(
        self, tasks: TaskGroup, name: str, work: Callable[..., Awaitable[None]], *arguments: Any
    ) -> None:
        tasks.start_soon(self._supervisor.run, name, work, *arguments, name=f"{self.id}.{name}")

    @property
    def _is_ending(self) -> bool:
        """True when its tasks are to end: stopped, or cancelled with its event loop."""
        owner, scope = self._owner, self._scope
        return (owner is None or owner.cancelling() > 0 or scope is None) or scope.cancel_called

    async def _keep_beating(self) -> None:
        """Start the heartbeat anew when it has ended; raises what ends it."""
        failures = 0
        while not self._heartbeat.is_beating:
            try:
                await self._heartbeat.start()
            except (DurableError, DatabaseError) as error:
                failures += 1
                logger.warning("cannot renew leases", worker=self.id, error=str(error))
                await anyio.sleep(_AGAIN.delay(failures))
        await self._heartbeat.wait_for_failure()

    async def _let_running_end(self, tasks: TaskGroup) -> None:
        """First wait, then interrupt: interrupted steps are released."""
        for pool in self._pools:
            pool.changed.set()
            # A claim under way is waited for: cut off, it would leave leases without a holder.
            with anyio.move_on_after(_CLEANUP_SECONDS):
                await pool.closed.wait()
            while not pool.waiting.empty():
                await self._give_back(pool.waiting.get_nowait())
        self._deliveries.close()
        with anyio.move_on_after(self._timeout):
            await self._idle.wait()
            await self._deliveries.idle.wait()
        for run in list(self._runs.values()):
            run.stop(StopReason.STOPPED)
        with anyio.move_on_after(_CLEANUP_SECONDS):
            await self._idle.wait()
        tasks.cancel_scope.cancel()

    async def _leave(self) -> None:
        for run in list(self._runs.values()):
            await self._give_back(run)
        await self._heartbeat.stop()
        live.pop(self.id, None)
        try:
            await self._engine.store.check_out(self.id)
        except DurableError as error:
            logger.warning(
                "worker did not deregister; its leases will expire",
                worker=self.id,
                error=str(error),
            )

    async def _give_back(self, run: HeldRun) -> None:
        end = _make_release(run.claim)
        try:
            if (await self._engine.store.finish([end]))[0] is not None:
                self._metrics.incr("step_released", pool=run.pool.name)
        except DurableError as error:
            logger.warning("a step was not released", run=run.claim.run_id, error=str(error))
        self._forget(run)

    async def _spread(self, news: Any) -> None:
        """One listener for all pools."""
        while True:
            if await news.wait():
                self._duties.wake()
                if self._hears_plans:
                    self._deliveries.look()
            for pool in self._pools:
                pool.changed.set()

    async def _hear_wishes(self) -> None:
        """Beat at once after a cancel or pause, to learn which runs it concerns."""
        async with WakeUp(
            self._engine.database, CHANNEL_WANTED, self.config.poll_interval
        ).waiting() as news:
            while True:
                if await news.wait() or self._engine.database.dialect == "sqlite":
                    self._heartbeat.wake()

    async def _claim_on(self, pool: Pool) -> None:
        failures = 0
        while not self._stopping:
            pool.changed.clear()
            free = 0 if self._isolation.is_wanted else pool.size - pool.busy
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
                    logger.warning("cannot claim", worker=self.id, error=str(error))
                    with anyio.move_on_after(_AGAIN.delay(failures)):
                        await self._stop_wanted.wait()
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

    def _go_on_claiming(self) -> None:
        for pool in self._pools:
            pool.changed.set()

    async def _claim(self, pool: Pool, free: int) -> int:
        began = clock.monotonic()
        self._metrics.incr("claim_attempts", pool=pool.name)
        claimed = await self._engine.store.claim(self.id, lease_token(), pool.selection, free)
        duration, pool.kinds_there = clock.monotonic() - began, claimed.kinds
        for claim in claimed.claims:
            run = HeldRun(claim, pool)
            self._runs[run.key] = run
            self._heartbeat.held[run.key] = None
            pool.busy += 1
            self._idle.clear()
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

    def _note(self, beats: Sequence[Beat]) -> None:
        """In the worker's loop: act on the results of a heartbeat."""
        for beat in beats:
            run = self._runs.get((beat.run_id, beat.lease))
            if run is None or run.is_reported:
                continue
            if not beat.is_kept:
                run.stop(StopReason.LOST)
            elif beat.wanted == "cancel":
                run.stop(StopReason.CANCELLED)

    def _note_events(self, lost: Sequence[tuple[int, str]]) -> None:
        self._deliveries.abandon(lost)

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
                    await self._report(run, run.end or _make_release(run.claim))
            except BaseException:
                if not self._is_ending:  # a defect of ours: the step must not wait for its end
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
        await self._isolation.enter(alone=alone)
        try:
            if claim.lost and not await self._begin(claim, alone=alone):
                return False
            return await self._do(run)
        finally:
            self._isolation.leave(alone=alone)

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
        plan = self._engine.plan_at_hand(claim.plan_id)
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
            self._hears_plans = True
            self._deliveries.look()
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
            self._deliveries.look()
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
        if self._runs.pop(run.key, None) is not None:
            self._heartbeat.held.pop(run.key, None)
            run.pool.busy -= 1
            run.pool.changed.set()
        if not self._runs:
            self._idle.set()

    async def _beat(self, run: HeldRun) -> bool:
        [beat] = await self._engine.store.heartbeat(self.id, [(run.claim.run_id, run.claim.lease)])
        self._note([beat])
        return beat.is_kept


def _only(error: Exception) -> Exception:
    """The one error of groups that have just one."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group


def _make_release(claim: Claim) -> End:
    return end_of(claim, EndKind.RELEASED, "released")
