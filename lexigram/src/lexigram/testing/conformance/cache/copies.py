"""What is stored is a copy: it changes by writing only."""

from __future__ import annotations

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class CopiesSpec(CacheSpec, capability=CacheCapability.COPIES):
    """Mutable values."""

    async def test_changing_a_value_after_writing_changes_nothing_inside(
        self, subject: CacheBackendProtocol
    ) -> None:
        value = {"list": [1]}
        await subject.set("key", value)
        value["list"].append(2)
        assert await subject.get("key") == Ok({"list": [1]})

    async def test_changing_a_value_that_was_read_changes_nothing_inside(
        self, subject: CacheBackendProtocol
    ) -> None:
        await subject.set("key", {"list": [1]})
        (await subject.get("key")).unwrap()["list"].append(2)
        (await subject.get_many(["key"])).unwrap()["key"]["list"].append(3)
        assert await subject.get("key") == Ok({"list": [1]})
