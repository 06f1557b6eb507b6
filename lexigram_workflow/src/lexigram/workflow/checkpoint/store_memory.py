"""Outputs of stages kept in this process."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
)


class InMemoryContentCheckpointStore:
    """Implements ``ContentCheckpointStoreProtocol``; keeps everything until it is evicted."""

    def __init__(self) -> None:
        self._entries: dict[ContentCheckpointKey, ContentCheckpointEntry] = {}

    async def get(self, key: ContentCheckpointKey) -> ContentCheckpointEntry | None:
        """See the contract."""
        # A copy: who changes an output must not change what is remembered.
        return copy.deepcopy(self._entries.get(key))

    async def set(self, key: ContentCheckpointKey, entry: ContentCheckpointEntry) -> None:
        """See the contract."""
        self._entries.setdefault(key, copy.deepcopy(entry))

    async def evict(self, key: ContentCheckpointKey) -> None:
        """See the contract."""
        self._entries.pop(key, None)

    async def list_by_stage(
        self, stage_id: str, tenant_id: str | None = None, limit: int = 100
    ) -> Sequence[ContentCheckpointEntry]:
        """See the contract."""
        found = [
            entry
            for key, entry in self._entries.items()
            if (key.stage_id, key.tenant_id) == (stage_id, tenant_id)
        ]
        found.sort(key=lambda entry: entry.completed_at, reverse=True)
        return copy.deepcopy(found[:limit])
