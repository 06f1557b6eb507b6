"""The state that an incremental sync of a source stores between two of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from lexigram.contracts.workflow.limits import check_name, check_optional_names
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.durable.plan import json_text
from lexigram.workflow.durable.store.base import translate_errors
from lexigram.workflow.durable.store.records import Row

BRANCH = "main"

# Primary key.
STATE = "SELECT * FROM lexigram_durable_sync_states WHERE source_id = ?"
# Primary key. What is there is not changed but locked, to the end of the transaction: two that keep
# the same source at once follow each other, and each merges with what the other left.
ADD_STATE = """
INSERT INTO lexigram_durable_sync_states AS s (source_id, commit_sha, branch, metadata, synced_at)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (source_id) DO UPDATE SET branch = s.branch RETURNING metadata"""
SET_STATE = """
UPDATE lexigram_durable_sync_states SET commit_sha = ?, branch = ?, metadata = ?, synced_at = ?
WHERE source_id = ?"""
DROP_STATE = "DELETE FROM lexigram_durable_sync_states WHERE source_id = ?"


@frozen(kw_only=True)
class SyncState:
    """Where a sync of a source resumes."""

    source_id: str
    # what was brought over last; None before the first time
    commit_sha: str | None = None
    branch: str = BRANCH
    # seconds since 1970; None before the first time
    synced_at: float | None = None
    # JSON-ready; for the caller
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])


class SyncStates:
    """One row for each source; the caller chooses its name."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def get(self, source_id: str) -> SyncState:
        """Its state; an initial one for a source that was never synced."""
        check_name("source_id", source_id)
        result = await translate_errors(lambda: self._db.execute_query(STATE, (source_id,)))
        row = result.first()
        return SyncState(source_id=source_id) if row is None else _state(row)

    async def put(
        self,
        source_id: str,
        commit_sha: str | None,
        *,
        branch: str = BRANCH,
        metadata: Mapping[str, Any] | None = None,
    ) -> SyncState:
        """Store the state; ``metadata`` is merged into what was stored before.

        Raises InvalidRunError for names that are empty or too long.
        """
        check_optional_names(source_id=source_id, commit_sha=commit_sha, branch=branch)
        given = dict(metadata or {})
        fresh_text = json_text("metadata", given)

        def steps() -> Steps[SyncState]:
            now = yield from lease_now(self._db.dialect)
            fresh = (source_id, commit_sha, branch, fresh_text, now)
            kept = (yield ADD_STATE, fresh).rows[0]["metadata"]
            merged = {**orjson.loads(kept), **given}
            yield SET_STATE, (commit_sha, branch, json_text("metadata", merged), now, source_id)
            return SyncState(
                source_id=source_id,
                commit_sha=commit_sha,
                branch=branch,
                synced_at=now,
                metadata=merged,
            )

        return await translate_errors(lambda: self._db.run_steps(steps))

    async def forget(self, source_id: str) -> bool:
        """Begin anew next time; False when nothing was kept."""
        check_name("source_id", source_id)

        def steps() -> Steps[bool]:
            return bool((yield DROP_STATE, (source_id,)).row_count)

        return await translate_errors(lambda: self._db.run_steps(steps))


def _state(row: Row) -> SyncState:
    return SyncState(
        source_id=row["source_id"],
        commit_sha=row["commit_sha"],
        branch=row["branch"],
        synced_at=row["synced_at"],
        metadata=orjson.loads(row["metadata"]),
    )
