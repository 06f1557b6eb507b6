"""How two writes to one key become one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from lexigram.workflow.errors import GraphProblem, GraphValidationError

# (value so far, value written) -> value; not called for the first write of a key.
Reducer: TypeAlias = Callable[[Any, Any], Any]

MISSING: Any = object()


def append(so_far: Any, written: Any) -> list[Any]:
    """Lists are joined, anything else becomes one more element. A new list every time."""
    before = [] if so_far is MISSING else list(so_far)
    return [*before, *written] if isinstance(written, list | tuple) else [*before, written]


def merge(so_far: Any, written: Any) -> dict[Any, Any]:
    """Mappings together; the later write wins key by key."""
    return {**({} if so_far is MISSING else so_far), **written}


def largest(so_far: Any, written: Any) -> Any:
    """The greater value."""
    return written if so_far is MISSING or written > so_far else so_far


BY_NAME: Mapping[str, Reducer] = {"append": append, "merge": merge, "max": largest}
# What a key has that nobody has written; other reducers begin with the first write.
_EMPTY: Mapping[Reducer, Callable[[], Any]] = {append: list, merge: dict}


def reducer_of(key: str, reducer: str | Reducer) -> Reducer:
    """The function for a name, or the function itself."""
    if callable(reducer):
        return reducer
    found = BY_NAME.get(reducer)
    if found is None:
        problem = GraphProblem(
            f"unknown reducer {reducer!r} for state key {key!r}",
            f"use {', '.join(map(repr, BY_NAME))} or a function (value, written) -> value",
        )
        raise GraphValidationError("a reducer is unknown", problems=[problem])
    return found


def reduced(reducer: Reducer, so_far: Any, written: Any) -> Any:
    """The value after a write; ``so_far`` is MISSING for the first one."""
    if so_far is MISSING and reducer not in _EMPTY:
        return written
    return reducer(so_far, written)


def empty_values(
    reducers: Mapping[str, Reducer], state: Mapping[str, Any], keys: Collection[str] | None
) -> dict[str, Any]:
    """Of keys without a value yet, those that begin empty; ``keys`` None: of all."""
    return {
        key: _EMPTY[reducer]()
        for key, reducer in reducers.items()
        if reducer in _EMPTY and key not in state and (keys is None or key in keys)
    }
