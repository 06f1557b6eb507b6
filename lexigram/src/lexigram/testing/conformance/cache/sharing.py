"""Several caches on one backend do not disturb each other."""

from __future__ import annotations

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class SharingSpec(CacheSpec, capability=CacheCapability.SHARING):
    """A neighbour with the same keys."""

    async def test_equal_keys_of_two_caches_are_two_values(
        self, subject: CacheBackendProtocol, neighbour: CacheBackendProtocol
    ) -> None:
        await subject.set("key", "mine")
        await neighbour.set("key", "theirs")
        assert await subject.get("key") == Ok("mine")
        assert await neighbour.get("key") == Ok("theirs")

    async def test_removing_stops_at_the_own_keys(
        self, subject: CacheBackendProtocol, neighbour: CacheBackendProtocol
    ) -> None:
        await neighbour.set("key", "theirs")
        await subject.set("key", "mine")
        assert await subject.delete_pattern("*") == Ok(1)
        assert await subject.clear() == Ok(None)
        assert await neighbour.get("key") == Ok("theirs")
