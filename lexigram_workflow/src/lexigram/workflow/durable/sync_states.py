"""How far a source was brought over: what an incremental sync keeps between two of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.store import Row
from lexigram.workflow.durable.store_base import translated

BRANCH = "main"
_TEXT = 255  # characters of a name in the tables

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
    """Where a sync of a source goes on."""

    source_id: str
    # what was brought over last; None before the first time
    commit_sha: str | None = None
    branch: str = BRANCH
    # seconds since 1970; None before the first time
    synced_at: float | None = None
    # JSON-ready; for whoever syncs
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])


class SyncStates:
    """One row for each source; whoever syncs chooses its name."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def get(self, source_id: str) -> SyncState:
        """Its state; one that begins for a source that nobody synced yet."""
        result = await translated(lambda: self._db.execute_query(STATE, (source_id,)))
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
        """Keep how far it is now; ``metadata`` is laid over what was kept before.

        Raises PlanInvalidError for names that are empty or too long.
        """
        _checked(source_id, commit_sha, branch)
        given = dict(metadata or {})

        def steps() -> Steps[SyncState]:
            now = yield from lease_now(self._db.dialect)
            fresh = (source_id, commit_sha, branch, _text(given), now)
            kept = (yield ADD_STATE, fresh).rows[0]["metadata"]
            merged = {**orjson.loads(kept), **given}
            yield SET_STATE, (commit_sha, branch, _text(merged), now, source_id)
            return SyncState(
                source_id=source_id,
                commit_sha=commit_sha,
                branch=branch,
                synced_at=now,
                metadata=merged,
            )

        return await translated(lambda: self._db.run_steps(steps))

    async def forget(self, source_id: str) -> bool:
        """Begin anew next time; False when nothing was kept."""

        def steps() -> Steps[bool]:
            return bool((yield DROP_STATE, (source_id,)).row_count)

        return await translated(lambda: self._db.run_steps(steps))


def _checked(source_id: str, commit_sha: str | None, branch: str) -> None:
    for what, value in (("source", source_id), ("commit", commit_sha), ("branch", branch)):
        if value is not None and not 0 < len(value) <= _TEXT:
            raise PlanInvalidError(
                f"the {what} {value[:20]!r} has {len(value)} characters",
                details={"name": what, "length": len(value)},
                hint=f"give 1 to {_TEXT} characters",
            )


def _text(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values).decode()


def _state(row: Row) -> SyncState:
    return SyncState(
        source_id=row["source_id"],
        commit_sha=row["commit_sha"],
        branch=row["branch"],
        synced_at=row["synced_at"],
        metadata=orjson.loads(row["metadata"]),
    )
