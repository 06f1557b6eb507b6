"""Values, their copies, batches, keys, patterns and expiry."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheKeyError
from lexigram.testing.conformance.backed import Elapse
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
    async def test_keys_differ_by_every_character(
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


class KeysSpec(CacheSpec, capability=CacheCapability.KEYS):
    """Every method that takes a key."""

    @pytest.mark.parametrize("key", ["", "k" * 513, "a\0b", "\ud800", 7], ids=ascii)
    async def test_what_is_no_key_is_an_err_of_every_call(
        self, subject: CacheBackendProtocol, key: Any
    ) -> None:
        answers = [
            await subject.get(key),
            await subject.set(key, 1),
            await subject.delete(key),
            await subject.exists(key),
            await subject.get_many(["key", key]),
            await subject.set_many({"key": 1, key: 1}),
            await subject.delete_many(["key", key]),
        ]
        assert [type(answer.unwrap_err()) for answer in answers] == [CacheKeyError] * 7

    async def test_the_longest_key_is_one(self, subject: CacheBackendProtocol) -> None:
        key = "\U0001f511" * 512
        assert await subject.set(key, 1) == Ok(None)
        assert await subject.get(key) == Ok(1)


KEYS = {"user:1", "user:2", "user:10", "User:1", "users", "a.c", "abc", "a%c", "a_c", "x/y/z"}


class PatternsSpec(CacheSpec, capability=CacheCapability.PATTERNS):
    """delete_pattern."""

    @pytest.mark.parametrize(
        ("pattern", "removed"),
        [
            ("user:*", {"user:1", "user:2", "user:10"}),
            ("user:?", {"user:1", "user:2"}),
            ("user:[12]", {"user:1", "user:2"}),
            ("*:1", {"user:1", "User:1"}),
            ("users", {"users"}),
            ("*", KEYS),
            ("x*z", {"x/y/z"}),
            ("nothing*", set()),
            ("user", set()),
            # Characters that mean something to SQL or a regular expression, but not here.
            ("a.c", {"a.c"}),
            ("a%c", {"a%c"}),
            ("a_c", {"a_c"}),
            ("user:.*", set()),
        ],
    )
    async def test_the_matching_keys_are_removed_and_counted(
        self, subject: CacheBackendProtocol, pattern: str, removed: set[str]
    ) -> None:
        await subject.set_many(dict.fromkeys(KEYS, 1))
        assert await subject.delete_pattern(pattern) == Ok(len(removed))
        assert set((await subject.get_many(KEYS)).unwrap()) == KEYS - removed


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
