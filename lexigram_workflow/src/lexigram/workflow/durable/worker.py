"""A worker: pools that claim steps, call their handlers and write how they ended."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol, cast

import anyio
import orjson
from anyio.abc import TaskGroup
from attrs import evolve, field, frozen
from attrs.validators import ge, gt, optional

from lexigram import clock
from lexigram.concurrency import as_failure
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.errors import StepRefusedError
from lexigram.observability import get_logger
from lexigram.sql.leasing import Backoff, Coalescer, WakeUp, lease_token
from lexigram.workflow.durable.artifacts import with_items
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    ChildRunsFailedError,
    DurableError,
    HandlerMissingError,
    PlanInvalidError,
)
from lexigram.workflow.durable.events import Deliveries, Listener, Publish, RunNotice
from lexigram.workflow.durable.handlers import (
    ArtifactBinder,
    Progress,
    Services,
    StepArtifacts,
    StepContext,
    StepHandler,
)
from lexigram.workflow.durable.heart import Heart
from lexigram.workflow.durable.models import RunStep, WorkflowRun, run_of_claim, step_of_claim
from lexigram.workflow.durable.plan import Condition, LifeCycleEvent, RunPlan, StepPlan
from lexigram.workflow.durable.store import (
    CHANNEL,
    CHANNEL_WANTED,
    Beat,
    Claim,
    End,
    Ended,
    EndKind,
    Selection,
    State,
    jitter,
)

__all__ = ["LoggingMetrics", "Metrics", "StepContext", "Worker", "WorkerConfig"]

logger = get_logger(__name__)

CATCH_ALL = "*"
_BATCH = 200  # ends in one transaction
_STICKY = 20  # steps of one run in a row; then others with the same right have their turn
_TEND_SECONDS = 5.0  # at least this often, even when nothing is known to be due
_TEND_GAP = 0.1  # and not more often than this
_SWEEP_SECONDS = 60.0  # locks that are over, groups that were miscounted; one worker of all
_PRUNE_SECONDS = 600.0  # one worker of all
_UPKEEP_SECONDS = 24 * 3600.0
_CLEANUP_SECONDS = 10.0  # for handlers that were told to stop, and their last reports
_BEATS = 5  # heartbeats per lease: some may fail before it is lost
_TEXT = 10_000  # characters of an error that are kept
_AGAIN = Backoff(first=0.05, cap=5.0)

# Workers of this process that run, and what they hold: none of it is reaped by another one here.
_live: dict[str, Mapping[tuple[int, str], None]] = {}


class Metrics(Protocol):
    """Takes figures; the seed's protocol."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...


class LoggingMetrics:
    """Figures as lines of the log, at DEBUG."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, value=value, labels=labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, seconds=value, labels=labels)


@frozen(kw_only=True)
class WorkerConfig:
    """How many steps of which type at once; ``"*"`` takes every type that no pool names."""

    consumers: Mapping[str, int] = field(factory=lambda: {CATCH_ALL: 5})
    # seconds after which an idle pool looks though nobody told it; news come sooner
    poll_interval: float = field(default=1.0, validator=gt(0))
    # seconds between heartbeats; None is a fifth of the lease
    checkin_interval: float | None = field(default=None, validator=optional(gt(0)))
    # seconds that ended groups are kept; 0 keeps them for ever
    retention: float = field(default=30 * 24 * 3600.0, validator=ge(0))

    def __attrs_post_init__(self) -> None:
        bad = {name: size for name, size in self.consumers.items() if size < 1 or not name}
        if bad or not self.consumers:
            raise PlanInvalidError(
                f"the pools {bad or '(none)'} cannot work",
                hint='a pool has a type and at least 1 consumer: {"parse": 3, "*": 5}',
            )

    def selection(self, pool: str) -> Selection:
        """The step types of a pool."""
        if pool != CATCH_ALL:
            return Selection(types=(pool,))
        return Selection(types=tuple(n for n in self.consumers if n != CATCH_ALL), excluded=True)


class Worker:
    """``await worker.start()`` … ``await worker.stop()``; any number in a process.

    ``handlers`` has the functions by the names that plans use. ``documents`` loads what handlers
    get as ``doc``; without it they get None. ``artifacts`` binds ``ctx.artifact`` and tells which
    steps need not run because what they make is there. ``listeners`` are called for the start and
    the end of each group, by one worker of all; what raises is tried again. ``publish`` hears at
    once, and once at most, what happens to runs and steps in this process; it gets a function
    that makes the notice. ``upkeep`` is called once a day by one worker of all: what else needs
    looking after. Its ``id`` is made up, with ``name`` before it.
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
        self.config = config
        self._engine = engine
        self._functions = handlers
        self._handlers: dict[str, StepHandler] = {}
        self._services = services
        self._documents = documents
        self._artifacts = artifacts
        self._publish = publish
        self._upkeep = upkeep
        self._metrics: Metrics = metrics or LoggingMetrics()
        self._progress = progress
        self._reports = Coalescer[End, Ended | None](engine.finish_steps, limit=_BATCH)
        self._heart = Heart(engine, self.id, interval, self._note, self._note_events)
        self._deliveries = Deliveries(
            engine, self.id, self._heart, self._handler, dict(listeners or {}), config.poll_interval
        )
        self._runs: dict[tuple[int, str], _Run] = {}
        self._pools = [
            _Pool(name, size, config.selection(name)) for name, size in config.consumers.items()
        ]
        self._stopping = False
        self._timeout = 30.0
        self._stop_wanted = asyncio.Event()
        # a run may have got a time, or a resource may be free
        self._later = asyncio.Event()
        self._idle = asyncio.Event()
        # a plan with lifecycle handlers came by: news may be of their events
        self._hears_plans = False
        self._owner: asyncio.Task[None] | None = None
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
        await self._heart.start()
        _live[self.id] = self._heart.held
        started = asyncio.Event()
        # An empty context: steps must not inherit a transaction of whoever starts us.
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
        """Claim nothing more, wait up to ``timeout`` for running steps, give back the rest."""
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
    def busy(self) -> int:
        """Steps that it holds now."""
        return len(self._runs)

    @property
    def progress(self) -> Mapping[int, Progress]:
        """What running steps said last, by the id of the step."""
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
                for pool in self._pools:
                    for _ in range(pool.size):
                        tasks.start_soon(self._supervise, self._consume, pool)
                    tasks.start_soon(self._supervise, self._claim_on, pool)
                tasks.start_soon(self._supervise, self._tend_on)
                for work, every in self._duties():
                    tasks.start_soon(self._supervise, self._repeat, work, every)
                tasks.start_soon(self._supervise, self._hear_wishes)
                self._deliveries.start(tasks, self._supervise)
                tasks.start_soon(self._supervise, self._spread, news)
                tasks.start_soon(self._supervise, self._heart.wait_for_failure)
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
        else:
            if not self._stopping:  # a cancelled task ends its group in silence
                self._failure = DurableError(
                    f"a task of the worker {self.id} was cancelled",
                    hint="cancel only tasks that you created; call stop() to end a worker",
                )
                logger.error("the worker failed and claims no more", exc_info=self._failure)
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._leave()

    async def _supervise(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a loop of the worker; what ends it is an Exception, which ends the worker."""
        try:
            await task(*arguments)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None or failure is error:
                raise
            raise failure from error

    def _duties(self) -> Sequence[tuple[Callable[[], Awaitable[float | None]], float]]:
        duties: list[tuple[Callable[[], Awaitable[float | None]], float]] = [
            (self._reap, self._engine.terms.lease / 2),
            (self._sweep, _SWEEP_SECONDS),
        ]
        if self.config.retention:
            duties.append((self._prune, _PRUNE_SECONDS))
        if self._upkeep is not None:
            duties.append((self._keep_up, _UPKEEP_SECONDS))
        return duties

    async def _let_running_end(self, tasks: TaskGroup) -> None:
        """First wait, then interrupt: what is interrupted goes back undone."""
        for pool in self._pools:
            pool.changed.set()
            # A claim under way is waited for: cut off, it would leave leases nobody holds.
            with anyio.move_on_after(_CLEANUP_SECONDS):
                await pool.closed.wait()
            while not pool.waiting.empty():
                await self._give_back(pool.waiting.get_nowait())
        self._deliveries.close()
        with anyio.move_on_after(self._timeout):
            await self._idle.wait()
            await self._deliveries.idle.wait()
        for run in list(self._runs.values()):
            run.stop(_Why.STOPPED)
        with anyio.move_on_after(_CLEANUP_SECONDS):
            await self._idle.wait()
        tasks.cancel_scope.cancel()

    async def _leave(self) -> None:
        for run in list(self._runs.values()):
            await self._give_back(run)
        await self._heart.stop()
        _live.pop(self.id, None)
        try:
            await self._engine.check_out(self.id)
        except DurableError as error:
            logger.warning("not checked out; others will notice", worker=self.id, error=str(error))

    async def _give_back(self, run: _Run) -> None:
        end = _released(run.claim)
        try:
            if (await self._engine.finish_steps([end]))[0] is not None:
                self._metrics.incr("step_released", pool=run.pool.name)
        except DurableError as error:
            logger.warning("a step was not given back", run=run.claim.run_id, error=str(error))
        self._forget(run)

    async def _spread(self, news: Any) -> None:
        """One listener for all pools."""
        while True:
            if await news.wait():
                self._later.set()
                if self._hears_plans:
                    self._deliveries.look()
            for pool in self._pools:
                pool.changed.set()

    async def _hear_wishes(self) -> None:
        """Somebody cancelled or paused runs: ask at once which."""
        async with WakeUp(
            self._engine.database, CHANNEL_WANTED, self.config.poll_interval
        ).waiting() as news:
            while True:
                if await news.wait() or self._engine.database.dialect == "sqlite":
                    self._heart.poke()

    async def _claim_on(self, pool: _Pool) -> None:
        failures = 0
        while not self._stopping:
            pool.changed.clear()
            free = pool.size - pool.busy
            got = 0
            if free > 0:
                try:
                    got = await self._claim(pool, free)
                    failures = 0
                except DurableError as error:
                    failures += 1
                    self._metrics.incr("claim_error", pool=pool.name)
                    logger.warning("cannot claim", worker=self.id, error=str(error))
                    with anyio.move_on_after(_AGAIN.delay(failures)):
                        await self._stop_wanted.wait()
                    continue
            if got < free or not free:
                await pool.changed.wait()
        pool.closed.set()

    async def _claim(self, pool: _Pool, free: int) -> int:
        began = clock.monotonic()
        self._metrics.incr("claim_attempts", pool=pool.name)
        claimed = await self._engine.claim_steps(self.id, lease_token(), pool.selection, free)
        self._metrics.observe("claim_duration", clock.monotonic() - began, pool=pool.name)
        if claimed.lost_races:
            self._metrics.incr("claim_lost_race", claimed.lost_races, pool=pool.name)
        if not claimed.claims:
            self._metrics.incr("claim_idle", pool=pool.name)
            return 0
        self._metrics.incr("claim_success", len(claimed.claims), pool=pool.name)
        for claim in claimed.claims:
            run = _Run(claim, pool)
            self._runs[run.key] = run
            self._heart.held[run.key] = None
            pool.busy += 1
            self._idle.clear()
            pool.waiting.put_nowait(run)
        return len(claimed.claims)

    async def _repeat(self, work: Callable[[], Awaitable[float | None]], every: float) -> None:
        """Do it now and again; it may say that the next time is sooner."""
        while True:
            wait = every
            try:
                wait = min(wait, await work() or math.inf)
            except DurableError as error:
                logger.warning("cannot look after runs", worker=self.id, error=str(error))
            await anyio.sleep(wait)

    async def _tend_on(self) -> None:
        """Due runs and free resources: when the next is due, and soon after news of one."""
        while True:
            wait = _TEND_SECONDS
            try:
                wait = await self._tend()
            except DurableError as error:
                logger.warning("cannot look for due runs", worker=self.id, error=str(error))
            await anyio.sleep(min(wait, _TEND_GAP))
            with anyio.move_on_after(wait - _TEND_GAP):
                await self._later.wait()
            self._later.clear()

    async def _tend(self) -> float:
        tended = await self._engine.tend()
        if tended.promoted:
            for pool in self._pools:
                pool.changed.set()
        return _TEND_SECONDS if tended.next_due is None else max(tended.next_due, 0.002)

    async def _reap(self) -> float | None:
        held = [lease for leases in _live.values() for _, lease in list(leases)]
        reaped = await self._engine.reap([*_live], held)
        if gone := [worker for worker in reaped.workers if worker not in _live]:
            self._metrics.incr("worker_reaped", len(gone))
        if reaped.steps:
            self._metrics.incr("step_reset_by_reaper", len(reaped.steps))
            logger.warning("steps of dead workers taken back", steps=len(reaped.steps))
        return None

    async def _sweep(self) -> float | None:
        if not await self._engine.take_duty("sweep", _SWEEP_SECONDS):
            return None
        if swept := await self._engine.sweep_expired_resource_locks():
            self._metrics.incr("resource_lock_swept", swept)
        if wrong := await self._engine.reconcile():
            logger.error("groups were miscounted and are right now", groups=wrong)
        return None

    async def _prune(self) -> float | None:
        if not await self._engine.take_duty("prune", _PRUNE_SECONDS):
            return None
        removed = 0
        while gone := await self._engine.prune(self.config.retention):
            removed += gone
        if removed:
            logger.info("old runs removed", runs=removed)
        return None

    async def _keep_up(self) -> float | None:
        if self._upkeep is None or not await self._engine.take_duty("upkeep", _UPKEEP_SECONDS):
            return None
        try:
            await self._upkeep()
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning(
                "the upkeep failed and comes again tomorrow",
                error=_text(failure),
                exc_info=failure,
            )
        return None

    def _note(self, beats: Sequence[Beat]) -> None:
        """In our loop: what the heart found out."""
        for beat in beats:
            run = self._runs.get((beat.run_id, beat.lease))
            if run is None or run.is_reported:
                continue
            if not beat.is_kept:
                run.stop(_Why.LOST)
            elif beat.wanted == "cancel":
                run.stop(_Why.CANCELLED)

    def _note_events(self, lost: Sequence[tuple[int, str]]) -> None:
        self._deliveries.lost(lost)

    # --- one step -------------------------------------------------------------------------------

    async def _consume(self, pool: _Pool) -> None:
        """One consumer: does one claimed run after the other."""
        while True:
            run = await pool.waiting.get()
            with run.scope:
                while await self._step(run):
                    pass
            if not run.is_reported:  # its handler was interrupted, or did not care
                await self._report(run, run.end or _released(run.claim))
            self._forget(run)

    async def _step(self, run: _Run) -> bool:
        """Do the step that was claimed; True when the lease is kept for the next one."""
        if run.why is not None:  # told while the end of the step before was written
            return False
        claim = run.claim
        plan = self._engine.plan_at_hand(claim.plan_id)
        if plan is None:
            try:
                plan = await self._engine.plan(claim.plan_id)
            except DurableError as error:
                logger.warning("cannot read a plan", run=claim.run_id, error=str(error))
                return False
        step = plan.steps[claim.step_no - 1]
        if plan.lifecycle:
            self._hears_plans = True
            self._deliveries.look()
        if self._publish is not None:
            await self._publish_start(claim, plan)
        began = clock.monotonic()
        end = await self._attempt(run, plan, step)
        if run.scope.cancel_called:
            run.end = end  # reported outside of the scope
            return False
        self._metrics.observe("step_duration", clock.monotonic() - began, pool=run.pool.name)
        ended = await self._report(run, end)
        if plan.lifecycle:
            self._deliveries.look()
        if self._publish is not None and ended is not None:
            await self._publish_end(claim, plan, end, ended)
        if ended is None or ended.state is not State.RUNNING:
            return False
        run.again(claim.at(ended, plan.steps[ended.step_no - 1]))
        return True

    async def _attempt(self, run: _Run, plan: RunPlan, step: StepPlan) -> End:
        try:
            if step.timeout is None:
                return await self._tried(run, plan, step)
            with anyio.move_on_after(step.timeout) as limit:
                return await self._tried(run, plan, step)
            assert limit.cancelled_caught, "nothing else leads here"
            raise TimeoutError(f"step {step.name!r} took longer than {step.timeout:g} s")
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            end = _failed(run.claim, failure, self.id)
            if not end.fatal:  # where it was raised is kept nowhere else
                attempt = run.claim.retry + 1
                tell = logger.info if attempt < step.retries else logger.warning
                tell(
                    "a step raised",
                    run=end.run_id,
                    step=step.name,
                    attempt=attempt,
                    exc_info=failure,
                )
            return end

    async def _tried(self, run: _Run, plan: RunPlan, step: StepPlan) -> End:
        claim = run.claim
        is_bare = self._artifacts is None and step.when is None and not claim.children_failed
        if is_bare and (handler := self._handler(step.handler)).takes_nothing:
            return self._done(run, plan, None, await handler.call({}))
        run_step = step_of_claim(claim, plan, self.id)
        workflow_run = run_of_claim(claim, plan)
        artifacts = self._bound(run_step, workflow_run, plan)
        context = run.context = self._context(run, plan, run_step, artifacts)
        if skipped := await self._skipped(claim, plan, step, artifacts):
            return self._completed(run, plan, "skipped", orjson.dumps(skipped).decode())
        handler = self._handler(step.handler)
        doc = None
        if handler.wants_document and self._documents is not None:
            doc = await self._documents(workflow_run)
        value = await handler(run_step, workflow_run, doc, step.params, context)
        return self._done(run, plan, context, value)

    def _bound(
        self, run_step: RunStep, workflow_run: WorkflowRun, plan: RunPlan
    ) -> StepArtifacts | None:
        if self._artifacts is None:
            return None
        return self._artifacts.of(run_step, workflow_run, plan)

    def _context(
        self, run: _Run, plan: RunPlan, run_step: RunStep, artifacts: StepArtifacts | None
    ) -> StepContext:
        run_id = run.claim.run_id
        return StepContext(
            run_step,
            heartbeat=lambda: self._beat(run),
            progress=self._progress,
            plan=plan,
            children=lambda step_no: self._engine.children(run_id, step_no),
            answer=run.claim.answer,
            artifacts=artifacts,
        )

    async def _skipped(
        self, claim: Claim, plan: RunPlan, step: StepPlan, artifacts: StepArtifacts | None
    ) -> Mapping[str, Any] | None:
        """Why the handler is not called, if it is not; raises when it cannot be."""
        if claim.children_failed:
            raise await self._children_failed(claim)
        if step.when is not None and not await self._holds(step.when, claim):
            return {"skipped": True, "when": step.when}
        # Runs that a step made may share its document and still make something else each.
        if artifacts is not None and claim.parent_id is None and await artifacts.complete():
            return {"skipped": True}
        return None

    async def _children_failed(self, claim: Claim) -> ChildRunsFailedError:
        children = await self._engine.children(claim.run_id)
        bad = [child for child in children if child.status is not RunStatus.COMPLETED]
        first = f"; run {bad[0].run_id}: {bad[0].status_message}" if bad else ""
        return ChildRunsFailedError(
            f"{len(bad)} of the {len(children)} runs that it made failed{first}",
            details={"run_id": claim.run_id, "failed": [child.run_id for child in bad[:100]]},
            hint="retry this run: those that failed are done again",
        )

    async def _holds(self, when: str, claim: Claim) -> bool:
        condition = Condition.parsed(when)
        if condition is None:
            raise PlanInvalidError(f"{when!r} is not a condition", hint="`name` or `not name`")
        if condition.name in claim.params:
            return condition.holds([claim.params])
        steps = await self._engine.steps(claim.run_id)
        before = [one.status_meta for one in steps if one.workflow_step_number < claim.step_no]
        return condition.holds(reversed(before))

    def _done(self, run: _Run, plan: RunPlan, context: StepContext | None, value: Any) -> End:
        meta = _meta(value)
        if context is not None and context.parked is not None:
            if context.spawns:
                raise PlanInvalidError("a step cannot both be parked and make runs")
            end = _end(run.claim, EndKind.PARKED, context.parked)
            return evolve(end, meta=meta)
        next_no = None
        if isinstance(value, dict) and "next_step" in value:
            next_no = _routed(run.claim, plan, value["next_step"])
        end = self._completed(run, plan, "success", meta, next_no)
        if context is not None and context.spawns:
            claim = run.claim
            spawns = with_items(context.spawns, plan, claim.step_no, claim.doc_id, claim.params)
            return evolve(end, spawns=spawns, sticky=False)
        return end

    def _completed(
        self,
        run: _Run,
        plan: RunPlan,
        message: str,
        meta: str | None,
        next_no: int | None = None,
    ) -> End:
        claim = run.claim
        following = (next_no or claim.step_no + 1) - 1
        sticky = (
            following < len(plan.steps)
            and run.taken < _STICKY
            and not self._stopping
            and run.why is None
            and run.pool.takes(plan.steps[following].queue)
        )
        return End(
            run_id=claim.run_id,
            step_no=claim.step_no,
            lease=claim.lease,
            kind=EndKind.COMPLETED,
            message=message,
            meta=meta,
            sticky=sticky,
            next_no=next_no,
            is_plain=claim.is_plain,
        )

    def _handler(self, name: str) -> StepHandler:
        function = self._functions.get(name)
        if function is None:
            raise HandlerMissingError(
                f"this worker has no handler {name!r}",
                details={"handler": name, "worker": self.id},
                hint="register it, or leave the type to workers that have it",
            )
        known = self._handlers.get(name)
        if known is None:
            known = self._handlers[name] = StepHandler(name, function, self._services)
        return known

    async def _report(self, run: _Run, end: End) -> Ended | None:
        """Write the end; while the store fails, as long as the lease may still be ours."""
        run.is_reported = True
        give_up = clock.monotonic() + self._engine.terms.lease
        tries = 0
        while True:
            try:
                ended = await self._reports.add(end)
                break
            except DurableError as error:
                tries += 1
                if clock.monotonic() >= give_up:
                    logger.error(  # noqa: TRY400 - the trace is of no use here
                        "the end of a step could not be written; it will run again",
                        run=end.run_id,
                        error=str(error),
                    )
                    return None
                await anyio.sleep(_AGAIN.delay(tries))
        if ended is None or ended.state is not State.RUNNING:
            self._forget(run)
        self._count(run, end, ended)
        return ended

    def _count(self, run: _Run, end: End, ended: Ended | None) -> None:
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
        elif ended.state is State.FAILED:
            self._metrics.incr("step_failed", pool=pool)
            logger.error(
                "a step failed for good", run=end.run_id, step=end.step_no, error=end.message
            )
        else:
            self._metrics.incr("step_error", pool=pool)

    def _forget(self, run: _Run) -> None:
        """The slot is free again."""
        if self._runs.pop(run.key, None) is not None:
            self._heart.held.pop(run.key, None)
            run.pool.busy -= 1
            run.pool.changed.set()
        if not self._runs:
            self._idle.set()

    # --- in this process ------------------------------------------------------------------------

    async def _publish_start(self, claim: Claim, plan: RunPlan) -> None:
        if claim.fence == 1:
            await self._announce(LifeCycleEvent.ITEM_START, claim, plan, RunStatus.RUNNING)
        await self._announce(LifeCycleEvent.STEP_START, claim, plan, RunStatus.RUNNING)

    async def _publish_end(self, claim: Claim, plan: RunPlan, end: End, ended: Ended) -> None:
        done, failed = RunStatus.COMPLETED, RunStatus.FAILED
        if end.kind is EndKind.COMPLETED:
            await self._announce(LifeCycleEvent.STEP_END, claim, plan, done, end.message)
        if ended.state is State.COMPLETED:
            await self._announce(LifeCycleEvent.ITEM_END, claim, plan, done, end.message)
        if ended.state is State.FAILED:
            await self._announce(LifeCycleEvent.STEP_FAILED, claim, plan, failed, end.message)
            await self._announce(LifeCycleEvent.ITEM_FAILED, claim, plan, failed, end.message)

    async def _announce(
        self,
        kind: LifeCycleEvent,
        claim: Claim,
        plan: RunPlan,
        status: RunStatus,
        message: str | None = None,
    ) -> None:
        def notice() -> RunNotice:
            return RunNotice(
                kind=kind,
                run_step=evolve(step_of_claim(claim, plan, self.id), status=status),
                workflow_run=run_of_claim(claim, plan),
                status=status,
                message=message,
            )

        if self._publish is None:
            return
        try:
            await self._publish(kind, notice)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning(
                "an event was not published", event=kind, error=_text(failure), exc_info=failure
            )

    async def _beat(self, run: _Run) -> bool:
        [beat] = await self._engine.heartbeat(self.id, [(run.claim.run_id, run.claim.lease)])
        self._note([beat])
        return beat.is_kept


class _Why(Enum):
    """Why a handler was told to stop."""

    CANCELLED = auto()  # somebody cancelled the run
    LOST = auto()  # the lease or the lock is over
    STOPPED = auto()  # the worker stops


class _Pool:
    """Consumers of the same types."""

    def __init__(self, name: str, size: int, selection: Selection) -> None:
        self.name = name
        self.size = size
        self.selection = selection
        self.busy = 0
        self.waiting: asyncio.Queue[_Run] = asyncio.Queue()
        # there may be work, or a free consumer
        self.changed = asyncio.Event()
        # no more claims will come
        self.closed = asyncio.Event()

    def takes(self, step_type: str) -> bool:
        """Whether a step of this type belongs here."""
        return (step_type in self.selection.types) is not self.selection.excluded


class _Run:
    """A claimed run on its way through a pool."""

    __slots__ = ("claim", "context", "end", "is_reported", "key", "pool", "scope", "taken", "why")

    def __init__(self, claim: Claim, pool: _Pool) -> None:
        self.claim = claim
        self.key = (claim.run_id, claim.lease)
        self.pool = pool
        # around all of its steps
        self.scope = anyio.CancelScope()
        self.why: _Why | None = None
        self.context: StepContext | None = None
        # of a handler that went on though it was told to stop
        self.end: End | None = None
        self.is_reported = False
        # steps in a row under this lease
        self.taken = 1

    def again(self, claim: Claim) -> None:
        """The next step under the same lease."""
        self.claim, self.context, self.is_reported = claim, None, False
        self.taken += 1

    def stop(self, why: _Why) -> None:
        """Cancel the handler, but not the report of its end; the first reason counts."""
        if self.why is None:
            self.why = why
            if self.context is not None:
                self.context.cancelled = why is _Why.CANCELLED
            if not self.is_reported:
                self.scope.cancel()


def _only(error: Exception) -> Exception:
    """The one error of groups that have just one."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group


def _released(claim: Claim) -> End:
    return _end(claim, EndKind.RELEASED, "released")


def _end(claim: Claim, kind: EndKind, message: str) -> End:
    return End(
        run_id=claim.run_id,
        step_no=claim.step_no,
        lease=claim.lease,
        kind=kind,
        message=message,
        is_plain=claim.is_plain,
    )


def _routed(claim: Claim, plan: RunPlan, name: Any) -> int:
    """The number of the step that a handler wants next."""
    number = plan.number(name) if isinstance(name, str) else None
    if number is None or number <= claim.step_no:
        wrong = "is not a step of the plan" if number is None else "is not a later step"
        raise PlanInvalidError(
            f"step {plan.steps[claim.step_no - 1].name!r} wants to go on with {name!r}, which {wrong}",
            details={"next_step": name, "run_id": claim.run_id},
            hint=f"the steps after it are {[step.name for step in plan.steps[claim.step_no :]]}",
        )
    return number


def _failed(claim: Claim, error: Exception, worker_id: str) -> End:
    facts = {
        "error": type(error).__name__,
        "text": str(error)[:_TEXT],
        "worker_id": worker_id,
        "doc_id": claim.doc_id,
        "attempt": claim.retry + 1,
    }
    return End(
        run_id=claim.run_id,
        step_no=claim.step_no,
        lease=claim.lease,
        kind=EndKind.ERROR,
        message=_text(error),
        meta=orjson.dumps(facts).decode(),
        jitter=jitter(),
        is_plain=claim.is_plain,
        # no second attempt would find other parameters, another document or other children
        fatal=isinstance(error, (PlanInvalidError, StepRefusedError, ChildRunsFailedError)),
    )


def _meta(value: Any) -> str | None:
    """What a handler returned, as JSON: its dict, or the value under ``result``."""
    if value is None:
        return None
    if not isinstance(value, dict):
        value = {"result": value}
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_TEXT]
