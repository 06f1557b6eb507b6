"""A worker of durable runs: its tasks, its duties for all workers, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from attrs import evolve, field, frozen
from attrs.validators import optional

from lexigram.concurrency import TaskSupervisor, as_failure
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.limits import (
    check_consumers,
    check_name,
    check_seconds,
    check_timeout,
)
from lexigram.leasing import Backoff, Subscription, lease_token
from lexigram.observability import get_logger
from lexigram.sql.errors import is_file_lost
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError, PlanInvalidError
from lexigram.workflow.durable.models import WorkflowRun
from lexigram.workflow.durable.plan import LifeCycleEvent, error_text, validate_with
from lexigram.workflow.durable.store.records import CHANNEL, CHANNEL_WANTED, Beat, Selection
from lexigram.workflow.durable.worker._heartbeat import LeaseHeartbeat
from lexigram.workflow.durable.worker._notices import Notices
from lexigram.workflow.durable.worker.events import Deliveries, Listener, Publish
from lexigram.workflow.durable.worker.pools import (
    HeldRun,
    LoggingMetrics,
    Metrics,
    Pool,
    Pools,
    StepKinds,
)
from lexigram.workflow.durable.worker.steps import (
    ArtifactBinder,
    Progress,
    Services,
    StepRunner,
)

logger = get_logger(__name__)

CATCH_ALL = "*"
_CLEANUP_SECONDS = 10.0  # for handlers that were asked to stop, and their last reports
_BEATS = 5  # heartbeats per lease: some may fail before it is lost
_AGAIN = Backoff(first=0.05, cap=5.0)
RESTART = Backoff(first=0.5, cap=30.0)  # of a task of the worker that failed
GIVE_UP_AFTER = 5  # failures in a row: another process may do better
_TEND_SECONDS = 5.0  # at least this often, even when nothing is known to be due
_TEND_GAP = 0.1  # and not more often than this
_SWEEP_SECONDS = 60.0  # locks that are over, groups that were miscounted; one worker of all
_PRUNE_SECONDS = 600.0  # one worker of all
_UPKEEP_SECONDS = 24 * 3600.0

# Workers of this process that run, and what they hold: none of it is reaped by another one here.
_live: dict[str, Mapping[tuple[int, str], None]] = {}


@frozen(kw_only=True)
class WorkerConfig:
    """How many steps of which type at once; ``"*"`` takes every type that no pool names."""

    consumers: Mapping[str, int] = field(factory=lambda: {CATCH_ALL: 5})
    # poll interval of an idle pool in seconds; notifications wake it earlier
    poll_interval: float = field(default=1.0, validator=validate_with(check_timeout))
    # seconds between heartbeats; None is a fifth of the lease
    checkin_interval: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )
    # seconds that ended groups are kept; 0 keeps them for ever
    retention: float = field(default=30 * 24 * 3600.0, validator=validate_with(check_seconds))
    # seconds that a call of a listener may take; None is no limit
    listener_timeout: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )

    def __attrs_post_init__(self) -> None:
        if not self.consumers:
            raise PlanInvalidError(
                "consumers names no pool", hint='give types and sizes: {"parse": 3, "*": 5}'
            )
        for pool, size in self.consumers.items():
            check_name("consumers", pool)
            check_consumers("consumers", size)

    def selection(self, pool: str) -> Selection:
        """The step types of a pool."""
        if pool != CATCH_ALL:
            return Selection(types=(pool,))
        return Selection(types=tuple(n for n in self.consumers if n != CATCH_ALL), excluded=True)


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
        self._heartbeat = LeaseHeartbeat(engine, self.id, interval, self._note, self._note_events)
        self._supervisor = TaskSupervisor(
            f"worker {self.id}",
            delay=RESTART.delay,
            host=lambda: self._owner,
            give_up_after=GIVE_UP_AFTER,
            is_final=is_file_lost,
        )
        kinds = StepKinds(engine, handlers)
        self._runner = StepRunner(
            engine,
            self.id,
            kinds,
            handlers,
            services=services,
            documents=documents,
            artifacts=artifacts,
            progress=progress,
            failure_of=self._supervisor.failure_of,
            is_stopping=self._is_stopping,
            beat=self._beat,
        )
        metrics = metrics or LoggingMetrics()
        self._pools = Pools(
            engine,
            self.id,
            [
                Pool(name, size, evolve(config.selection(name), kinds=()))
                for name, size in config.consumers.items()
            ],
            kinds,
            self._runner,
            self._heartbeat,
            metrics,
            None if publish is None else Notices(publish, self.id),
            is_ending=self._is_ending,
            look_for_events=self._look_for_events,
        )
        self._duties = Duties(
            engine,
            self.id,
            metrics,
            retention=config.retention,
            upkeep=upkeep,
            on_promoted=self._pools.wake,
        )
        self._deliveries = Deliveries(
            engine,
            self.id,
            self._heartbeat,
            self._runner.handler,
            dict(listeners or {}),
            config.poll_interval,
            self._supervisor,
            self._pools.isolation,
            config.listener_timeout,
        )
        self._timeout = 30.0
        self._owner: asyncio.Task[None] | None = None
        # of the group with all tasks, once it is there
        self._scope: anyio.CancelScope | None = None
        self._failure: BaseException | None = None

    # --- for callers ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Check in and begin to claim. A second call does nothing."""
        if self.is_alive:
            return
        self._failure = None
        self._pools.open()
        await self._heartbeat.start()
        _live[self.id] = self._heartbeat.held
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
        self._timeout = timeout
        self._pools.stopping.set()
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
        return len(self._pools.runs)

    @property
    def progress(self) -> Mapping[int, Progress]:
        """The last progress of running steps, by the id of the step."""
        contexts = [run.context for run in self._pools.runs.values()]
        return {
            context.run_step.id: context.reported
            for context in contexts
            if context is not None and context.reported is not None
        }

    # --- the loops ------------------------------------------------------------------------------

    async def _work(self, started: asyncio.Event) -> None:
        database = self._engine.database
        try:
            async with database.listen(CHANNEL) as news, anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                self._pools.start(partial(self._start, tasks))
                self._duties.start(partial(self._start, tasks))
                self._start(tasks, "wishes", self._hear_wishes)
                self._deliveries.start(tasks)
                self._start(tasks, "news", self._spread, news)
                self._start(tasks, "heartbeat", self._keep_beating)
                started.set()
                await self._pools.stopping.wait()
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
        await self._pools.close()
        self._deliveries.close()
        with anyio.move_on_after(self._timeout):
            await self._pools.idle.wait()
            await self._deliveries.idle.wait()
        self._pools.interrupt()
        with anyio.move_on_after(_CLEANUP_SECONDS):
            await self._pools.idle.wait()
        tasks.cancel_scope.cancel()

    async def _leave(self) -> None:
        await self._pools.give_back()
        await self._heartbeat.stop()
        _live.pop(self.id, None)
        try:
            await self._engine.store.check_out(self.id)
        except DurableError as error:
            logger.warning(
                "worker did not deregister; its leases will expire",
                worker=self.id,
                error=str(error),
            )

    async def _spread(self, news: Subscription) -> None:
        """One listener for all pools."""
        while True:
            if await news.wait(self.config.poll_interval) is not None:
                self._duties.news.set()
                if self._pools.hears_plans:
                    self._deliveries.look()
            self._pools.wake()

    async def _hear_wishes(self) -> None:
        """Beat at once after a cancel or pause, to learn which runs it concerns."""
        database = self._engine.database
        async with database.listen(CHANNEL_WANTED) as news:
            while True:
                found = await news.wait(self.config.poll_interval)
                if found is not None or database.dialect == "sqlite":
                    self._heartbeat.wake()

    # --- what the parts need of each other ------------------------------------------------------

    def _note(self, beats: Sequence[Beat]) -> None:
        self._pools.note(beats)

    def _note_events(self, lost: Sequence[tuple[int, str]]) -> None:
        self._deliveries.abandon(lost)

    async def _beat(self, run: HeldRun) -> bool:
        return await self._pools.beat(run)

    def _is_stopping(self) -> bool:
        return self._pools.stopping.is_set()

    def _look_for_events(self) -> None:
        self._deliveries.look()


class Duties:
    """Reap expired leases, promote due runs, remove old groups: what some worker does for all.

    ``on_promoted`` is called when there is more to claim.
    """

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
        # set: a run may have got a time, or a resource may be free
        self.news = asyncio.Event()

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
                await self.news.wait()
            self.news.clear()

    async def _tend(self) -> float:
        tended = await self._engine.store.tend()
        if tended.promoted:
            self._on_promoted()
        return _TEND_SECONDS if tended.next_due is None else max(tended.next_due, 0.002)

    async def _reap(self) -> None:
        held = [lease for leases in _live.values() for _, lease in list(leases)]
        reaped = await self._engine.store.reap([*_live], held)
        if gone := [worker for worker in reaped.workers if worker not in _live]:
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


def _only(error: Exception) -> Exception:
    """The one error of groups that have just one."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group
