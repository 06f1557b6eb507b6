"""Have the handlers of durable runs checked with the object graph, before anything starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from lexigram.contracts.core.di import ContainerRegistrarProtocol

# Arguments that the worker passes by name, whatever their annotation.
GIVEN: Final = frozenset(
    {"run_step", "workflow_run", "doc", "step_params", "ctx", "event", "run_group", "plan"}
)


def check_handler(
    container: ContainerRegistrarProtocol, name: str, function: Callable[..., Any]
) -> None:
    """Have the arguments of a handler checked when the graph is frozen."""
    given = [item for item in inspect.signature(function).parameters if item in GIVEN]
    role = f"step handler {name!r}"
    container.check_entry(function, given=given, arguments=True, role=role, in_scope=False)
