"""Statistics in the database: sums and levels by period, and totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexigram.sql import Database
from lexigram.sql.steps import Steps

TOTAL_PERIOD = 0  # the period of a total

# Primary key; row lock. Concurrent additions are all counted.
ADD = """
INSERT INTO lexigram_ai_figures (name, period, value) VALUES (?, ?, ?)
ON CONFLICT (name, period) DO UPDATE SET value = lexigram_ai_figures.value + excluded.value"""

# Primary key; row lock. For levels.
SET = """
INSERT INTO lexigram_ai_figures (name, period, value) VALUES (?, ?, ?)
ON CONFLICT (name, period) DO UPDATE SET value = excluded.value"""

# The index on period; there are few totals.
TOTALS = """
SELECT name, value FROM lexigram_ai_figures
WHERE period = 0 AND substr(name, 1, length(CAST(? AS text))) = ? ORDER BY name"""

# The index on period.
SINCE = """
SELECT period, name, value FROM lexigram_ai_figures
WHERE period >= ? AND period > 0 ORDER BY period, name"""

# The index on period.
DELETE_BEFORE = "DELETE FROM lexigram_ai_figures WHERE period > 0 AND period < ?"


class SqlStatistics:
    """Implements StatisticsStore in the database, shared by all processes."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, amounts: Mapping[str, float], period: int = TOTAL_PERIOD) -> None:
        """Add to sums in one transaction."""
        await self._write(ADD, amounts, period)

    async def put(self, levels: Mapping[str, float], period: int) -> None:
        """Write levels in one transaction; the last level of a period is kept."""
        await self._write(SET, levels, period)

    async def totals(self, prefix: str) -> Mapping[str, float]:
        """Return the totals whose names have a prefix."""
        found = await self._db.execute_query(TOTALS, (prefix, prefix))
        return {row["name"]: row["value"] for row in found.rows}

    async def since(self, period: int) -> Sequence[dict[str, Any]]:
        """Return period, name and value of the periods from this one on."""
        return (await self._db.execute_query(SINCE, (period,))).rows

    async def delete_before(self, before: int) -> int:
        """Delete the periods before this one; returns the number of rows."""
        return (await self._db.execute(DELETE_BEFORE, (before,))).row_count

    async def _write(self, statement: str, values: Mapping[str, float], period: int) -> None:
        def steps() -> Steps[None]:
            for name in sorted(values):  # sorted, to avoid deadlocks on PostgreSQL
                yield statement, (name, period, float(values[name]))

        if values:
            await self._db.run_steps(steps)
