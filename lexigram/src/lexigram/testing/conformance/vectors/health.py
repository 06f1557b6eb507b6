"""The store tells how it is, and can be opened and closed at any time."""

from __future__ import annotations

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.testing.conformance.vectors.spec import VectorCapability, VectorSpec


class HealthSpec(VectorSpec, capability=VectorCapability.HEALTH):
    """connect, disconnect, health_check."""

    async def test_a_store_that_answers_is_healthy(self, subject: VectorStoreProtocol) -> None:
        await subject.connect()
        assert (await subject.health_check(timeout=30)).status is HealthStatus.HEALTHY
        await subject.disconnect()

    async def test_opening_and_closing_twice_does_nothing(
        self, subject: VectorStoreProtocol
    ) -> None:
        await subject.disconnect()
        await subject.connect()
        await subject.connect()
        await subject.disconnect()
        await subject.disconnect()
