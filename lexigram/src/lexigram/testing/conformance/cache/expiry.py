"""A value is never read after its time to live."""

from __future__ import annotations

from math import inf, nan

import pytest

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheKeyError
from lexigram.testing.conformance.backed import Elapse
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec

SHORT = 0.2  # seconds, which really pass on most backends
LONGER = 0.3
LONG = 60.0


class ExpirySpec(CacheSpec, capability=CacheCapability.EXPIRY):
    """The ``ttl`` of set and set_many."""

    async def test_a_value_is_gone_after_its_ttl(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("key", 1, ttl=SHORT)
        await elapse(LONGER)
        assert await subject.get("key") == Ok(None)
        assert await subject.exists("key") == Ok(False)
        assert await subject.get_many(["key"]) == Ok({})
        assert await subject.delete("key") == Ok(False)

    async def test_a_value_is_there_before_its_ttl(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("key", 1, ttl=LONG)
        await elapse(LONGER)
        assert await subject.get("key") == Ok(1)

    async def test_a_second_write_replaces_the_ttl(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("longer", 1, ttl=SHORT)
        await subject.set("longer", 2, ttl=LONG)
        await subject.set("for ever", 1, ttl=SHORT)
        await subject.set("for ever", 2)
        await subject.set("shorter", 1)
        await subject.set("shorter", 2, ttl=SHORT)
        await elapse(LONGER)
        assert await subject.get("longer") == Ok(2)
        assert await subject.get("for ever") == Ok(2)
        assert await subject.get("shorter") == Ok(None)

    async def test_reading_does_not_prolong_a_value(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("key", 1, ttl=SHORT)
        await elapse(SHORT / 2)
        await subject.get("key")
        await elapse(SHORT / 2 + LONGER - SHORT)
        assert await subject.get("key") == Ok(None)

    async def test_the_ttl_of_a_batch_holds_for_each_of_its_values(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("kept", 0)
        await subject.set_many({"a": 1, "b": 2}, ttl=SHORT)
        await elapse(LONGER)
        assert await subject.get_many(["a", "b", "kept"]) == Ok({"kept": 0})

    async def test_an_expired_key_can_be_written_again(
        self, subject: CacheBackendProtocol, elapse: Elapse
    ) -> None:
        await subject.set("key", 1, ttl=SHORT)
        await elapse(LONGER)
        await subject.set("key", 2)
        assert await subject.get("key") == Ok(2)

    @pytest.mark.parametrize("ttl", [0, -1, nan, inf])
    async def test_a_ttl_that_is_not_above_0_is_refused_and_the_old_value_stays(
        self, subject: CacheBackendProtocol, ttl: float
    ) -> None:
        await subject.set("key", "old")
        assert isinstance((await subject.set("key", 1, ttl)).unwrap_err(), CacheKeyError)
        assert isinstance((await subject.set_many({"key": 1}, ttl)).unwrap_err(), CacheKeyError)
        assert await subject.get("key") == Ok("old")
