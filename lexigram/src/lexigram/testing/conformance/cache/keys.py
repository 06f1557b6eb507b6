"""Which texts are keys."""

from __future__ import annotations

from typing import Any

import pytest

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheKeyError
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


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
