"""States, and what leads from one to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

# Called without arguments, sync or async; a false answer refuses the transition.
Guard: TypeAlias = Callable[[], "Awaitable[bool] | bool"]
# Called without arguments, sync or async.
StateHook: TypeAlias = Callable[[], "Awaitable[Any] | Any"]
# Called with the event and the new state, sync or async.
TransitionHook: TypeAlias = Callable[[str, str], "Awaitable[Any] | Any"]


@frozen
class Transition:
    """Where an event leads."""

    event: str
    target: str
    guard: Guard | None = None
    on_transition: TransitionHook | None = None


@frozen
class State:
    """A state and the events it answers to."""

    name: str
    # by event
    transitions: Mapping[str, Transition] = field(factory=dict[str, Transition])
    on_enter: StateHook | None = None
    on_exit: StateHook | None = None
