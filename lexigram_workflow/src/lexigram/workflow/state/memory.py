"""Transitions kept in this process, with all promises of the contract but survival."""

from __future__ import annotations

from collections.abc import Sequence

from lexigram import clock
from lexigram.contracts.workflow.errors import StateVersionConflictError
from lexigram.contracts.workflow.types import StateTransitionRecord


class InMemoryStatePersistence:
    """Implements ``StatePersistenceProtocol``."""

    def __init__(self) -> None:
        self._records: dict[str, list[StateTransitionRecord]] = {}

    async def append_transition(
        self, machine_id: str, from_state: str, event: str, to_state: str, expected_version: int
    ) -> int:
        """See the contract."""
        kept = self._records.setdefault(machine_id, [])
        if len(kept) != expected_version:
            raise StateVersionConflictError(machine_id, expected_version, len(kept))
        version = expected_version + 1
        kept.append(
            StateTransitionRecord(
                machine_id, version, from_state, event, to_state, clock.timestamp()
            )
        )
        return version

    async def load_transitions(self, machine_id: str) -> Sequence[StateTransitionRecord]:
        """See the contract."""
        return tuple(self._records.get(machine_id, ()))

    async def get_current_version(self, machine_id: str) -> int:
        """See the contract."""
        return len(self._records.get(machine_id, ()))
