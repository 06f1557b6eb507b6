"""A saga as claims: its steps and, when one of them fails, the compensations of those before."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import orjson

from lexigram.concurrency import time_limit
from lexigram.contracts.core.result import Err
from lexigram.contracts.workflow.types import SagaState, SagaStep
from lexigram.workflow._results import may_retry
from lexigram.workflow.durable.errors import (
    OrchestrationChangedError,
    OrchestrationFailedError,
    PlanInvalidError,
)
from lexigram.workflow.durable.models import RunStep, WorkflowRun
from lexigram.workflow.durable.orchestrated.flow import (
    END,
    SAGA,
    StepTerms,
    check_terms,
    facts_of,
    read,
    write,
)
from lexigram.workflow.durable.plan import RunPlan, StepPlan
from lexigram.workflow.durable.store.kept import KeptStore
from lexigram.workflow.durable.worker.steps import StepContext
from lexigram.workflow.saga._progress import CUT_OFF, Progress
from lexigram.workflow.saga.base import AbstractSaga
from lexigram.workflow.saga.errors import SagaError, SagaStepError, describe

MakeSaga = Callable[[Mapping[str, Any]], Awaitable[AbstractSaga[Any]]]


class SagaFlow:
    """The factory of a saga, called for every step, and its terms."""

    kind: ClassVar[str] = "saga"

    def __init__(
        self, name: str, make: MakeSaga, terms: StepTerms | None, steps: Mapping[str, StepTerms]
    ) -> None:
        self.name = name
        self.make = make
        # None: the retries that each step declares
        self._terms = terms
        self._steps = dict(steps)

    async def begin(self, given: Any) -> tuple[RunPlan, str]:
        """The plan of a saga with these arguments, and what its run begins with."""
        if given is not None and not isinstance(given, Mapping):
            raise PlanInvalidError(
                f"{self.name!r} is a saga: its input is its arguments",
                hint='give a mapping, such as {"order_id": "o-1"}',
            )
        arguments = dict(cast("Mapping[str, Any]", given or {}))
        try:
            saga = await self.make(arguments)
        except TypeError as error:
            raise PlanInvalidError(
                f"the saga {self.name!r} cannot be made with {', '.join(arguments) or 'nothing'}:"
                f" {error}",
                details={"name": self.name, "arguments": list(arguments)},
                hint="its input is its arguments, by their names",
            ) from error
        check_terms(self.name, self._steps, (step.name for step in saga.steps))
        data = Progress(version=saga.VERSION, snapshot=dict(saga.snapshot())).to_data()
        start = write({"input": arguments, "state": SagaState.RUNNING.value, **data}, self.name)
        return self._plan(saga), start

    def timeout(self, step: str) -> float | None:
        """Seconds for an attempt."""
        terms = self._steps.get(step, self._terms)
        return None if terms is None else terms.timeout

    def _plan(self, saga: AbstractSaga[Any]) -> RunPlan:
        """Forwards; undoing; undoing again what could not be undone; the end."""
        facts = facts_of(self.kind, self.name, saga.VERSION, shape_of(saga.steps))

        def step(name: str, what: str, of: SagaStep, *, once: bool = False) -> StepPlan:
            terms = self._steps.get(of.name, self._terms)
            if terms is None:
                terms = StepTerms(retries=of.max_retries + 1, backoff=of.retry_delay)
            params = {**facts, "do": what, "step": of.name}
            made = terms.step(name, SAGA, self.kind, params)
            return _once(made) if once else made

        back = [item for item in reversed(saga.steps) if item.compensation is not None]
        steps = [step(item.name, "do", item) for item in saga.steps]
        steps += [step(undo(item.name), "undo", item, once=not item.idempotent) for item in back]
        steps += [step(again(item.name), "again", item, once=True) for item in back]
        end = StepPlan(
            name=END, step_type=self.kind, handler=SAGA, params={**facts, "do": "end", "step": ""}
        )
        names = [item.name for item in steps]
        if len(set(names)) < len(names):
            raise PlanInvalidError(
                f"the steps of saga {self.name!r} and what undoes them share names: {names}",
                hint='"undo <step>" and "undo <step> again" undo a step: choose other names',
            )
        return RunPlan(workflow_id=self.name, steps=[*steps, end])


class SagaTurns:
    """The handler of all steps of sagas.

    How far a saga is, its snapshot included, is kept with the end of each step.
    """

    def __init__(self, kept: KeptStore, find: Callable[[str], Awaitable[SagaFlow]]) -> None:
        self._kept = kept
        self._find = find

    async def step(
        self,
        run_step: RunStep,
        workflow_run: WorkflowRun,
        step_params: dict[str, Any],
        ctx: StepContext,
    ) -> dict[str, Any] | None:
        """One claim: a step, the undoing of one, or the end."""
        flow = await self._find(step_params["orchestration"])
        work = await self._load(flow, workflow_run, step_params)
        name = step_params["step"]
        match step_params["do"]:
            case "do":
                return await self._forward(work, name, run_step, ctx)
            case "undo":
                return await self._undo(work, name, run_step, ctx)
            case "again":
                return await self._again(work, name, run_step, ctx)
            case _:
                self._end(work)
                return None

    async def _load(self, flow: SagaFlow, run: WorkflowRun, begun: Mapping[str, Any]) -> _SagaWork:
        kept = await self._kept.last(run.id)
        document = read(run.run_params["start"] if kept is None else kept["kept"])
        saga = await flow.make(document["input"])
        version = int(document["version"])
        if not saga.is_compatible_with(version):
            upgraded = saga.upgrade(version, dict(document))
            if upgraded is None:
                raise _describe_change(flow.name, saga, begun, "no upgrade from there")
            document = {**document, **upgraded}
        if begun["shape"] != shape_of(saga.steps):
            raise _describe_change(flow.name, saga, begun, "other steps")
        state = SagaState(document["state"])
        data = {**document, "version": saga.VERSION}
        progress = Progress.from_data(saga.get_id(), state, data)
        saga.restore(progress.snapshot)
        return _SagaWork(flow, saga, progress, document["input"])

    async def _forward(
        self, work: _SagaWork, name: str, run_step: RunStep, ctx: StepContext
    ) -> dict[str, Any]:
        progress = work.progress
        failure = await work.run_limited(name, lambda: work.saga.try_step(name, ctx.attempt))
        if failure is None:
            progress.done.append(name)
            if len(progress.done) == len(work.saga.steps):
                progress.state = SagaState.COMPLETED
                return {"ran": [name], **work.to_result(END)}
            return {"ran": [name], **work.to_result()}
        if _may_retry(failure, ctx, run_step):
            raise _error(name, failure)
        cut_off = await self._kept.was_cut_off(run_step.workflow_run_id, _number(run_step))
        progress.begin_undo(name, failure.error, was_cut_off=cut_off)
        progress.state = SagaState.COMPENSATING
        ctx.fail(_error_text(name, failure))
        return {"failed": name, "error": progress.error, **work.to_result(work.next_undo())}

    async def _undo(
        self, work: _SagaWork, name: str, run_step: RunStep, ctx: StepContext
    ) -> dict[str, Any]:
        progress, step = work.progress, work.step(name)
        if not step.idempotent and await self._kept.was_cut_off(
            run_step.workflow_run_id, _number(run_step)
        ):
            failure: Err[Any] | None = Err(CUT_OFF)
        else:
            failure = await work.run_undo(name, ctx.attempt)
            if failure is not None and _may_retry(failure, ctx, run_step):
                raise _error(name, failure)
        progress.end_undo(name, failure)
        if failure is None:
            return {"undone": name, **work.to_result(work.next_undo())}
        ctx.fail(_error_text(name, failure))
        return {
            "not_undone": name,
            "error": progress.not_undone[name],
            **work.to_result(work.next_undo()),
        }

    async def _again(
        self, work: _SagaWork, name: str, run_step: RunStep, ctx: StepContext
    ) -> dict[str, Any]:
        """Wait as a failed run until it is retried; a retry calls the compensation once more."""
        if not await self._kept.has_failed(run_step.workflow_run_id, _number(run_step)):
            raise work.failure()
        failure = await work.run_undo(name, ctx.attempt)
        work.progress.end_undo(name, failure)
        if failure is not None:
            raise work.failure()
        return {"undone": name, **work.to_result(work.next_undo())}

    def _end(self, work: _SagaWork) -> None:
        if work.progress.state is SagaState.COMPLETED:
            return  # what the step before left is the result
        raise work.failure()


class _SagaWork:
    """A saga that was made for one claim, and how far it is."""

    def __init__(
        self, flow: SagaFlow, saga: AbstractSaga[Any], progress: Progress, given: Mapping[str, Any]
    ) -> None:
        self.flow = flow
        self.saga = saga
        self.progress = progress
        self.given = given

    def step(self, name: str) -> SagaStep:
        return next(step for step in self.saga.steps if step.name == name)

    def to_result(self, next_step: str | None = None) -> dict[str, Any]:
        """What the next claim needs, and where it is."""
        progress = self.progress
        progress.snapshot = dict(self.saga.snapshot())
        document = {"input": self.given, "state": progress.state.value, **progress.to_data()}
        text = write(document, f"saga {self.flow.name!r}")
        return {"kept": text} if next_step is None else {"kept": text, "next_step": next_step}

    def next_undo(self) -> str:
        """The step of the plan that undoes what is next; what could not be undone comes last."""
        progress = self.progress
        has_undo = {step.name for step in self.saga.steps if step.compensation is not None}
        progress.undo = [name for name in progress.undo if name in has_undo]
        if progress.undo:
            return undo(progress.undo[0])
        left = [step.name for step in reversed(self.saga.steps) if step.name in progress.not_undone]
        return again(left[0]) if left else END

    async def run_undo(self, name: str, attempt: int) -> Err[Any] | None:
        reason = self.progress.error or ""
        return await self.run_limited(
            name, lambda: self.saga.try_compensation(name, reason, attempt)
        )

    async def run_limited(
        self, name: str, call: Callable[[], Awaitable[Err[Any] | None]]
    ) -> Err[Any] | None:
        """Not by the worker: a step that takes too long has failed, and the others are undone."""
        try:
            with time_limit(self.flow.timeout(name), repr(name)):
                return await call()
        except TimeoutError as error:
            return Err(error)

    def failure(self) -> OrchestrationFailedError:
        progress = self.progress
        error = SagaError(
            progress.failed_step or "",
            progress.error,
            saga_id=self.saga.get_id(),
            compensation_errors=progress.not_undone,
        )
        return OrchestrationFailedError(
            error.message,
            details={"failed": progress.failed_step, "not_undone": dict(progress.not_undone)},
            hint="retry the run to undo them again, or undo them by hand"
            if progress.not_undone
            else "everything it had done is undone: submit it anew",
        )


def undo(name: str) -> str:
    """The step of a plan that undoes a step."""
    return f"undo {name}"


def again(name: str) -> str:
    """The step of a plan that undoes a step for which that failed."""
    return f"undo {name} again"


def shape_of(steps: Sequence[SagaStep]) -> str:
    """A digest of what a stored run must find again."""
    facts = [[step.name, step.compensation is not None, step.idempotent] for step in steps]
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()


def _once(step: StepPlan) -> StepPlan:
    return StepPlan(
        name=step.name,
        step_type=step.step_type,
        handler=step.handler,
        pool=step.pool,
        resource_key=step.resource_key,
        params=step.params,
    )


def _describe_change(
    name: str, saga: AbstractSaga[Any], begun: Mapping[str, Any], why: str
) -> OrchestrationChangedError:
    return OrchestrationChangedError(
        f"the run began with version {begun['version']} of saga {name!r}, which is version"
        f" {saga.VERSION} here, with {why}",
        details={"name": name, "version": saga.VERSION, "begun": dict(begun)},
        hint="retry it with workers that have the old one; raise VERSION and define upgrade()"
        " when only data changes",
    )


def _may_retry(failure: Err[Any], ctx: StepContext, step: RunStep) -> bool:
    return ctx.attempt < step.retries and may_retry(failure)


def _error(name: str, failure: Err[Any]) -> Exception:
    error: Any = failure.error
    made = SagaStepError(_error_text(name, failure))
    if isinstance(error, BaseException):
        made.__cause__ = error
    return made


def _error_text(name: str, failure: Err[Any]) -> str:
    return f"step {name!r} failed: {describe(failure.error)}"


def _number(step: RunStep) -> int:
    return step.workflow_step_number
