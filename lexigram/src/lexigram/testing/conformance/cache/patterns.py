"""Remove keys by a glob, and no others."""

from __future__ import annotations

import pytest

from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec

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
