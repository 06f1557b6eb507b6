"""A value that cannot be encoded is refused, and nothing is harmed."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheWriteError
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class RefusalSpec(CacheSpec, capability=CacheCapability.REFUSAL):
    """set and set_many with a value the backend cannot store."""

    async def test_the_refusal_is_an_err_that_names_the_key(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        error = (await subject.set("key", unencodable)).unwrap_err()
        assert isinstance(error, CacheWriteError)
        assert error.key == "key"
        assert await subject.exists("key") == Ok(False)

    async def test_the_old_value_stays(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        await subject.set("key", "old")
        assert (await subject.set("key", unencodable)).is_err()
        assert await subject.get("key") == Ok("old")

    async def test_a_batch_with_such_a_value_is_an_err(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        assert (await subject.set_many({"good": 1, "bad": unencodable})).is_err()
        assert await subject.exists("bad") == Ok(False)
