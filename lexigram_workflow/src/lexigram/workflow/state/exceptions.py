"""What can go wrong in state machines."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.workflow.errors import StateVersionConflictError

__all__ = [
    "StateConcurrencyError",
    "StateDefinitionError",
    "StateError",
    "StateVersionConflictError",
]


class StateError(LexigramError):
    """The machine did not move: no transition for the event, or its guard refused."""

    code = "LEX_ERR_WF_017"

    def __init__(
        self, event: str, current_state: str, message: str | None = None, **kwargs: Any
    ) -> None:
        text = message or f"state {current_state!r} has no transition for {event!r}"
        super().__init__(text, **kwargs)
        self.event = event
        self.current_state = current_state


class StateConcurrencyError(StateError, StateVersionConflictError):
    """Another process moved the machine since this one read it; nothing changed here."""

    code = "LEX_ERR_WF_018"

    def __init__(
        self,
        event: str,
        current_state: str,
        expected_version: int,
        actual_version: int,
        machine_id: str = "",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("hint", "recover() the machine and decide again")
        # Not through the bases: each makes another text of other facts.
        LexigramError.__init__(
            self,
            f"{event!r} was not applied: the machine is at version {actual_version}, "
            f"not at {expected_version}",
            **kwargs,
        )
        self.event = event
        self.current_state = current_state
        self.machine_id = machine_id
        self.expected_version = expected_version
        self.actual_version = actual_version


class StateDefinitionError(LexigramError, ValueError):
    """The states of a machine cannot be run; the text lists everything that is wrong."""

    code = "LEX_ERR_WF_122"
    is_retryable = False
