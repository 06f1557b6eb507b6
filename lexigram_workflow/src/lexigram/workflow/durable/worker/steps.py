"""One attempt at a step: its context, the call of its handler with arguments, and its end."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
import orjson
from attrs import evolve, frozen

from lexigram.concurrency import is_retryable, time_limit
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.durable import ArtifactProtocol, ArtifactType, RunStatus
from lexigram.contracts.workflow.limits import MAX_TEXT_LENGTH, check_text
from lexigram.di.signature import is_service, parameters
from lexigram.observability import get_logger
from lexigram.sql.text import storable_text
from lexigram.workflow.durable._checks import GIVEN
from lexigram.workflow.durable.documents.artifacts import with_items
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    ChildRunsFailedError,
    HandlerMissingError,
    PlanInvalidError,
)
from lexigram.workflow.durable.models import RunStep, WorkflowRun, run_of_claim, step_of_claim
from lexigram.workflow.durable.plan import (
    Condition,
    NewRun,
    RunPlan,
    StepPlan,
    error_text,
    json_text,
)
from lexigram.workflow.durable.store.records import (
    Child,
    Claim,
    End,
    EndKind,
    Spawn,
    jitter,
    make_end,
)

if TYPE_CHECKING:
    from lexigram.workflow.durable.worker.pools import HeldRun, StepKinds

logger = get_logger(__name__)

_STICKY = 20  # steps of one run in a row; then others with the same right have their turn
_NOTHING = inspect.Parameter.empty
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class StepRunner:
    """Calls the handlers of steps. What one raises is the end of its attempt, not of the worker."""

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        kinds: StepKinds,
        functions: Mapping[str, Callable[..., Any]],
        *,
        services: Services | None,
        documents: Callable[[WorkflowRun], Awaitable[Any]] | None,
        artifacts: ArtifactBinder | None,
        progress: ProgressTrackerProtocol | None,
        failure_of: Callable[[BaseException], Awaitable[Exception | None]],
        is_stopping: Callable[[], bool],
        beat: Callable[[HeldRun], Awaitable[bool]],
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._kinds = kinds
        self._functions = functions
        self._handlers: dict[str, StepHandler] = {}
        self._services = services
        self._documents = documents
        self._artifacts = artifacts
        self._progress = progress
        self._failure_of = failure_of
        self._is_stopping = is_stopping
        self._beat = beat

    def has(self, name: str) -> bool:
        """Whether this worker has the handler."""
        return name in self._handlers or name in self._functions

    async def attempt(self, run: HeldRun, plan: RunPlan, step: StepPlan) -> End:
        """Do the step once; how it ended. Raises only what ends the worker."""
        try:
            if step.timeout is None:
                return await self._run_handler(run, plan, step)
            with time_limit(step.timeout, f"step {step.name!r}"):
                return await self._run_handler(run, plan, step)
        except BaseException as error:
            failure = await self._failure_of(error)
            if failure is None:
                raise
            end = _make_failure(run.claim, failure, self._worker_id)
            if not end.fatal:  # where it was raised is kept nowhere else
                attempt = run.claim.retry + 1
                log = logger.info if attempt < step.retries else logger.warning
                log(
                    "a step raised",
                    run=end.run_id,
                    step=step.name,
                    attempt=attempt,
                    exc_info=failure,
                )
            return end

    async def _run_handler(self, run: HeldRun, plan: RunPlan, step: StepPlan) -> End:
        claim = run.claim
        is_bare = self._artifacts is None and step.when is None and not claim.children_failed
        if is_bare and (handler := self.handler(step.handler)).takes_nothing:
            return self._make_end(run, plan, None, await handler.call({}))
        run_step = step_of_claim(claim, plan, self._worker_id)
        workflow_run = run_of_claim(claim, plan)
        artifacts = self._bind_artifacts(run_step, workflow_run, plan)
        context = run.context = self._context(run, plan, run_step, artifacts)
        if skipped := await self._find_skip_reason(claim, plan, step, artifacts):
            return self._complete(run, plan, "skipped", orjson.dumps(skipped).decode())
        handler = self.handler(step.handler)
        doc = None
        if handler.wants_document and self._documents is not None:
            doc = await self._documents(workflow_run)
        value = await handler(run_step, workflow_run, doc, step.params, context)
        return self._make_end(run, plan, context, value)

    def _bind_artifacts(
        self, run_step: RunStep, workflow_run: WorkflowRun, plan: RunPlan
    ) -> StepArtifacts | None:
        if self._artifacts is None:
            return None
        return self._artifacts.of(run_step, workflow_run, plan)

    def _context(
        self, run: HeldRun, plan: RunPlan, run_step: RunStep, artifacts: StepArtifacts | None
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

    async def _find_skip_reason(
        self, claim: Claim, plan: RunPlan, step: StepPlan, artifacts: StepArtifacts | None
    ) -> Mapping[str, Any] | None:
        """Why the handler is not called, if it is not; raises when it cannot be."""
        if claim.children_failed:
            raise await self._describe_failed_children(claim)
        if step.when is not None and not await self._is_condition_met(step.when, claim):
            return {"skipped": True, "when": step.when}
        # Runs that a step made may share its document and still make something else each.
        if artifacts is not None and claim.parent_id is None and await artifacts.complete():
            return {"skipped": True}
        return None

    async def _describe_failed_children(self, claim: Claim) -> ChildRunsFailedError:
        children = await self._engine.children(claim.run_id)
        bad = [child for child in children if child.status is not RunStatus.COMPLETED]
        first = f"; run {bad[0].run_id}: {bad[0].status_message}" if bad else ""
        return ChildRunsFailedError(
            f"{len(bad)} of the {len(children)} runs that it made failed{first}",
            details={"run_id": claim.run_id, "failed": [child.run_id for child in bad[:100]]},
            hint="retry this run: those that failed are done again",
        )

    async def _is_condition_met(self, when: str, claim: Claim) -> bool:
        condition = Condition.parse(when)
        if condition is None:
            raise PlanInvalidError(f"{when!r} is not a condition", hint="`name` or `not name`")
        if condition.name in claim.params:
            return condition.holds([claim.params])
        steps = await self._engine.steps(claim.run_id)
        before = [one.status_meta for one in steps if one.workflow_step_number < claim.step_no]
        return condition.holds(reversed(before))

    def _make_end(
        self, run: HeldRun, plan: RunPlan, context: StepContext | None, value: Any
    ) -> End:
        meta = result_text(value)
        if context is not None and context.parked is not None:
            if context.spawns:
                raise PlanInvalidError("a step cannot both be parked and make runs")
            end = make_end(run.claim, EndKind.PARKED, storable_text(context.parked))
            return evolve(end, meta=meta)
        next_no = None
        if isinstance(value, dict) and "next_step" in value:
            next_no = _find_route(run.claim, plan, value["next_step"])
        end = self._complete(run, plan, "success", meta, next_no)
        if context is not None and context.failed is not None:
            return evolve(end, kind=EndKind.FAILED, message=storable_text(context.failed))
        if context is not None and context.spawns:
            claim = run.claim
            spawns = with_items(context.spawns, plan, claim.step_no, claim.doc_id, claim.params)
            return evolve(end, spawns=spawns, sticky=False)
        return end

    def _complete(
        self,
        run: HeldRun,
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
            and not self._is_stopping()
            and run.why is None
            and run.pool.selection.takes(plan.steps[following].queue)
            and self._kinds.knows(plan.steps[following].requires)
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

    def handler(self, name: str) -> StepHandler:
        """The function with this name; raises HandlerMissingError."""
        function = self._functions.get(name)
        if function is None:
            raise HandlerMissingError(
                f"this worker has no handler {name!r}",
                details={"handler": name, "worker": self._worker_id},
                hint="register it, or leave the type to workers that have it",
            )
        known = self._handlers.get(name)
        if known is None:
            known = self._handlers[name] = StepHandler(name, function, self._services)
        return known


class Services(Protocol):
    """What is needed of a container: its resolver."""

    def sees(self, service: Any, /) -> bool: ...

    def entry(self, func: Callable[..., Any], /, *, given: Sequence[str] = ()) -> Any: ...


class StepArtifacts(Protocol):
    """The artifacts that one step reads and writes, bound to its run."""

    def artifact(self, kind: ArtifactType, name: str | None = None, /) -> ArtifactProtocol:
        """One artifact; see ``StepContextProtocol.artifact``."""
        ...

    async def complete(self) -> bool:
        """True when all that the step makes exists and the step is not needed."""
        ...


class ArtifactBinder(Protocol):
    """Gives each step its artifacts; None where a step has none."""

    def of(
        self, run_step: RunStep, workflow_run: WorkflowRun, plan: RunPlan, /
    ) -> StepArtifacts | None: ...


@frozen(kw_only=True)
class Progress:
    """The progress that a step reported."""

    current: int
    total: int
    message: str = ""


class StepContext:
    """The running step, for its handler: the parameter ``ctx``."""

    def __init__(
        self,
        run_step: RunStep,
        *,
        heartbeat: Callable[[], Awaitable[bool]],
        progress: ProgressTrackerProtocol | None = None,
        plan: RunPlan | None = None,
        children: Callable[[int | None], Awaitable[Sequence[Child]]] | None = None,
        answer: str | None = None,
        artifacts: StepArtifacts | None = None,
    ) -> None:
        self.run_step = run_step
        self._heartbeat = heartbeat
        self._progress = progress
        self._plan = plan
        self._children = children
        self._answer = answer
        self._artifacts = artifacts
        # set by the worker when a cancel of the run was requested
        self.cancelled = False
        # requests of the handler, read by the worker at its end
        self.spawns: list[Spawn] = []
        self.parked: str | None = None
        self.failed: str | None = None
        # the last one; the worker shows those of all running steps
        self.reported: Progress | None = None

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.run_step.retry + 1

    @property
    def idempotency_key(self) -> str:
        """The same in each attempt at this step, also after a crash; of no other step here."""
        return f"durable-step-{self.run_step.id}"

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost and the work counts nothing.

        The worker does this by itself. It is for handlers that must know, before something that
        cannot be undone, that the step is still theirs.
        """
        return await self._heartbeat()

    async def progress(self, current: int, total: int, message: str = "") -> None:
        """Report the progress of the step: ``Worker.progress`` has it while the step runs.

        A worker with a progress tracker updates that too, under the id ``step-<id of the step>``.
        """
        self.reported = Progress(current=current, total=total, message=message)
        if self._progress is not None:
            await self._progress.update(f"step-{self.run_step.id}", current, total, message)

    def artifact(self, kind: ArtifactType, name: str | None = None) -> ArtifactProtocol:
        """The artifact of this document; see ``StepContextProtocol.artifact``."""
        if self._artifacts is None:
            raise PlanInvalidError(
                f"step {self.run_step.workflow_step_name!r} has no artifacts here",
                details={"step": self.run_step.workflow_step_name, "artifact": str(kind)},
                hint="give the worker artifacts, and the run a document",
            )
        return self._artifacts.artifact(kind, name)

    def fail(self, reason: str) -> None:
        """Fail this step permanently and let the run continue.

        It continues at the step that the handler returns as ``next_step``, else at the one that
        follows; without one the run fails. Raise instead to have the step tried again.
        """
        self.failed = str(reason)[:MAX_TEXT_LENGTH]

    def spawn(self, steps: RunPlan | Sequence[str], runs: Sequence[NewRun]) -> None:
        """Make runs when this step ends; the next step is claimed when all of them are final.

        ``steps`` is their plan, or the names of steps of this one. They belong to this run: a
        cancel, pause or retry of it reaches them, its group does not count them, and what they
        do not say (document, batch, tenant) they have from it; their priority is added to its.
        A step that fails makes none. Without any run the next step is claimed at once, and gathers
        nothing. When one of them fails the others go on; then this run
        fails at the next step, and a retry begins with those that failed.
        """
        if self._plan is None or self.run_step.is_last_step:
            raise PlanInvalidError(
                f"step {self.run_step.workflow_step_name!r} makes runs and is the last one",
                details={"step": self.run_step.workflow_step_name},
                hint="add a step after it: it is claimed when they are final",
            )
        if any(run.idempotency_key is not None for run in runs):
            raise PlanInvalidError(
                "a run that a step makes has no idempotency_key",
                hint="leave it out: the end of a step counts once, so they are made once",
            )
        for number, run in enumerate(runs):
            json_text(f"runs[{number}].params", run.params)
        plan = steps if isinstance(steps, RunPlan) else self._plan.part(steps)
        self.spawns.append(Spawn(plan=plan, runs=list(runs)))

    async def children(self, step: str | None = None) -> Sequence[Child]:
        """The runs that a step of this run made, in the order they were given.

        None is the step before, if it called ``spawn``, else the last one that made some.
        """
        if self._children is None:
            return ()
        number = None
        if step is not None and self._plan is not None:
            number = self._plan.number(step)
            if number is None:
                raise PlanInvalidError(
                    f"the plan has no step {step!r}",
                    hint=f"its steps are {[one.name for one in self._plan.steps]}",
                )
        return await self._children(number)

    def park(self, reason: str) -> None:
        """Wait for ``engine.answer`` after this attempt: ``return ctx.park("who shall pay?")``.

        The run holds no slot and no lock meanwhile. Then the step comes again, with the answer.
        """
        check_text("reason", storable_text(reason))
        self.parked = reason

    @property
    def answered(self) -> bool:
        """True when the step was parked and there is an answer."""
        return self._answer is not None

    @property
    def answer(self) -> Any:
        """The answer; None before it came."""
        return None if self._answer is None else orjson.loads(self._answer)


class StepHandler:
    """One function, inspected once.

    Its parameters may be ``run_step``, ``workflow_run``, ``doc``, ``step_params`` and ``ctx``; any
    parameter of the step or the run by its name; and services by their type, which live in
    a scope of this call. A plain function runs in a thread.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], services: Services | None = None
    ) -> None:
        self.name = name
        self._function = function
        signature = inspect.signature(function)
        self._takes_all = any(p.kind in _VARIABLE for p in signature.parameters.values())
        injected: set[str] = set() if services is None else _find_injected(function, services)
        self._defaults = {
            item.name: item.default
            for item in signature.parameters.values()
            if item.kind not in _VARIABLE and item.name not in injected
        }
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._entry: Callable[..., Any] | None = None
        if injected and services is not None:
            self._entry = services.entry(function, given=list(self._defaults))

    @property
    def takes_nothing(self) -> bool:
        """Whether it is called without any value."""
        return not self._defaults and not self._takes_all

    @property
    def wants_document(self) -> bool:
        """Whether ``doc`` must be loaded."""
        return "doc" in self._defaults or self._takes_all

    async def __call__(
        self,
        run_step: RunStep,
        workflow_run: WorkflowRun,
        doc: Any,
        step_params: Mapping[str, Any],
        ctx: StepContext,
    ) -> Any:
        """Call it once; its exception reaches the caller."""
        known = {
            "run_step": run_step,
            "workflow_run": workflow_run,
            "doc": doc,
            "step_params": dict(step_params),
            "ctx": ctx,
        }
        return await self.call({**workflow_run.run_params, **step_params, **known})

    async def call(self, values: Mapping[str, Any]) -> Any:
        """Call it with those of the values that it names."""
        call = self._prepare(values)
        if self._is_async:
            return await call()
        # A thread cannot be cancelled: the step is over when it is.
        result = await anyio.to_thread.run_sync(call)
        return await result if inspect.isawaitable(result) else result

    def _prepare(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        given = {}
        for name, default in self._defaults.items():
            value = values.get(name, default)
            if value is _NOTHING:
                raise PlanInvalidError(
                    f"the handler {self.name!r} needs {name!r}, which is neither a parameter of"
                    " the step or the run nor a service",
                    details={"handler": self.name, "parameter": name},
                    hint=f"add {name} to the step's parameters, or give it a default",
                )
            given[name] = value
        if self._entry is not None:
            return functools.partial(self._entry, *given.values())
        if self._takes_all:
            return functools.partial(self._function, **{**values, **given})
        return functools.partial(self._function, **given)


def result_text(value: Any) -> str | None:
    """What a handler returned: its dict, or the value under ``result``; None is nothing."""
    if value is None:
        return None
    if isinstance(value, dict):
        return json_text("result", value)
    return f'{{"result":{json_text("result", value)}}}'


def _find_route(claim: Claim, plan: RunPlan, name: Any) -> int:
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


def _make_failure(claim: Claim, error: Exception, worker_id: str) -> End:
    facts = {
        "error": type(error).__name__,
        "text": storable_text(str(error)[:MAX_TEXT_LENGTH]),
        "worker_id": worker_id,
        "doc_id": claim.doc_id,
        "attempt": claim.retry + 1,
    }
    return End(
        run_id=claim.run_id,
        step_no=claim.step_no,
        lease=claim.lease,
        kind=EndKind.ERROR,
        message=error_text(error),
        meta=orjson.dumps(facts).decode(),
        jitter=jitter(),
        is_plain=claim.is_plain,
        fatal=not is_retryable(error),
    )


def _find_injected(function: Callable[..., Any], services: Services) -> set[str]:
    """Names of the parameters that the container fills."""
    return {
        item.name
        for item in parameters(function)
        if item.name not in GIVEN and is_service(item, services.sees)
    }
