"""One attempt at a step: its handler is called with its arguments, and its end is determined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from attrs import evolve

from lexigram.concurrency import is_retryable, time_limit
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import MAX_TEXT_LENGTH
from lexigram.observability import get_logger
from lexigram.sql.text import storable_text
from lexigram.workflow.durable._values import error_text, result_text
from lexigram.workflow.durable.documents.artifacts import with_items
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    ChildRunsFailedError,
    HandlerMissingError,
    PlanInvalidError,
)
from lexigram.workflow.durable.models import RunStep, WorkflowRun, run_of_claim, step_of_claim
from lexigram.workflow.durable.plan import Condition, RunPlan, StepPlan
from lexigram.workflow.durable.store.records import Claim, End, EndKind, jitter
from lexigram.workflow.durable.worker._kinds import StepKinds
from lexigram.workflow.durable.worker._slots import HeldRun
from lexigram.workflow.durable.worker.handlers import (
    ArtifactBinder,
    Services,
    StepArtifacts,
    StepContext,
    StepHandler,
)

logger = get_logger(__name__)

_STICKY = 20  # steps of one run in a row; then others with the same right have their turn


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
            end = end_of(run.claim, EndKind.PARKED, storable_text(context.parked))
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


def end_of(claim: Claim, kind: EndKind, message: str) -> End:
    return End(
        run_id=claim.run_id,
        step_no=claim.step_no,
        lease=claim.lease,
        kind=kind,
        message=message,
        is_plain=claim.is_plain,
    )


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
