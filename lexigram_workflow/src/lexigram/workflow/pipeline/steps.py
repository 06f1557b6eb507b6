"""The steps everybody needs: a function, a choice, several at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

import anyio

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok
from lexigram.workflow.errors import (
    GraphProblem,
    HumanInputRequiredError,
    PipelineExecutionError,
)
from lexigram.workflow.nodes.function_node import first_and_services
from lexigram.workflow.pipeline.base import (
    PipelineStep,
    Place,
    Resilience,
    as_result,
    attempt,
    changed,
)
from lexigram.workflow.pipeline.context import PipelineContext, StepExecutionResult, StepStatus


class FunctionStep(PipelineStep):
    """Calls ``func(context, ...)``, sync or async; what it asks for besides the context comes
    from the container of the pipeline.

    ``skip_condition(context)``, ``error_handler(context, error)`` and ``cleanup_func(context)``
    are what ``should_skip``, ``on_error`` and ``cleanup`` are to a subclass.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        dependencies: Sequence[str] | None = None,
        skip_condition: Callable[[PipelineContext], Any] | None = None,
        error_handler: Callable[[PipelineContext, Exception], Any] | None = None,
        cleanup_func: Callable[[PipelineContext], Any] | None = None,
        timeout: float | None = None,
        resilience: Resilience | None = None,
    ) -> None:
        super().__init__(name, dependencies, timeout, resilience)
        self._first, self._services = first_and_services(func, "the context")
        self._func = func
        self._call = func
        self._skip_condition = skip_condition
        self._error_handler = error_handler
        self._cleanup_func = cleanup_func
        around = (timeout, resilience, skip_condition, error_handler, cleanup_func)
        mine = (type(self).should_skip, type(self).on_error, type(self).cleanup)
        ours = (FunctionStep.should_skip, FunctionStep.on_error, FunctionStep.cleanup)
        self._is_plain = all(item is None for item in around) and mine == ours

    @property
    def is_plain(self) -> bool:
        """True when there is nothing around the function."""
        return self._is_plain

    @property
    def services(self) -> tuple[str, ...]:
        """The parameters that a container must fill."""
        return self._services

    async def execute(self, context: PipelineContext) -> Any:
        """Call the function."""
        value = self._call(context)
        return await value if inspect.isawaitable(value) else value

    async def should_skip(self, context: PipelineContext) -> Any:
        """Ask ``skip_condition``."""
        return False if self._skip_condition is None else await _of(self._skip_condition, context)

    async def on_error(self, context: PipelineContext, error: Exception) -> Any:
        """Ask ``error_handler``."""
        return (
            None if self._error_handler is None else await _of(self._error_handler, context, error)
        )

    async def cleanup(self, context: PipelineContext) -> Any:
        """Call ``cleanup_func``."""
        return None if self._cleanup_func is None else await _of(self._cleanup_func, context)

    def bind(self, place: Place) -> Self:
        """With its services from the container."""
        if not self._services:
            return self
        if place.container is None:
            asked = ", ".join(self._services)
            place.problems.append(
                GraphProblem(
                    f"step {self.name!r} asks for {asked}, and there is no container",
                    "give Pipeline(container=...), or list it in WorkflowModule.configure(workflows=...)",
                )
            )
            return self
        try:
            entry = place.container.entry(self._func, given=[self._first])
        except LexigramError as error:
            fix = error.hint or "bind it in a module this one can see"
            place.problems.append(GraphProblem(f"step {self.name!r}: {error}", fix))
            return self
        bound: Self = changed(self, {"_call": entry})
        return bound


class ConditionalStep(PipelineStep):
    """Runs one of two steps. ``condition(context)`` may be async and returns a bool or a Result.

    Without a ``false_step`` the result is None then. A run that is resumed goes the same way.
    """

    def __init__(
        self,
        name: str,
        condition: Callable[[PipelineContext], Any],
        true_step: PipelineStep,
        false_step: PipelineStep | None = None,
        dependencies: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, dependencies, timeout)
        self._condition = condition
        self._true_step = true_step
        self._false_step = false_step

    @property
    def inner_steps(self) -> Sequence[PipelineStep]:
        """Both ways."""
        return [step for step in (self._true_step, self._false_step) if step is not None]

    @property
    def ways(self) -> list[tuple[str, PipelineStep]]:
        """The ways with their labels, for pictures."""
        named = [("yes", self._true_step), ("no", self._false_step)]
        return [(label, step) for label, step in named if step is not None]

    async def execute(self, context: PipelineContext) -> Any:
        """Decide, then run the one step."""
        ways = context.progress.ways
        if self.name not in ways:
            said = as_result(await _of(self._condition, context))
            if isinstance(said, Err):
                return said
            ways[self.name] = bool(said.value)
            recorder = context.progress.recorder
            if recorder is not None:  # before anything is done about it
                await recorder.share((), recorder.step)
        step = self._true_step if ways[self.name] else self._false_step
        if step is None:
            return Ok(None)
        done = await attempt(step, context)
        return Ok(done.result) if done.error is None else Err(done.error)

    def bind(self, place: Place) -> Self:
        """With both ways bound."""
        other = None if self._false_step is None else self._false_step.bind(place)
        facts = {"_true_step": self._true_step.bind(place), "_false_step": other}
        bound: Self = changed(self, facts)
        return bound


class ParallelStep(PipelineStep):
    """Runs steps side by side; the result is the list of theirs, in the order of the steps.

    With ``fail_fast`` the first failure cancels the others, whose cleanup still runs; without,
    all end first. Steps that ended are kept: a resumed run does not repeat them.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[PipelineStep],
        dependencies: Sequence[str] | None = None,
        *,
        fail_fast: bool = True,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, dependencies, timeout)
        self._steps = list(steps)
        self._fail_fast = fail_fast

    @property
    def inner_steps(self) -> Sequence[PipelineStep]:
        """The steps, in order."""
        return self._steps

    async def execute(self, context: PipelineContext) -> Any:
        """Run them all."""
        done: dict[str, StepExecutionResult] = {}
        failed: list[StepExecutionResult] = []
        pauses: list[HumanInputRequiredError] = []
        broken: list[Exception] = []
        host = asyncio.current_task()

        async def run(step: PipelineStep) -> None:
            try:
                result = done[step.name] = await attempt(step, context, host)
            except HumanInputRequiredError as pause:
                pauses.append(pause)
                return
            except Exception as error:  # noqa: BLE001 - what could not be kept; raised below
                broken.append(error)
                group.cancel_scope.cancel()
                return
            if result.status is StepStatus.FAILED:
                failed.append(result)
                if self._fail_fast:
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for step in self._steps:
                group.start_soon(run, step, name=step.name)
        if broken:
            raise broken[0]
        if failed:
            first = failed[0]
            error = PipelineExecutionError(first.step_name, first.error)
            for other in failed[1:]:
                error.add_note(f"step {other.step_name!r} failed too: {other.error}")
            return Err(error)
        if pauses:
            raise pauses[0]
        return Ok([done[step.name].result for step in self._steps])

    def bind(self, place: Place) -> Self:
        """With its steps bound."""
        bound: Self = changed(self, {"_steps": place.all(self._steps)})
        return bound


async def _of(function: Callable[..., Any], *args: Any) -> Any:
    value = function(*args)
    return await value if inspect.isawaitable(value) else value
