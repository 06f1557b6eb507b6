"""The stored state of orchestrated runs: in the history of their own steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.database import Database
from lexigram.workflow.durable.store.base import translate_errors
from lexigram.workflow.durable.store.records import Row

# Primary key of the history, from its new end. A step that ended or waits for an answer left what
# the next one needs; an attempt that is tried again left the facts of its error instead, one that
# was cut off left nothing. Within a text of the JSON the quotes would be escaped.
LAST = """
SELECT meta FROM lexigram_durable_history
WHERE run_id = ? AND status IN ('COMPLETED', 'FAILED', 'PENDING') AND meta LIKE '%"kept":%'
ORDER BY fence DESC LIMIT 1"""
# Primary key of the history.
AT_STEP = """
SELECT status, meta FROM lexigram_durable_history
WHERE run_id = ? AND step_no = ? ORDER BY fence"""

# ix_lexigram_durable_runs_children; primary key of the plan's steps. A run that a turn handed out
# has one step.
HANDED_OUT = """
SELECT r.id, r.status, r.parked, p.name FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id AND p.step_no = 1
WHERE r.parent_id = ? AND r.parent_step = (
    SELECT max(x.parent_step) FROM lexigram_durable_runs x WHERE x.parent_id = ?)
ORDER BY r.id"""


class KeptStore:
    """Reads what steps of a run left. They are written by the engine, with the end of the step."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def last(self, run_id: int) -> dict[str, Any] | None:
        """What the last step that ended, or that waits, left; None before the first."""
        rows = await self._rows(LAST, (run_id,))
        return orjson.loads(rows[0]["meta"]) if rows else None

    async def list_handed_out(self, run_id: int) -> Sequence[Row]:
        """The runs that the last turn with several pieces made: id, status, parked, name."""
        return await self._rows(HANDED_OUT, (run_id, run_id))

    async def was_cut_off(self, run_id: int, step_no: int) -> bool:
        """Whether an attempt at this step began and never reported its end."""
        rows = await self._rows(AT_STEP, (run_id, step_no))
        return any(row["status"] == "PENDING" and row["meta"] is None for row in rows)

    async def has_failed(self, run_id: int, step_no: int) -> bool:
        """Whether the run failed at this step before, and was retried."""
        rows = await self._rows(AT_STEP, (run_id, step_no))
        return any(row["status"] == "FAILED" for row in rows)

    async def _rows(self, statement: str, params: Sequence[Any]) -> Sequence[Row]:
        result: QueryResult = await translate_errors(
            lambda: self._db.execute_query(statement, params)
        )
        return result.rows
