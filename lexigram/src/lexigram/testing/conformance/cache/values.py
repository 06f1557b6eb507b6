"""A value comes back until it is replaced or removed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec

VALUES = ["text", "grüße ✓", "", 0, -1, 2**40, 1.5, True, False, [1, 2], {"a": {"b": [None]}}, []]


class ValuesSpec(CacheSpec, capability=CacheCapability.VALUES):
    """get, set, delete, exists, clear."""

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    async def test_a_value_comes_back_equal_and_of_its_type(
        self, subject: CacheBackendProtocol, value: Any
    ) -> None:
        assert await subject.set("key", value) == Ok(None)
        read = (await subject.get("key")).unwrap()
        assert read == value
        assert type(read) is type(value)

    async def test_a_missing_key_is_none_and_no_error(self, subject: CacheBackendProtocol) -> None:
        assert await subject.get("missing") == Ok(None)
        assert await subject.exists("missing") == Ok(False)

    async def test_none_is_a_value_that_exists(self, subject: CacheBackendProtocol) -> None:
        assert await subject.set("key", None) == Ok(None)
        assert await subject.get("key") == Ok(None)
        assert await subject.exists("key") == Ok(True)

    async def test_a_second_write_replaces_the_value(self, subject: CacheBackendProtocol) -> None:
        await subject.set("key", "old")
        await subject.set("key", "new")
        assert await subject.get("key") == Ok("new")

    @pytest.mark.parametrize("other", ["Key", "key ", "ke", "keyy", "key:", "k*", "kéy"])
    async def test_keys_are_told_apart_by_every_character(
        self, subject: CacheBackendProtocol, other: str
    ) -> None:
        await subject.set("key", 1)
        assert await subject.get(other) == Ok(None)
        await subject.set(other, 2)
        assert (await subject.get("key"), await subject.get(other)) == (Ok(1), Ok(2))

    async def test_delete_tells_whether_the_key_was_there(
        self, subject: CacheBackendProtocol
    ) -> None:
        await subject.set("key", 1)
        assert await subject.delete("key") == Ok(True)
        assert await subject.delete("key") == Ok(False)
        assert await subject.get("key") == Ok(None)
        assert await subject.exists("key") == Ok(False)

    async def test_clear_removes_everything_and_may_be_repeated(
        self, subject: CacheBackendProtocol
    ) -> None:
        await subject.set("a", 1)
        await subject.set("b", 2)
        assert await subject.clear() == Ok(None)
        assert await subject.clear() == Ok(None)
        assert (await subject.exists("a"), await subject.exists("b")) == (Ok(False), Ok(False))

    async def test_racing_writers_leave_one_of_their_values(
        self, subject: CacheBackendProtocol
    ) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(subject.set, "key", {"writer": number, "same": number})
        value = (await subject.get("key")).unwrap()
        assert value["writer"] == value["same"]
