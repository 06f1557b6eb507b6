"""Steps in the order of their dependencies: run, pause, go on, cancel."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any
from uuid import uuid4

import anyio
from attrs import define

from lexigram import clock
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.contracts.workflow.checkpoints import (
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
)
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.hooks import HookRegistry
from lexigram.workflow._emitter import WorkflowEmitter
from lexigram.workflow._limits import is_time_limit
from lexigram.workflow.errors import (
    GraphProblem,
    HumanInputRequiredError,
    PipelineExecutionError,
    PipelineValidationError,
    WorkflowStateError,
    WorkflowTimeoutError,
)
from lexigram.workflow.nodes.function_node import Services
from lexigram.workflow.pipeline import _diagram
from lexigram.workflow.pipeline._plan import every, ordered, problems_of, time_limit_problem
from lexigram.workflow.pipeline._position import Loaded, Position, load
from lexigram.workflow.pipeline.base import PipelineStep, Place, attempt, resumed
from lexigram.workflow.pipeline.context import (
    STEP_RESULTS,
    TOTAL_DURATION,
    PipelineContext,
    Progress,
    StepExecutionResult,
    StepStatus,
)
from lexigram.workflow.runs._recorder import PIPELINE_PREFIX, LiveRun, RecordedRuns, Recorder
from lexigram.workflow.runs._store_cache import CacheCheckpointStore
from lexigram.workflow.runs.memory import InMemoryCheckpointStore

_MISSING: Any = object()

Store = CacheBackendProtocol | CheckpointStoreProtocol


class Pipeline(RecordedRuns):
    """Steps that are ready to run, as often and as often at once as you like.

    One after the other: dependencies first, else in the order of the list; with ``concurrent``
    every step begins as soon as its dependencies are over. With a ``checkpoint_store``, a cache
    or a checkpoint store, every finished step is kept under the id of its run, and ``resume``
    goes on with it in any process; without one a run is kept in memory while it is paused.
    ``timeout`` is for a whole run, in seconds.
    """

    def __init__(
        self,
        name: str = "default",
        steps: Sequence[PipelineStep] = (),
        checkpoint_store: Store | None = None,
        *,
        concurrent: bool = False,
        timeout: float | None = None,
        version: int = 1,
        container: Services | None = None,
        approvals: ApprovalProtocol | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        self._name = name
        self._version = version
        self._concurrent = concurrent
        self._timeout = timeout
        self._steps = list(steps)
        # the steps as they run; None: not put in order yet
        self._order: list[PipelineStep] | None = None
        self._check(self._steps)
        self._parts = _Parts(container, approvals, events, hooks, checkpoint_store)
        self._use(self._parts, every_step=checkpoint_store is not None)

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self._name

    @property
    def version(self) -> int:
        """The version of the definition; a stored run goes on only with its own."""
        return self._version

    @property
    def steps(self) -> tuple[PipelineStep, ...]:
        """The steps, as they were added."""
        return tuple(self._steps)

    @property
    def execution_order(self) -> tuple[str, ...]:
        """The names of the steps, in the order in which they run."""
        return tuple(step.name for step in ordered(self._steps))

    @property
    def is_concurrent(self) -> bool:
        """True when every step begins as soon as its dependencies are over."""
        return self._concurrent

    @property
    def shape(self) -> str:
        """A digest of what a stored run must find again: the steps and their order."""
        facts = [self._concurrent, [_shape(step) for step in ordered(self._steps)]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def ready_steps(self) -> Sequence[PipelineStep]:
        """The steps as they run here, in order; PipelineValidationError where one cannot."""
        return self._ready()

    def add_step(self, step: PipelineStep) -> None:
        """Add a step; PipelineValidationError, a ValueError, when it does not fit, and then it
        is not added.
        """
        self._check([*self._steps, step])
        self._steps.append(step)
        self._order = None

    def validate(self) -> None:
        """Raise PipelineValidationError for steps that cannot run here, such as for want of a
        service; other problems are refused before.
        """
        self._ready()

    # --- running ---

    async def execute(
        self,
        initial_context: PipelineContext | Mapping[str, Any] | None = None,
        fail_fast: bool = True,
        *,
        run_id: str | None = None,
    ) -> Result[PipelineContext, Exception]:
        """Run the steps; Ok of the context, or Err naming the step that failed.

        A mapping becomes the metadata of the context. ``run_id`` must be new. Without
        ``fail_fast`` the steps that do not depend on a failed one still run. A step that waits
        for a person raises HumanInputRequiredError with the id of the run.
        """
        context = self._context(initial_context)
        if context.progress.is_running:
            raise WorkflowStateError(
                f"the context is used by run {context.run_id!r}", hint="make one for each run"
            )
        self._ready()
        context.run_id = run_id or uuid4().hex
        context.step_results = dict(context.step_results)
        context.progress = Progress()
        context.metadata[STEP_RESULTS] = {}
        live = self._live_run(context, fail_fast=fail_fast)
        return await self._drive(live, fresh=True)

    async def resume(
        self,
        run_id: str,
        response: Any = _MISSING,
        *,
        step: str | None = None,
        fail_fast: bool = True,
    ) -> Result[PipelineContext, Exception]:
        """Go on with a stored run that failed, was cut off, or is paused; finished steps stay so.

        ``response`` answers the step that waits, or the ``step`` of several. A completed run gives its context again. Raises
        WorkflowNotFoundError for an unknown run, WorkflowVersionMismatchError for one of another
        version. Call it only when no other process works on the run: with a checkpoint store the
        first to finish a step wins, and the other gets an Err.
        """
        return await self._go_on(run_id, response, step, fail_fast=fail_fast)

    async def time_out(
        self, run_id: str, *, fail_fast: bool = True
    ) -> Result[PipelineContext, Exception]:
        """Go on with a run whose pause is over without an answer; any other as ``resume`` does."""
        return await self._go_on(run_id, _MISSING, None, fail_fast=fail_fast, in_time=False)

    async def resume_at(
        self, run_id: str, response: Any, checkpoint: int | None
    ) -> Result[PipelineContext, Exception]:
        """Answer the pause that was kept as ``checkpoint``; go on without it when that is over.

        For callers that store the answer too and give it again after a crash: a later question must
        not get it.
        """
        loaded = await self._load(run_id)
        is_there = loaded.run.status is GraphRunStatus.PAUSED
        if is_there and checkpoint in (None, loaded.seq):
            return await self.resume(run_id, response)
        return await self.resume(run_id)

    async def _go_on(
        self,
        run_id: str,
        response: Any,
        step: str | None,
        *,
        fail_fast: bool,
        in_time: bool = True,
        must_be_paused: bool = False,
    ) -> Result[PipelineContext, Exception]:
        self._ready()
        loaded = await self._load(run_id)
        self._refuse_other_version(loaded.run)
        status = loaded.run.status
        if must_be_paused and status is not GraphRunStatus.PAUSED:
            raise WorkflowStateError(f"run {run_id!r} is {status.value}, not paused")
        if status is GraphRunStatus.CANCELLED:
            raise WorkflowStateError(f"run {run_id!r} was cancelled", hint="start a new one")
        known = {item.name for item in every(self._steps)}
        gone = [name for name in loaded.finished if name not in known]
        if gone:
            raise WorkflowStateError(
                f"run {run_id!r} finished {', '.join(map(repr, gone))}, which this pipeline lacks",
                hint="raise its version when steps change, and finish old runs with the old one",
            )
        context = loaded.context(self._name)
        if response is not _MISSING:
            context.answers[_waiting_step(loaded, step)] = response
        if not in_time and status is GraphRunStatus.PAUSED:
            now = clock.timestamp()
            context.timed_out.update(name for name, due in loaded.dues.items() if due <= now)
        live = self._live_run(context, fail_fast=fail_fast, run=loaded.run)
        live.recorder.follow(loaded.stored)
        if status is GraphRunStatus.COMPLETED:
            for name in loaded.finished:
                context.executions[name] = resumed(name, context)
            return Ok(context)
        if status is not GraphRunStatus.RUNNING:
            await live.recorder.resume()
            await self._emitter.emit_moved(run_id, status.value, "running")
        return await self._drive(live, fresh=False)

    # --- looking at it ---

    async def context_of(self, run_id: str) -> PipelineContext:
        """A stored run as it stands; WorkflowNotFoundError when unknown. Nothing is run."""
        loaded = await self._load(run_id)
        context = loaded.context(self._name)
        context.progress.waiting = {name: loaded.dues.get(name) for name in loaded.waiting}
        for name, how in loaded.finished.items():
            status = StepStatus.COMPLETED if how == "c" else StepStatus.SKIPPED
            value = context.get_result(name)
            context.executions[name] = StepExecutionResult(name, status, value)
        return context

    def to_dot(self, context: PipelineContext | None = None) -> str:
        """The pipeline for Graphviz, coloured by how the steps of a context went."""
        return _diagram.dot(self._name, self._steps, self._list_drawn_steps(), _outcomes(context))

    def to_mermaid(self, context: PipelineContext | None = None) -> str:
        """The pipeline as a mermaid flowchart, coloured by how the steps of a context went."""
        return _diagram.mermaid(self._steps, self._list_drawn_steps(), _outcomes(context))

    # --- other places ---

    def keep_in(self, store: CheckpointStoreProtocol, *, every_step: bool) -> Pipeline:
        """This pipeline with its runs in a store; itself when it was given one of its own."""
        if self._parts.store is not None:
            return self
        other = copy.copy(self)
        other._steps = list(self._steps)  # noqa: SLF001 - another one of this class
        other._use(self._parts, every_step=every_step, store=store)  # noqa: SLF001 - the same
        return other

    def equip(
        self,
        *,
        container: Services | None = None,
        approvals: ApprovalProtocol | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
        timeout: float | None = None,
    ) -> Pipeline:
        """This pipeline with what an application has, where it has nothing of its own."""
        other = copy.copy(self)
        own = self._parts
        other._steps = list(self._steps)  # noqa: SLF001 - another one of this class
        other._timeout = timeout if self._timeout is None else self._timeout  # noqa: SLF001
        other._check(other._steps)  # noqa: SLF001 - the time limit is another one
        parts = _Parts(
            container if own.container is None else own.container,
            approvals if own.approvals is None else own.approvals,
            events if own.events is None else own.events,
            hooks if own.hooks is None else own.hooks,
            own.store,
        )
        other._use(parts, every_step=self._every_step, store=self._borrowed)  # noqa: SLF001
        return other

    def __repr__(self) -> str:
        return f"<Pipeline {self._name} v{self._version}: {len(self._steps)} steps>"

    # --- how ---

    def _check(self, steps: Sequence[PipelineStep]) -> None:
        problems = problems_of(steps)
        if not is_time_limit(self._timeout):
            problems.append(time_limit_problem("the pipeline", self._timeout))
        _refuse(self._name, problems)

    def _use(
        self, parts: _Parts, *, every_step: bool, store: CheckpointStoreProtocol | None = None
    ) -> None:
        """Begin anew in another place."""
        super().__init__()
        self._parts = parts
        self._every_step = every_step
        self._borrowed = store
        used = store if parts.store is None else parts.store  # an empty cache is falsy
        if used is None:
            used = InMemoryCheckpointStore()
        if isinstance(used, CheckpointStoreProtocol):
            self._inner_store: CheckpointStoreProtocol | None = used
            self._store: CheckpointStoreProtocol = used
        else:
            # Runs inside of steps keep their own: a cache has the runs of this pipeline only.
            self._inner_store, self._store = None, CacheCheckpointStore(used, self._stored_as)
        self._emitter = WorkflowEmitter(self._name, "pipeline", parts.events, parts.hooks)
        self._order = None

    def _ready(self) -> list[PipelineStep]:
        """The steps as they run here, in order; PipelineValidationError where one cannot."""
        if self._order is None:
            parts = self._parts
            place = Place(
                parts.container, parts.approvals, self._inner_store, every_step=self._every_step
            )
            order = place.all(ordered(self._steps))
            _refuse(self._name, place.problems)
            self._order = order
        return self._order

    def _list_drawn_steps(self) -> list[PipelineStep] | None:
        """The order of the steps, where it is more than their dependencies."""
        return None if self._concurrent else ordered(self._steps)

    def _context(self, given: PipelineContext | Mapping[str, Any] | None) -> PipelineContext:
        if isinstance(given, PipelineContext):
            return given
        return PipelineContext(self._name, metadata=dict(given or {}))

    @property
    def _stored_as(self) -> str:
        return PIPELINE_PREFIX + self._name

    async def _time_out(self, run_id: str) -> None:
        await self._go_on(
            run_id, _MISSING, None, fail_fast=True, in_time=False, must_be_paused=True
        )

    async def _load(self, run_id: str) -> Loaded:
        return load(await self._stored(run_id))

    def _live_run(
        self, context: PipelineContext, *, fail_fast: bool, run: GraphRun | None = None
    ) -> _Live:
        assert context.run_id is not None
        now = context.start_time = clock.timestamp()
        context.end_time = None
        run = run or GraphRun(
            run_id=context.run_id,
            graph=self._stored_as,
            version=self._version,
            status=GraphRunStatus.RUNNING,
            created_at=now,
            updated_at=now,
        )
        return _Live(self._store, run, context, fail_fast, every_step=self._every_step)

    async def _drive(self, live: _Live, *, fresh: bool) -> Result[PipelineContext, Exception]:
        """Run and say how it ended; cancellation from outside passes."""
        context, recorder, run_id = live.context, live.recorder, live.recorder.run.run_id
        progress = context.progress
        progress.recorder = recorder if self._every_step else None
        progress.is_running = True
        started = monotonic()
        self._live[run_id] = live
        error: PipelineExecutionError | None = None
        paused: HumanInputRequiredError | None = None
        try:
            try:
                error = await self._run_within_limit(live, fresh=fresh)
                if error is None:
                    await recorder.end(GraphRunStatus.COMPLETED)
            except HumanInputRequiredError as pause:
                paused = pause
                await recorder.pause((), progress.waiting.values())
        except Exception as failure:  # noqa: BLE001 - the boundary: it could not be kept
            error = self._error("checkpoint", failure, context)
        finally:
            live.scope = None
            progress.is_running = False
            progress.recorder = None
            del self._live[run_id]
            context.end_time = clock.timestamp()
            context.metadata[TOTAL_DURATION] = monotonic() - started
        if error is not None:
            await self._record_failure(live, error)
            return Err(error)
        if paused is not None:
            await self._emitter.emit_moved(run_id, "running", "paused")
            raise _pause_of(recorder, paused) from paused
        if not self._emitter.is_silent:
            await self._emitter.emit_moved(run_id, "running", "completed")
            await self._emitter.emit_completed(run_id)
        return Ok(context)

    async def _run_within_limit(self, live: _Live, *, fresh: bool) -> PipelineExecutionError | None:
        """Run within the time limit; why it failed, if it did."""
        context = live.context
        limit = self._timeout
        deadline = inf if limit is None or limit == inf else anyio.current_time() + limit
        with anyio.CancelScope(deadline=deadline) as live.scope:
            if fresh and self._every_step:
                await live.recorder.start()
            if fresh and not self._emitter.is_silent:
                await self._emitter.emit_started(live.recorder.run.run_id)
            await (self._at_once(live) if self._concurrent else self._one_by_one(live))
        if not live.scope.cancelled_caught:
            return self._first_failure(context)
        if live.cancelled:
            text = f"run {live.recorder.run.run_id!r} was cancelled"
            return self._error(self._name, WorkflowStateError(text), context)
        text = f"the pipeline took longer than {limit:g} s"
        hint = "make it quicker, or raise its timeout"
        return self._error(self._name, WorkflowTimeoutError(text, self._name, hint=hint), context)

    async def _one_by_one(self, live: _Live) -> None:
        for step in self._ready():
            if live.lost and self._must_leave_out(live, step):
                continue
            done = await attempt(step, live.context)
            if done.status is StepStatus.FAILED:
                if live.fail_fast:
                    return
                live.lost.add(step.name)

    async def _at_once(self, live: _Live) -> None:
        """Every step begins when its dependencies are over."""
        order = self._ready()
        over = {step.name: anyio.Event() for step in order}
        pauses: dict[str, HumanInputRequiredError] = {}
        broken: list[Exception] = []
        host = asyncio.current_task()

        async def run(step: PipelineStep) -> None:
            for name in step.dependencies:
                await over[name].wait()
            waits = any(name in pauses for name in step.dependencies)
            if waits:
                # It begins when the answer is there.
                pauses[step.name] = next(
                    pauses[name] for name in step.dependencies if name in pauses
                )
            elif not (live.lost and self._must_leave_out(live, step)):
                try:
                    done = await attempt(step, live.context, host)
                except HumanInputRequiredError as pause:
                    pauses[step.name] = pause
                except Exception as error:  # noqa: BLE001 - it could not be kept; raised below
                    broken.append(error)
                    group.cancel_scope.cancel()
                else:
                    if done.status is StepStatus.FAILED:
                        live.lost.add(step.name)
                        if live.fail_fast:
                            group.cancel_scope.cancel()
            over[step.name].set()

        async with anyio.create_task_group() as group:
            for step in order:
                group.start_soon(run, step, name=step.name)
        if broken:
            raise broken[0]
        if pauses and not live.lost:
            raise next(iter(pauses.values()))

    def _must_leave_out(self, live: _Live, step: PipelineStep) -> bool:
        """Whether a step cannot run because one it depends on failed; noted."""
        lost = [name for name in step.dependencies if name in live.lost]
        if lost:
            live.lost.add(step.name)
            reason = f"{lost[0]!r} failed"
            live.context.executions[step.name] = StepExecutionResult(
                step.name, StepStatus.SKIPPED, skipped_reason=reason
            )
        return bool(lost)

    def _first_failure(self, context: PipelineContext) -> PipelineExecutionError | None:
        ran = {step.name for step in self._ready()}
        failed = [
            done
            for name, done in context.executions.items()
            if done.status is StepStatus.FAILED and name in ran
        ]
        if not failed:
            return None
        first = failed[0]
        assert first.error is not None
        error = self._error(first.step_name, first.error, context)
        for other in failed[1:]:
            error.add_note(f"step {other.step_name!r} failed too: {other.error}")
        return error

    def _error(
        self, step: str, cause: Exception, context: PipelineContext
    ) -> PipelineExecutionError:
        facts = {
            "pipeline": self._name,
            "run_id": context.run_id,
            "failed_steps": context.failed_steps,
        }
        return PipelineExecutionError(step, cause, facts, hint=getattr(cause, "hint", None))


@define
class _Parts:
    """What a pipeline was given."""

    container: Services | None
    approvals: ApprovalProtocol | None
    events: EventBusProtocol | None
    hooks: HookRegistry | None
    store: Store | None


class _Live(LiveRun):
    """A run that this object works on."""

    def __init__(
        self,
        store: CheckpointStoreProtocol,
        run: GraphRun,
        context: PipelineContext,
        fail_fast: bool,
        *,
        every_step: bool,
    ) -> None:
        only_last = isinstance(store, CacheCheckpointStore)
        self.recorder = Recorder(
            store, run, Position(context), every_step=every_step, only_last=only_last
        )
        self.context = context
        self.fail_fast = fail_fast
        # steps that failed, and those that therefore cannot run
        self.lost: set[str] = set()


def _pause_of(recorder: Recorder, pause: HumanInputRequiredError) -> HumanInputRequiredError:
    return HumanInputRequiredError(
        pause.prompt,
        node=pause.node,
        checkpoint_id=recorder.run.run_id,
        state=pause.state,
        remember=pause.remember,
        # A workflow around this one waits no longer than this one.
        due_at=recorder.run.due_at,
        details={**pause.details, "checkpoint": recorder.seq},
        hint="answer with pipeline.resume(run_id, response)",
    )


def _waiting_step(loaded: Loaded, step: str | None) -> str:
    run = loaded.run
    waiting = loaded.waiting if run.status is GraphRunStatus.PAUSED else []
    if not waiting:
        raise WorkflowStateError(
            f"run {run.run_id!r} is {run.status.value}, it waits for no answer",
            hint="resume(run_id) goes on without one",
        )
    if step is not None and step not in waiting:
        raise WorkflowStateError(
            f"step {step!r} of run {run.run_id!r} does not wait for an answer",
            hint=f"these do: {', '.join(map(repr, waiting))}",
        )
    return step or waiting[0]


def _shape(step: PipelineStep) -> list[Any]:
    inside = [_shape(inner) for inner in step.inner_steps]
    return [step.name, type(step).__name__, list(step.dependencies), inside]


def _outcomes(context: PipelineContext | None) -> dict[str, StepExecutionResult] | None:
    return None if context is None else context.executions


def _refuse(name: str, problems: Sequence[GraphProblem]) -> None:
    if problems:
        count = len(problems)
        raise PipelineValidationError(
            f"pipeline {name!r} has {count} problem{'' if count == 1 else 's'}:", problems=problems
        )
