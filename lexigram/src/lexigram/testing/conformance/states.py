"""The conformance suite of StatePersistenceProtocol."""

from __future__ import annotations

from enum import StrEnum

import anyio
import pytest

from lexigram.contracts.workflow.errors import StateVersionConflictError
from lexigram.contracts.workflow.protocols import StatePersistenceProtocol
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["StatePersistenceCapability", "StatePersistenceConformance"]


class StatePersistenceCapability(StrEnum):
    """What a persistence can do; all but the last are the core."""

    HISTORY = "history"  # append, load
    VERSIONS = "versions"  # of two writers one wins
    SHARING = "sharing"  # other processes see it; fixture `neighbour`


class StatePersistenceSpec(ConformanceSuite):
    """The contract and the core."""

    contract = StatePersistenceProtocol
    core = frozenset(StatePersistenceCapability) - {StatePersistenceCapability.SHARING}

    @pytest.fixture
    def neighbour(self, subject: StatePersistenceProtocol) -> StatePersistenceProtocol:
        """Another object on the same place, as another process would have."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)


class HistorySpec(StatePersistenceSpec, capability=StatePersistenceCapability.HISTORY):
    """append_transition, load_transitions, get_current_version."""

    async def test_an_unknown_machine_is_at_version_zero(
        self, subject: StatePersistenceProtocol
    ) -> None:
        assert await subject.get_current_version("m") == 0
        assert list(await subject.load_transitions("m")) == []

    async def test_transitions_come_back_oldest_first(
        self, subject: StatePersistenceProtocol
    ) -> None:
        for number in range(12):
            version = await subject.append_transition("m", f"s{number}", "é", "t'", number)
            assert version == number + 1
        records = await subject.load_transitions("m")
        assert [record.version for record in records] == list(range(1, 13))
        assert [record.from_state for record in records] == [f"s{n}" for n in range(12)]
        assert {(record.machine_id, record.event, record.to_state) for record in records} == {
            ("m", "é", "t'")
        }
        times = [record.transitioned_at for record in records]
        assert times == sorted(times)
        assert await subject.get_current_version("m") == 12

    async def test_machines_do_not_see_each_other(self, subject: StatePersistenceProtocol) -> None:
        await subject.append_transition("m", "a", "go", "b", 0)
        assert await subject.get_current_version("n") == 0
        await subject.append_transition("n", "a", "go", "b", 0)
        assert len(await subject.load_transitions("m")) == 1


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


class StatePersistenceConformance(HistorySpec, VersionsSpec, SharingSpec):
    """Run it on one: ``conformance_suite(StatePersistenceConformance, MyPersistence)``."""
