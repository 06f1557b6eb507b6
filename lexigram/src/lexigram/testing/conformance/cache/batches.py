"""Several keys in one call."""

from __future__ import annotations

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class BatchesSpec(CacheSpec, capability=CacheCapability.BATCHES):
    """get_many, set_many, delete_many."""

    async def test_a_batch_written_is_read_key_by_key_and_together(
        self, subject: CacheBackendProtocol
    ) -> None:
        items = {f"key {number}": number for number in range(250)}
        assert await subject.set_many(items) == Ok(None)
        assert await subject.get("key 7") == Ok(7)
        assert await subject.get_many(items) == Ok(items)

    async def test_missing_keys_are_left_out_but_none_is_a_value(
        self, subject: CacheBackendProtocol
    ) -> None:
        await subject.set_many({"a": 1, "nothing": None})
        assert await subject.get_many(["a", "nothing", "missing"]) == Ok({"a": 1, "nothing": None})

    async def test_an_empty_batch_is_fine(self, subject: CacheBackendProtocol) -> None:
        assert await subject.set_many({}) == Ok(None)
        assert await subject.get_many([]) == Ok({})
        assert await subject.delete_many([]) == Ok(0)

    async def test_keys_may_come_from_a_generator(self, subject: CacheBackendProtocol) -> None:
        await subject.set_many({"a": 1, "b": 2})
        assert await subject.get_many(key for key in "ab") == Ok({"a": 1, "b": 2})
        assert await subject.delete_many(key for key in "ab") == Ok(2)

    async def test_delete_many_counts_the_keys_that_were_there(
        self, subject: CacheBackendProtocol
    ) -> None:
        await subject.set_many({"a": 1, "b": 2, "c": 3})
        assert await subject.delete_many(["a", "b", "missing", "a"]) == Ok(2)
        assert await subject.get_many(["a", "b", "c"]) == Ok({"c": 3})

    async def test_a_batch_replaces_only_its_own_keys(self, subject: CacheBackendProtocol) -> None:
        await subject.set_many({"a": 1, "b": 2})
        await subject.set_many({"b": 3, "c": 4})
        assert await subject.get_many("abc") == Ok({"a": 1, "b": 3, "c": 4})
