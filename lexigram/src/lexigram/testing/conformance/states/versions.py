"""Of two writers one wins."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.workflow.errors import StateVersionConflictError
from lexigram.contracts.workflow.protocols import StatePersistenceProtocol
from lexigram.testing.conformance.states.spec import (
    StatePersistenceCapability,
    StatePersistenceSpec,
)


class VersionsSpec(StatePersistenceSpec, capability=StatePersistenceCapability.VERSIONS):
    """Versions that are taken, and gaps."""

    @pytest.mark.parametrize("expected", [0, 1, 3, 7])
    async def test_another_version_is_refused_with_the_one_it_has(
        self, subject: StatePersistenceProtocol, expected: int
    ) -> None:
        for number in range(2):
            await subject.append_transition("m", "a", "go", "a", number)
        with pytest.raises(StateVersionConflictError) as refused:
            await subject.append_transition("m", "a", "go", "b", expected)
        assert (refused.value.expected_version, refused.value.actual_version) == (expected, 2)
        assert await subject.get_current_version("m") == 2

    async def test_of_many_who_append_one_wins(self, subject: StatePersistenceProtocol) -> None:
        won: list[int] = []

        async def append(number: int) -> None:
            try:
                await subject.append_transition("m", "a", f"e{number}", "b", 0)
            except StateVersionConflictError:
                return
            won.append(number)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(append, number)
        records = await subject.load_transitions("m")
        assert [record.event for record in records] == [f"e{number}" for number in won]
        assert len(won) == 1


class SharingSpec(StatePersistenceSpec, capability=StatePersistenceCapability.SHARING):
    """Two objects on one place."""

    async def test_the_other_sees_it_and_cannot_overtake(
        self, subject: StatePersistenceProtocol, neighbour: StatePersistenceProtocol
    ) -> None:
        await subject.append_transition("m", "a", "go", "b", 0)
        with pytest.raises(StateVersionConflictError):
            await neighbour.append_transition("m", "a", "go", "c", 0)
        assert await neighbour.append_transition("m", "b", "go", "c", 1) == 2
        assert await subject.get_current_version("m") == 2
