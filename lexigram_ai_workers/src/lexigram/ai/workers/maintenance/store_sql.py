"""The store of task runs in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lexigram.ai.workers.constants import MAX_HISTORY_SIZE
from lexigram.ai.workers.maintenance.store import RunSummary
from lexigram.ai.workers.types import MaintenanceResult, MaintenanceStatus, MaintenanceTaskType
from lexigram.serialization import dumps, loads
from lexigram.sql import Database
from lexigram.sql.steps import Steps

_COLUMNS = "task, task_type, status, started_at, completed_at, items_processed, items_deleted, error, notes"

# A new row; no lock contention.
INSERT = f"""
INSERT INTO lexigram_ai_maintenance_runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""  # noqa: S608 - a constant

# The index on task and id: the first row above the limit, and all rows before it.
FORGET = """
DELETE FROM lexigram_ai_maintenance_runs WHERE task = ? AND id <= (
    SELECT id FROM lexigram_ai_maintenance_runs WHERE task = ?
    ORDER BY id DESC LIMIT 1 OFFSET ?)"""

# The index on task and id, from its end.
RECENT_OF = f"""
SELECT {_COLUMNS} FROM lexigram_ai_maintenance_runs WHERE task = ?
ORDER BY id DESC LIMIT ?"""  # noqa: S608 - a constant

# The primary key, from its end.
RECENT = f"SELECT {_COLUMNS} FROM lexigram_ai_maintenance_runs ORDER BY id DESC LIMIT ?"  # noqa: S608 - a constant

# The index on task and id; at most MAX_HISTORY_SIZE entries.
COUNT = "SELECT count(*) AS n FROM lexigram_ai_maintenance_runs WHERE task = ?"


class SqlRuns:
    """Implements RunStore with the tables of ``tables.py``."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, result: MaintenanceResult) -> None:
        """Add a run and delete the oldest one above the limit, in one transaction."""

        def steps() -> Steps[None]:
            yield INSERT, _values(result)
            yield FORGET, (result.task_name, result.task_name, MAX_HISTORY_SIZE)

        await self._db.run_steps(steps)

    async def recent(self, task: str | None = None, limit: int = 10) -> Sequence[MaintenanceResult]:
        """Return runs, latest first."""
        statement, params = (RECENT, (limit,)) if task is None else (RECENT_OF, (task, limit))
        return [_result(row) for row in (await self._db.execute_query(statement, params)).rows]

    async def summary(self, task: str) -> RunSummary:
        """Return the number of stored runs and the last run of a task."""
        count: int = (await self._db.execute_query(COUNT, (task,))).rows[0]["n"]
        last = await self.recent(task, 1)
        return RunSummary(count=count, last=last[0] if last else None)


def _values(result: MaintenanceResult) -> tuple[Any, ...]:
    return (
        result.task_name,
        result.task_type.value,
        result.status.value,
        result.started_at.timestamp(),
        result.completed_at.timestamp(),
        result.items_processed,
        result.items_deleted,
        None if result.error is None else result.error.replace("\x00", ""),
        dumps(dict(result.metadata)).decode(),
    )


def _result(row: dict[str, Any]) -> MaintenanceResult:
    return MaintenanceResult(
        task_name=row["task"],
        task_type=MaintenanceTaskType(row["task_type"]),
        status=MaintenanceStatus(row["status"]),
        started_at=datetime.fromtimestamp(row["started_at"], UTC),
        completed_at=datetime.fromtimestamp(row["completed_at"], UTC),
        duration_seconds=max(0.0, row["completed_at"] - row["started_at"]),
        items_processed=row["items_processed"],
        items_deleted=row["items_deleted"],
        error=row["error"],
        metadata=loads(row["notes"].encode(), dict[str, Any]),
    )
