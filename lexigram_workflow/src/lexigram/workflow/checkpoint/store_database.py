"""Outputs of stages kept in a database."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from lexigram import clock
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
    canonical_json_bytes,
)
from lexigram.workflow.checkpoint._entries import entry_from_data, entry_to_data

DEFAULT_TABLE = "workflow_content_checkpoints"

# --- statements, the same on both databases ---

# Primary key. Equal keys mean equal outputs, so the first stays.
SET = """
INSERT INTO {table} (key_str, stage_id, tenant_id, entry_json, stage_handler_version,
    output_size_bytes, completed_at, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key_str) DO NOTHING"""

GET = "SELECT entry_json FROM {table} WHERE key_str = ?"

EVICT = "DELETE FROM {table} WHERE key_str = ?"

# Index (stage_id, tenant_id, completed_at), backwards.
LIST = """
SELECT entry_json FROM {table} WHERE stage_id = ? AND tenant_id = ?
ORDER BY completed_at DESC LIMIT ?"""

# For a table with a name of its own; migrations make the usual one.
CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    key_str VARCHAR(512) NOT NULL PRIMARY KEY,
    stage_id VARCHAR(255) NOT NULL,
    tenant_id VARCHAR(255) NOT NULL,
    entry_json TEXT NOT NULL,
    stage_handler_version VARCHAR(255) NOT NULL,
    output_size_bytes BIGINT NOT NULL,
    completed_at DOUBLE PRECISION NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
)"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class DatabaseContentCheckpointStore:
    """Implements ``ContentCheckpointStoreProtocol`` on SQLite and PostgreSQL."""

    def __init__(self, provider: DatabaseProviderProtocol, table_name: str = DEFAULT_TABLE) -> None:
        if not _NAME.fullmatch(table_name):
            raise ValueError(f"{table_name!r} cannot be the name of a table")
        self._db = provider
        self._set = SET.format(table=table_name)
        self._get = GET.format(table=table_name)
        self._evict = EVICT.format(table=table_name)
        self._list = LIST.format(table=table_name)
        self._create = CREATE_TABLE.format(table=table_name)

    async def create_table(self) -> None:
        """Make the table if it is missing; only for a name of your own."""
        await self._db.execute(self._create)

    async def get(self, key: ContentCheckpointKey) -> ContentCheckpointEntry | None:
        """See the contract."""
        row = (await self._db.execute_query(self._get, (key.as_str(),))).first()
        return None if row is None else entry_from_data(json.loads(row["entry_json"]))

    async def set(self, key: ContentCheckpointKey, entry: ContentCheckpointEntry) -> None:
        """See the contract. TypeError or ValueError for an output that is not JSON."""
        text = canonical_json_bytes(entry_to_data(entry)).decode()
        await self._db.execute(
            self._set,
            (
                *(key.as_str(), key.stage_id, key.tenant_id or "_global", text),
                *(entry.stage_handler_version, entry.output_size_bytes),
                *(entry.completed_at.timestamp(), clock.timestamp()),
            ),
        )

    async def evict(self, key: ContentCheckpointKey) -> None:
        """See the contract."""
        await self._db.execute(self._evict, (key.as_str(),))

    async def list_by_stage(
        self, stage_id: str, tenant_id: str | None = None, limit: int = 100
    ) -> Sequence[ContentCheckpointEntry]:
        """See the contract."""
        found = await self._db.execute_query(self._list, (stage_id, tenant_id or "_global", limit))
        return [entry_from_data(json.loads(row["entry_json"])) for row in found.rows]
