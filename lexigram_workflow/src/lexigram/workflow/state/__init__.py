"""Finite state machines: table-driven, guarded, and stored with a version."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.workflow.errors import StateVersionConflictError
    from lexigram.workflow.state.exceptions import (
        StateConcurrencyError,
        StateDefinitionError,
        StateError,
    )
    from lexigram.workflow.state.machine import StateMachine
    from lexigram.workflow.state.memory import InMemoryStatePersistence
    from lexigram.workflow.state.models import State, Transition
    from lexigram.workflow.state.store_sql import DatabaseStatePersistence
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.workflow.errors": ["StateVersionConflictError"],
            "lexigram.workflow.state.exceptions": [
                "StateConcurrencyError",
                "StateDefinitionError",
                "StateError",
            ],
            "lexigram.workflow.state.machine": ["StateMachine"],
            "lexigram.workflow.state.memory": ["InMemoryStatePersistence"],
            "lexigram.workflow.state.models": ["State", "Transition"],
            "lexigram.workflow.state.store_sql": ["DatabaseStatePersistence"],
        },
    )

__all__ = [
    "DatabaseStatePersistence",
    "InMemoryStatePersistence",
    "State",
    "StateConcurrencyError",
    "StateDefinitionError",
    "StateError",
    "StateMachine",
    "StateVersionConflictError",
    "Transition",
]
