"""What happened comes back in order."""

from __future__ import annotations

from lexigram.contracts.workflow.protocols import StatePersistenceProtocol
from lexigram.testing.conformance.states.spec import (
    StatePersistenceCapability,
    StatePersistenceSpec,
)


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
