"""Marks that make functions and classes workflows: ``@workflow``, ``@saga_step``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lexigram.contracts.domain.events import DomainEvent
from lexigram.workflow.saga.steps import saga_step

__all__ = ["saga_step", "workflow"]

F = TypeVar("F", bound=Callable[..., Any])


def workflow(
    name: str | None = None,
    *,
    timeout: float | None = None,
    retries: int = 0,
    on: type[DomainEvent] | None = None,
    version: int = 1,
) -> Callable[[F], F]:
    """Mark a function or a saga class as a workflow of the application.

    A function that says it returns a Pipeline, a WorkflowEngine or a WorkflowBuilder makes the
    workflow, once, with services from the container. Any other function is the workflow: a
    pipeline of one step. An AbstractSaga is made anew for every run, from the input by name.
    ``on`` starts a run for every event of that class; the run finds it as the fact "event".
    """

    def mark(function: F) -> F:
        found: Any = function
        found.__workflow__ = True
        found.__workflow_name__ = name or found.__name__
        found.__workflow_timeout__ = timeout
        found.__workflow_retries__ = retries
        found.__workflow_on__ = on
        found.__workflow_version__ = version
        return function

    return mark
