"""Finished batches in any cache: one key each, so that nothing is ever written again."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from typing import Any

from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.workflow._results import value_or_raise

KEY_PREFIX = "lexigram:workflow:bulk:checkpoint:"
BATCH_PREFIX = "lexigram:workflow:bulk:batch:"
TTL_SECONDS = 24 * 3600.0


class CacheBulkCheckpoints:
    """Implements ``BulkCheckpointStoreProtocol`` on a cache.

    It knows what the cache knows: a batch that was evicted is worked on again.
    """

    def __init__(self, cache: CacheBackendProtocol, ttl: float = TTL_SECONDS) -> None:
        self._cache = cache
        self._ttl = ttl

    async def begin(self, operation_id: str, batch_size: int) -> int:
        """See the contract."""
        key = f"{KEY_PREFIX}{operation_id}"
        known = value_or_raise(await self._cache.get(key))
        if known is not None:
            return int(known)
        value_or_raise(await self._cache.set(key, batch_size, self._ttl))
        return batch_size

    async def mark(self, operation_id: str, batch_id: int, failed: tuple[int, ...] = ()) -> None:
        """See the contract."""
        value_or_raise(await self._cache.set(_key(operation_id, batch_id), list(failed), self._ttl))

    async def finished(
        self, operation_id: str, first: int, last: int
    ) -> Mapping[int, tuple[int, ...]]:
        """See the contract."""
        keys = {_key(operation_id, number): number for number in range(first, last + 1)}
        found: dict[str, Any] = value_or_raise(await self._cache.get_many(keys))
        return {keys[key]: tuple(failed) for key, failed in found.items()}

    async def clear(self, operation_id: str) -> None:
        """See the contract."""
        value_or_raise(await self._cache.delete_pattern(glob.escape(_key(operation_id, "")) + "*"))
        value_or_raise(await self._cache.delete(f"{KEY_PREFIX}{operation_id}"))


def _key(operation_id: str, batch_id: int | str) -> str:
    # With the length: clearing "a" must not match batches of an operation "a:b".
    return f"{BATCH_PREFIX}{len(operation_id)}:{operation_id}:{batch_id}"
