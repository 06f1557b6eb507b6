"""Short ways to write steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lexigram.workflow.pipeline.base import PipelineStep, Resilience
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.pipeline.steps import ConditionalStep, FunctionStep, ParallelStep


def step(
    name: str,
    func: Callable[..., Any],
    dependencies: Sequence[str] | None = None,
    timeout: float | None = None,
    resilience: Resilience | None = None,
) -> FunctionStep:
    """A FunctionStep."""
    return FunctionStep(name, func, dependencies, timeout=timeout, resilience=resilience)


def conditional(
    name: str,
    condition: Callable[[PipelineContext], Any],
    true_step: PipelineStep,
    false_step: PipelineStep | None = None,
    dependencies: Sequence[str] | None = None,
    timeout: float | None = None,
) -> ConditionalStep:
    """A ConditionalStep."""
    return ConditionalStep(name, condition, true_step, false_step, dependencies, timeout)


def parallel(
    name: str,
    steps: Sequence[PipelineStep],
    dependencies: Sequence[str] | None = None,
    *,
    fail_fast: bool = True,
    timeout: float | None = None,
) -> ParallelStep:
    """A ParallelStep."""
    return ParallelStep(name, steps, dependencies, fail_fast=fail_fast, timeout=timeout)


def pipeline_step(
    dependencies: Sequence[str] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = None,
    resilience: Resilience | None = None,
) -> Callable[[Callable[..., Any]], FunctionStep]:
    """Make the decorated function a FunctionStep with its name."""

    def decorate(func: Callable[..., Any]) -> FunctionStep:
        named: str = name or func.__name__
        return FunctionStep(named, func, dependencies, timeout=timeout, resilience=resilience)

    return decorate
