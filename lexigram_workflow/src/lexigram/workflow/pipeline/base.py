"""What a step of a pipeline is, and how one is run."""

from __future__ import annotations

import asyncio
import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, Self

import anyio

from lexigram import clock
from lexigram.concurrency import as_failure, call
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.workflow.errors import (
    GraphProblem,
    HumanInputRequiredError,
    PipelineStepError,
    WorkflowTimeoutError,
)
from lexigram.workflow.nodes.function_node import Services
from lexigram.workflow.pipeline.context import PipelineContext, StepExecutionResult, StepStatus

RESUMED = "Resumed from checkpoint"
CONDITION = "Condition not met"
CANCELLED = "Cancelled"

_SKIP: Any = object()

_log = logging.getLogger(__name__)


class Resilience(Protocol):
    """What protects a step: a resilience pipeline, a retry policy, a timeout."""

    async def execute(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...


class PipelineStep(ABC):
    """One step: subclass it and define ``execute``; the other methods have a sound default.

    ``timeout`` is for ``execute``, all tries of ``resilience`` included, and for each call of the
    other methods. Methods may return a plain value instead of a Result; an exception is an Err.
    """

    def __init__(
        self,
        name: str,
        dependencies: Sequence[str] | None = None,
        timeout: float | None = None,
        resilience: Resilience | None = None,
    ) -> None:
        self._name = name
        self.dependencies = tuple(dependencies or ())
        self.timeout = timeout
        self.resilience = resilience

    @property
    def name(self) -> str:
        """Unique within the pipeline, steps inside of others included."""
        return self._name

    @property
    def is_plain(self) -> bool:
        """True when there is nothing around ``execute``: no limit, no protection, no hook."""
        cls = type(self)
        return (
            self.timeout is None
            and self.resilience is None
            and cls.should_skip is PipelineStep.should_skip
            and cls.on_error is PipelineStep.on_error
            and cls.cleanup is PipelineStep.cleanup
        )

    @property
    def inner_steps(self) -> Sequence[PipelineStep]:
        """The steps inside this one."""
        return ()

    @abstractmethod
    async def execute(self, context: PipelineContext) -> Any:
        """Do the work. May be called again after a crash or a retry."""

    async def should_skip(self, context: PipelineContext) -> Any:
        """True or Ok(True) leaves the step out."""
        return False

    async def on_error(self, context: PipelineContext, error: Exception) -> Any:
        """Recover: a value or Ok(value) becomes the result. None, Err or a raise: it failed."""
        return None

    async def cleanup(self, context: PipelineContext) -> Any:
        """Called when a step that began is over, however it ended; an Err fails the step."""
        return None

    def bind(self, place: Place) -> Self:
        """This step as it runs in a place: with its services, its store, its approvals."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"


class Place:
    """Where a pipeline runs: what its steps can have. Problems are noted, not raised."""

    def __init__(
        self,
        container: Services | None = None,
        approvals: ApprovalProtocol | None = None,
        store: CheckpointStoreProtocol | None = None,
        *,
        every_step: bool = False,
    ) -> None:
        self.container = container
        self.approvals = approvals
        # for runs inside steps; None: they keep their own
        self.store = store
        self.every_step = every_step
        self.problems: list[GraphProblem] = []

    def all(self, steps: Sequence[PipelineStep]) -> list[PipelineStep]:
        """The steps as they run here."""
        return [step.bind(self) for step in steps]


def changed(step: PipelineStep, facts: Mapping[str, Any]) -> Any:
    """A copy with other attributes."""
    other = copy.copy(step)
    vars(other).update(facts)
    return other


async def attempt(
    step: PipelineStep, context: PipelineContext, host: asyncio.Task[Any] | None = None
) -> StepExecutionResult:
    """Run one step with everything around it, note how it went, and keep that.

    Only a pause, a failure to keep it and cancellation are raised. ``host`` is the task that runs
    steps side by side, where this is one of them.
    """
    name, progress = step.name, context.progress
    if name in progress.finished:
        done = context.executions[name] = resumed(name, context)
        return done
    started = monotonic()
    outcome: Any
    # With nothing around it, the rest of this module is for nothing.
    work = step.execute if step.is_plain else partial(_with_all_around, step)
    try:
        outcome = await call(work, context, host=host)
    except HumanInputRequiredError as pause:
        if not step.inner_steps:
            progress.waiting[name] = pause.due(clock.timestamp())
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to code of the user
        outcome = Err(error)
    except BaseException:
        context.executions[name] = StepExecutionResult(
            name, StepStatus.SKIPPED, skipped_reason=CANCELLED
        )
        raise
    spent = monotonic() - started
    if outcome.__class__ is Err:
        failed = as_exception(name, outcome.error)
        done = StepExecutionResult(name, StepStatus.FAILED, None, failed, spent)
    elif outcome is _SKIP:
        done = StepExecutionResult(name, StepStatus.SKIPPED, skipped_reason=CONDITION)
        progress.finished[name] = "s"
    else:
        value = outcome.value if outcome.__class__ is Ok else outcome
        done = StepExecutionResult(name, StepStatus.COMPLETED, value, None, spent)
        context.step_results[name] = value
        progress.finished[name] = "c"
    context.executions[name] = done
    if progress.recorder is not None and done.error is None:
        await progress.recorder.share([name], progress.recorder.step)
    return done


def resumed(name: str, context: PipelineContext) -> StepExecutionResult:
    """How a step went that ended in an earlier attempt at the run."""
    reason = RESUMED if context.progress.finished[name] == "c" else CONDITION
    value = context.step_results.get(name)
    return StepExecutionResult(name, StepStatus.SKIPPED, value, skipped_reason=reason)


async def _with_all_around(step: PipelineStep, context: PipelineContext) -> Any:
    skips = as_result(await _call_within_limit(step, step.should_skip, context))
    if isinstance(skips, Err):
        return skips
    return _SKIP if skips.value else await _outcome(step, context)


async def _outcome(step: PipelineStep, context: PipelineContext) -> Result[Any, Exception]:
    """Execute, recover, clean up: in this order, the last of them always."""
    try:
        outcome = await _execute(step, context)
        if isinstance(outcome, Err):
            outcome = await _recover(step, context, outcome.error)
    except HumanInputRequiredError:
        raise  # it is not over
    except BaseException:
        with anyio.CancelScope(shield=True):
            await _clean_up_cancelled(step, context)
        raise
    try:
        cleaned = as_result(await _call_within_limit(step, step.cleanup, context))
    except Exception as error:  # noqa: BLE001 - the boundary to code of the user
        cleaned = Err(error)
    if isinstance(cleaned, Ok):
        return outcome
    left = as_exception(step.name, cleaned.error)
    if isinstance(outcome, Err):
        outcome.error.add_note(f"and cleaning up failed: {left}")
        return outcome
    left.add_note(f"the step {step.name!r} itself had succeeded; cleaning up failed")
    return Err(left)


async def _clean_up_cancelled(step: PipelineStep, context: PipelineContext) -> None:
    try:
        cleaned = as_result(await _call_within_limit(step, step.cleanup, context))
    except BaseException as error:
        # the cancellation goes on, whatever this is
        if isinstance(error, KeyboardInterrupt):
            raise
        _log.exception("step %r was cancelled, and cleaning up failed", step.name)
        return
    if isinstance(cleaned, Err):
        _log.error("step %r was cancelled, and cleaning up failed: %s", step.name, cleaned.error)


async def _execute(step: PipelineStep, context: PipelineContext) -> Result[Any, Exception]:
    try:
        if step.timeout is None:
            return await _call(step, context)
        with anyio.move_on_after(step.timeout) as limit:
            return await _call(step, context)
        assert limit.cancelled_caught
        text = f"step {step.name!r} took longer than {step.timeout:g} s"
        return Err(WorkflowTimeoutError(text, step.name, hint="make it quicker, or raise timeout"))
    except HumanInputRequiredError:
        raise
    except BaseException as error:
        failure = as_failure(error)
        if failure is None:
            raise
        return Err(failure)


async def _call(step: PipelineStep, context: PipelineContext) -> Result[Any, Exception]:
    if step.resilience is None:
        result = as_result(await step.execute(context))
        return Err(as_exception(step.name, result.error)) if isinstance(result, Err) else result
    value = await step.resilience.execute(_raising, step, context)
    if isinstance(value, HumanInputRequiredError):
        raise value
    return Ok(value)


async def _raising(step: PipelineStep, context: PipelineContext) -> Any:
    """What protects a step counts exceptions: so an Err is one here, and a pause is none."""
    try:
        result = as_result(await call(step.execute, context))
    except HumanInputRequiredError as pause:
        return pause
    if isinstance(result, Err):
        raise as_exception(step.name, result.error)
    return result.value


async def _recover(
    step: PipelineStep, context: PipelineContext, error: Exception
) -> Result[Any, Exception]:
    try:
        answer = await _call_within_limit(step, step.on_error, context, error)
    except Exception as failure:  # noqa: BLE001 - the boundary to code of the user
        if failure is not error and failure.__cause__ is None and failure is not error.__cause__:
            failure.__cause__ = error
        return Err(failure)
    if answer is None:
        return Err(error)
    result = as_result(answer)
    return Err(as_exception(step.name, result.error)) if isinstance(result, Err) else result


async def _call_within_limit(step: PipelineStep, method: Callable[..., Any], *args: Any) -> Any:
    """Call what surrounds ``execute``: each call has the time limit of the step."""
    name = f"{method.__name__}() of step {step.name!r}"
    return await call(method, *args, timeout=step.timeout, name=name)


def as_result(value: Any) -> Result[Any, Any]:
    """A Result as it is, anything else in an Ok."""
    if value.__class__ is Ok or value.__class__ is Err:
        result: Result[Any, Any] = value
        return result
    return Ok(value)


def as_exception(name: str, error: Any) -> Exception:
    """The error of an Err as an exception."""
    return error if isinstance(error, Exception) else PipelineStepError(f"{name}: {error}")
