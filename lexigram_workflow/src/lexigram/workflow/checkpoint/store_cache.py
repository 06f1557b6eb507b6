"""Outputs of stages kept in any cache."""

from __future__ import annotations

from collections.abc import Sequence

from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
)
from lexigram.workflow._results import value_or_raise
from lexigram.workflow.checkpoint._entries import entry_from_data, entry_to_data

KEY_PREFIX = "lexigram:workflow:content:"


class CacheContentCheckpointStore:
    """Implements ``ContentCheckpointStoreProtocol`` for a time of ``default_ttl`` seconds.

    A cache cannot list what it holds: ``list_by_stage`` is empty. Cache errors are raised.
    """

    def __init__(self, cache: CacheBackendProtocol, default_ttl: float = 86400) -> None:
        self._cache = cache
        self._ttl = default_ttl

    async def get(self, key: ContentCheckpointKey) -> ContentCheckpointEntry | None:
        """See the contract."""
        found = value_or_raise(await self._cache.get(_key(key)))
        return None if found is None else entry_from_data(found)

    async def set(self, key: ContentCheckpointKey, entry: ContentCheckpointEntry) -> None:
        """See the contract."""
        value_or_raise(await self._cache.set(_key(key), entry_to_data(entry), self._ttl))

    async def evict(self, key: ContentCheckpointKey) -> None:
        """See the contract."""
        value_or_raise(await self._cache.delete(_key(key)))

    async def list_by_stage(
        self, stage_id: str, tenant_id: str | None = None, limit: int = 100
    ) -> Sequence[ContentCheckpointEntry]:
        """Empty."""
        return ()


def _key(key: ContentCheckpointKey) -> str:
    return KEY_PREFIX + key.as_str()
