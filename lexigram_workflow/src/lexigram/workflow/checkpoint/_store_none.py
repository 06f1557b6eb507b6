"""No memory at all: what is bound when content checkpoints are switched off."""

from __future__ import annotations

from collections.abc import Sequence

from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
)


class NoContentCheckpointStore:
    """Implements ``ContentCheckpointStoreProtocol``, which allows to forget: forgets everything."""

    async def get(self, key: ContentCheckpointKey) -> ContentCheckpointEntry | None:
        """None: every stage runs."""
        return None

    async def set(self, key: ContentCheckpointKey, entry: ContentCheckpointEntry) -> None:
        """Forgotten."""

    async def evict(self, key: ContentCheckpointKey) -> None:
        """Nothing is there."""

    async def list_by_stage(
        self, stage_id: str, tenant_id: str | None = None, limit: int = 100
    ) -> Sequence[ContentCheckpointEntry]:
        """Empty."""
        return []
