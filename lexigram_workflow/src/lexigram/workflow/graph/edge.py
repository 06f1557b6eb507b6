"""A way from one node to the next, taken when its condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Condition: TypeAlias = Callable[[Any], Any]
Each: TypeAlias = Callable[[Any], Iterable[Mapping[str, Any]]]

# A condition that cannot be answered from this state is not met.
_UNANSWERED = (KeyError, TypeError, AttributeError, ValueError)


def holds(condition: Condition | None, state: Any) -> bool:
    """True without a condition; False when it does not hold or cannot be answered."""
    if condition is None:
        return True
    try:
        return bool(condition(state))
    except _UNANSWERED:
        return False


class WorkflowEdge:
    """``source`` to ``target``; ``is_active=`` is another name for ``condition=``.

    ``each`` makes it a fan-out at run time: it returns one mapping per piece of work, and the
    target runs once for each of them, with its keys laid over the state. None at all: the run goes
    on behind the target, with empty lists where its writes are appended. Edges are equal by source, target, label and is_parallel.
    """

    __slots__ = ("condition", "each", "is_parallel", "label", "source", "target")

    def __init__(
        self,
        source: str,
        target: str,
        condition: Condition | None = None,
        label: str = "",
        is_parallel: bool = False,
        *,
        is_active: Condition | None = None,
        each: Each | None = None,
    ) -> None:
        if condition is not None and is_active is not None:
            raise TypeError("condition= and is_active= are the same: give one of them")
        put = object.__setattr__
        put(self, "source", source)
        put(self, "target", target)
        put(self, "condition", condition if is_active is None else is_active)
        put(self, "label", label)
        # Says that the target may run beside its siblings; the engine sees that by itself.
        put(self, "is_parallel", is_parallel)
        put(self, "each", each)

    source: str
    target: str
    condition: Condition | None
    label: str
    is_parallel: bool
    each: Each | None

    def is_active(self, state: Any) -> bool:
        """True without a condition; False when the state lacks what the condition looks at."""
        return holds(self.condition, state)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an edge does not change; {name} is set when it is made")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkflowEdge):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        more = f", label={self.label!r}" if self.label else ""
        return f"WorkflowEdge({self.source!r}, {self.target!r}{more})"

    def _facts(self) -> tuple[str, str, str, bool]:
        return self.source, self.target, self.label, self.is_parallel
