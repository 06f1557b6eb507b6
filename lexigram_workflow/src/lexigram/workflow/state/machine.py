"""A finite state machine: one lookup per event, stored with a version that cannot be overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from lexigram.concurrency import call
from lexigram.contracts.workflow.errors import StateVersionConflictError
from lexigram.contracts.workflow.protocols import StatePersistenceProtocol
from lexigram.workflow._limits import is_time_limit
from lexigram.workflow.state._diagram import mermaid
from lexigram.workflow.state.exceptions import (
    StateConcurrencyError,
    StateDefinitionError,
    StateError,
)
from lexigram.workflow.state.models import State, Transition


class StateMachine:
    """Moves between states by events; implements ``StateMachineProtocol``.

    Order of a transition: guard, persistence, change, ``on_exit`` of the old state, ``on_enter``
    of the new one, ``on_transition``. What a guard or the persistence raises leaves everything
    as it was. Hooks run after the change: what they raise is raised, and the machine has moved.
    Transitions of several tasks run one after the other; a hook may send the next event.
    A guard or hook that takes longer than ``timeout`` seconds is cancelled and raises TimeoutError.
    With persistence, of two processes that move one machine one gets StateConcurrencyError.
    """

    def __init__(
        self,
        states: Iterable[State] | Mapping[str, State],
        initial_state: str,
        persistence: StatePersistenceProtocol | None = None,
        machine_id: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        named = cast("Mapping[str, State]", states) if isinstance(states, Mapping) else None
        listed: list[State] = list(states if named is None else named.values())  # type: ignore[arg-type]
        _check(listed, initial_state, persistence, machine_id, timeout)
        self._states = {state.name: state for state in listed}
        # By (state, event); with the target where there is nothing to ask, store or call.
        self._table: dict[tuple[str, str], tuple[Transition, str | None]] = {
            (state.name, event): (move, self._short_way(state, move, persistence))
            for state in listed
            for event, move in state.transitions.items()
        }
        self._initial = initial_state
        self._state = initial_state
        self._version = 0
        self._persistence = persistence
        self._machine_id = machine_id
        self._timeout = timeout
        self._lock = asyncio.Lock()
        # The task inside a transition, and whether it may send another event.
        self._mover: asyncio.Task[Any] | None = None
        self._has_moved = False

    @property
    def current_state(self) -> str:
        """The state as this object knows it."""
        return self._state

    @property
    def version(self) -> int:
        """How many transitions led here; 0 at the start."""
        return self._version

    @property
    def machine_id(self) -> str | None:
        """Its name in the persistence."""
        return self._machine_id

    def can_transition(self, event: str) -> bool:
        """True when the state has a transition for the event; guards are not asked."""
        return (self._state, event) in self._table

    def events(self) -> tuple[str, ...]:
        """The events the current state answers to."""
        return tuple(self._states[self._state].transitions)

    async def transition(self, event: str) -> str:
        """Move and return the new state.

        Raises StateError without a transition or when the guard refuses, and
        StateConcurrencyError when another process moved the machine meanwhile.
        """
        if not self._lock.locked():
            found = self._table.get((self._state, event))
            if found is not None and found[1] is not None:
                # No await between reading and changing, so no other task can be in between.
                self._state = found[1]
                self._version += 1
                return found[1]
        elif self._mover is asyncio.current_task():
            if not self._has_moved:
                raise StateError(
                    event,
                    self._state,
                    f"{event!r} was sent by a guard",
                    hint="a guard only answers; send the event from a hook",
                )
            try:
                return await self._move(event)
            finally:
                self._has_moved = True  # the transition around this one
        async with self._lock:
            self._mover = asyncio.current_task()
            try:
                return await self._move(event)
            finally:
                self._mover = None

    async def recover(self, machine_id: str | None = None) -> str:
        """Take over the stored state and return it; the initial one when none is stored.

        With ``machine_id`` the machine goes on as that one. Raises StateError for a stored
        state that this machine does not have; it then stays as it is.
        """
        name = machine_id or self._machine_id
        if self._persistence is None or name is None:
            raise StateDefinitionError(
                "a machine without persistence has nothing to recover",
                hint="give persistence= and machine_id=",
            )
        async with self._lock:
            records = await self._persistence.load_transitions(name)
            state = records[-1].to_state if records else self._initial
            if state not in self._states:
                raise StateError(
                    records[-1].event,
                    self._state,
                    f"machine {name!r} is stored in state {state!r}, which is not defined here",
                    hint="define the state, or move the machine with the code that knows it",
                )
            self._machine_id = name
            self._state = state
            self._version = records[-1].version if records else 0
        return self._state

    def to_mermaid(self) -> str:
        """The machine as a mermaid state diagram, the current state marked."""
        return mermaid(self._states, self._initial, self._state)

    async def _move(self, event: str) -> str:
        self._has_moved = False
        old = self._state
        found = self._table.get((old, event))
        if found is None:
            known = ", ".join(map(repr, self._states[old].transitions)) or "none: it is final"
            raise StateError(event, old, hint=f"events of this state: {known}")
        move = found[0]
        if move.guard is not None and not await self._call(move.guard):
            raise StateError(event, old, f"the guard of {event!r} in state {old!r} refused")
        await self._store(old, move)
        self._state = move.target
        self._version += 1
        self._has_moved = True
        target = self._states[move.target]
        for hook, facts in (
            (self._states[old].on_exit, ()),
            (target.on_enter, ()),
            (move.on_transition, (event, move.target)),
        ):
            if hook is not None:
                await self._call(hook, *facts)
        return move.target

    async def _call(self, function: Callable[..., Any], *facts: str) -> Any:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return await call(function, *facts, timeout=self._timeout, name=name)

    async def _store(self, old: str, move: Transition) -> None:
        if self._persistence is None or self._machine_id is None:
            return
        try:
            await self._persistence.append_transition(
                self._machine_id, old, move.event, move.target, self._version
            )
        except StateVersionConflictError as error:
            raise StateConcurrencyError(
                move.event, old, error.expected_version, error.actual_version, self._machine_id
            ) from error

    def _short_way(
        self, state: State, move: Transition, persistence: StatePersistenceProtocol | None
    ) -> str | None:
        hooks = (state.on_exit, self._states[move.target].on_enter, move.on_transition)
        asks = (persistence, move.guard, *hooks)
        return move.target if all(part is None for part in asks) else None


def _check(
    states: list[State],
    initial: str,
    persistence: StatePersistenceProtocol | None,
    machine_id: str | None,
    timeout: float | None,
) -> None:
    names = [state.name for state in states]
    problems = [f"state {name!r} is there twice" for name in set(names) if names.count(name) > 1]
    if initial not in names:
        problems.append(f"the initial state {initial!r} is not among the states {names}")
    for state in states:
        for event, move in state.transitions.items():
            if move.target not in names:
                problems.append(
                    f"state {state.name!r}: {event!r} leads to {move.target!r}, which is not there"
                )
            if move.event != event:
                problems.append(
                    f"state {state.name!r}: the transition of {event!r} says event {move.event!r}"
                )
    if persistence is not None and not machine_id:
        problems.append("persistence needs a machine_id")
    if not is_time_limit(timeout):
        problems.append(f"timeout is {timeout!r} s; give more than 0, or None for no limit")
    if problems:
        raise StateDefinitionError("the machine cannot be made:\n    " + "\n    ".join(problems))
