"""Runs kept in a database: SQLite or PostgreSQL, one row per step, append only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.contracts.workflow.errors import CheckpointConflictError, WorkflowNotFoundError
from lexigram.leasing import Coalescer
from lexigram.sql.database import Database
from lexigram.sql.steps import Steps

# --- statements, the same on both databases ---

# Primary key. A run that exists gives no row back.
INSERT_RUN = """
INSERT INTO lexigram_graph_runs
    (run_id, graph, version, status, created_at, updated_at, due_at, error, parent_run, parent_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO NOTHING RETURNING run_id"""

# Primary key of both tables. The run is a condition of the row, and so is that nobody went further:
# a process that slept may come with a number that was pruned. For a number that is taken no row
# is made. No lock on the run: its row is not touched by a plain step.
INSERT_CHECKPOINT = """
INSERT INTO lexigram_graph_checkpoints (run_id, seq, whole, data, nodes, created_at)
SELECT run_id, ?, ?, ?, ?, ? FROM lexigram_graph_runs WHERE run_id = ? AND NOT EXISTS (
    SELECT 1 FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq >= ?)
ON CONFLICT (run_id, seq) DO NOTHING"""

# The same for PostgreSQL, where a parameter in a SELECT list has no type of its own.
INSERT_CHECKPOINT_POSTGRES = """
INSERT INTO lexigram_graph_checkpoints (run_id, seq, whole, data, nodes, created_at)
SELECT run_id, CAST(? AS bigint), CAST(? AS boolean), CAST(? AS bytea), CAST(? AS text),
    CAST(? AS double precision)
FROM lexigram_graph_runs WHERE run_id = ? AND NOT EXISTS (
    SELECT 1 FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq >= ?)
ON CONFLICT (run_id, seq) DO NOTHING"""

# Primary key; row lock on the run.
SET_RUN = """
UPDATE lexigram_graph_runs SET status = ?, updated_at = ?, due_at = ?, error = ?
WHERE run_id = ?"""

# Primary key; row lock on the run. Of two callers the second finds another status.
MOVE_RUN = """
UPDATE lexigram_graph_runs SET status = ?, updated_at = ?, due_at = ?, error = ?
WHERE run_id = ? AND status = ?"""

# Primary key.
FIND_RUN = "SELECT * FROM lexigram_graph_runs WHERE run_id = ?"

# Primary key, backwards to the latest whole one.
LOAD = """
SELECT * FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq <= ? AND seq >= (
    SELECT max(seq) FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq <= ? AND whole
) ORDER BY seq"""

# Primary key.
HISTORY = "SELECT * FROM lexigram_graph_checkpoints WHERE run_id = ? ORDER BY seq"

# Primary key, backwards: where the last N begin.
NTH_LAST = """
SELECT seq FROM lexigram_graph_checkpoints WHERE run_id = ?
ORDER BY seq DESC LIMIT 1 OFFSET ?"""

# Primary key. What is before the whole checkpoint that the oldest kept one builds on.
PRUNE = """
DELETE FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq < (
    SELECT max(seq) FROM lexigram_graph_checkpoints WHERE run_id = ? AND seq <= ? AND whole)"""

# Index (status, updated_at), once for each status that is an end.
OLD_RUNS = """
SELECT run_id FROM lexigram_graph_runs
WHERE status IN ('completed', 'failed', 'cancelled') AND updated_at < ? LIMIT ?"""

# Primary keys.
DELETE_CHECKPOINTS = "DELETE FROM lexigram_graph_checkpoints WHERE run_id = ?"
DELETE_RUN = "DELETE FROM lexigram_graph_runs WHERE run_id = ?"

# Index (status, updated_at) when a status is given. An empty text stands for "any".
LIST = """
SELECT * FROM lexigram_graph_runs
WHERE (CAST(? AS varchar) = '' OR graph = ?) AND (CAST(? AS varchar) = '' OR status = ?)
ORDER BY updated_at DESC, run_id LIMIT ?"""

# Index (status, updated_at): paused runs only.
LIST_DUE = """
SELECT * FROM lexigram_graph_runs
WHERE status = 'paused' AND due_at < ? AND (CAST(? AS varchar) = '' OR graph = ?)
ORDER BY updated_at DESC, run_id LIMIT ?"""

_LAST = 2**62


class SqlCheckpointStore:
    """Implements ``CheckpointStoreProtocol`` on a ``Database``.

    Steps of many runs that are written at the same moment share one transaction. A call
    returns after the commit; with SQLite that is as durable as ``sql.synchronous`` says.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        postgres = database.dialect == "postgresql"
        self._insert = INSERT_CHECKPOINT_POSTGRES if postgres else INSERT_CHECKPOINT
        self._appends: Coalescer[_Append, _Outcome] = Coalescer(self._write)

    async def create(self, run: GraphRun, first: Checkpoint) -> None:
        """See the contract."""

        def steps() -> Steps[bool]:
            made = yield INSERT_RUN, _run_values(run)
            if made.rows:
                yield self._insert, _checkpoint_values(first)
            return bool(made.rows)

        if not await self._db.run_steps(steps):
            raise CheckpointConflictError(run.run_id, 0)

    async def append(self, checkpoint: Checkpoint, run: GraphRun | None = None) -> None:
        """See the contract."""
        item = _Append(checkpoint, run)
        if self._db.in_transaction:
            # The user's own transaction decides, so it cannot be shared with others.
            (outcome,) = await self._write([item])
        else:
            outcome = await self._appends.add(item)
        if outcome == "unknown":
            raise WorkflowNotFoundError(checkpoint.run_id)
        if outcome == "taken":
            raise CheckpointConflictError(checkpoint.run_id, checkpoint.seq)

    async def update(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """See the contract."""
        values = (*_standing(run), run.run_id, expected.value)
        return (await self._db.execute(MOVE_RUN, values)).row_count == 1

    async def load(self, run_id: str, seq: int | None = None) -> StoredRun | None:
        """See the contract."""
        last = _LAST if seq is None else seq

        def steps() -> Steps[StoredRun | None]:
            found = yield FIND_RUN, (run_id,)
            rows = yield LOAD, (run_id, last, run_id, last)
            if not found.rows or not rows.rows or (seq is not None and rows.rows[-1]["seq"] != seq):
                return None
            return StoredRun(_run(found.rows[0]), tuple(map(_checkpoint, rows.rows)))

        return await self._db.run_steps(steps)

    async def history(self, run_id: str) -> Sequence[Checkpoint]:
        """See the contract."""
        found = await self._db.execute_query(HISTORY, (run_id,))
        return [_checkpoint(row) for row in found.rows]

    async def runs(
        self,
        *,
        graph: str | None = None,
        status: GraphRunStatus | None = None,
        due_before: float | None = None,
        limit: int = 100,
    ) -> Sequence[GraphRun]:
        """See the contract."""
        name, wanted = graph or "", status.value if status else ""
        if due_before is not None:
            if wanted not in ("", GraphRunStatus.PAUSED.value):
                return []
            found = await self._db.execute_query(LIST_DUE, (due_before, name, name, limit))
        else:
            found = await self._db.execute_query(LIST, (name, name, wanted, wanted, limit))
        return [_run(row) for row in found.rows]

    async def prune(self, run_id: str, keep: int) -> int:
        """See the contract."""

        def steps() -> Steps[int]:
            oldest = yield NTH_LAST, (run_id, max(keep, 1) - 1)
            if not oldest.rows:
                return 0
            gone = yield PRUNE, (run_id, run_id, oldest.rows[0]["seq"])
            return gone.row_count

        return await self._db.run_steps(steps)

    async def expire(self, before: float, *, limit: int = 1000) -> int:
        """See the contract."""

        def steps() -> Steps[int]:
            old = yield OLD_RUNS, (before, limit)
            for row in old.rows:
                yield DELETE_CHECKPOINTS, (row["run_id"],)
                yield DELETE_RUN, (row["run_id"],)
            return len(old.rows)

        return await self._db.run_steps(steps)

    async def delete(self, run_id: str) -> bool:
        """See the contract."""

        def steps() -> Steps[bool]:
            yield DELETE_CHECKPOINTS, (run_id,)
            gone = yield DELETE_RUN, (run_id,)
            return gone.row_count == 1

        return await self._db.run_steps(steps)

    async def _write(self, items: Sequence[_Append]) -> Sequence[_Outcome]:
        def steps() -> Steps[list[_Outcome]]:
            outcomes: list[_Outcome] = []
            for item in items:
                outcome = yield from self._one(item)
                outcomes.append(outcome)
            return outcomes

        return await self._db.run_steps(steps)

    def _one(self, item: _Append) -> Steps[_Outcome]:
        made = yield self._insert, _checkpoint_values(item.checkpoint)
        if not made.row_count:
            run = yield FIND_RUN, (item.checkpoint.run_id,)
            return "taken" if run.rows else "unknown"
        if item.run is not None:
            yield SET_RUN, (*_standing(item.run), item.run.run_id)
        return "written"


_Outcome = str  # written, taken or unknown


@frozen
class _Append:
    checkpoint: Checkpoint
    run: GraphRun | None


def _standing(run: GraphRun) -> tuple[Any, ...]:
    return run.status.value, run.updated_at, run.due_at, run.error


def _run_values(run: GraphRun) -> tuple[Any, ...]:
    return (
        *(run.run_id, run.graph, run.version, run.status.value, run.created_at),
        *(run.updated_at, run.due_at, run.error, run.parent_run, run.parent_seq),
    )


def _checkpoint_values(item: Checkpoint) -> tuple[Any, ...]:
    nodes = json.dumps(item.nodes)
    row = (item.seq, item.whole, item.data, nodes, item.created_at, item.run_id)
    return (*row, item.run_id, item.seq)


def _run(row: Mapping[str, Any]) -> GraphRun:
    facts: dict[str, Any] = dict(row)
    facts["status"] = GraphRunStatus(row["status"])
    return GraphRun(**facts)


def _checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        run_id=row["run_id"],
        seq=row["seq"],
        whole=bool(row["whole"]),
        data=bytes(row["data"]),
        nodes=tuple(json.loads(row["nodes"])),
        created_at=row["created_at"],
    )
