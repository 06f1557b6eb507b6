"""Sums in the database: of a period, and since ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexigram.sql import Database
from lexigram.sql.steps import Steps

SINCE_EVER = 0  # the period of a total

# Primary key; row lock. Two that add at once are both counted.
ADD = """
INSERT INTO lexigram_ai_figures (name, period, value) VALUES (?, ?, ?)
ON CONFLICT (name, period) DO UPDATE SET value = lexigram_ai_figures.value + excluded.value"""

# Primary key; row lock. For what is a level, not a sum.
SET = """
INSERT INTO lexigram_ai_figures (name, period, value) VALUES (?, ?, ?)
ON CONFLICT (name, period) DO UPDATE SET value = excluded.value"""

# The index on period; totals are few.
TOTALS = """
SELECT name, value FROM lexigram_ai_figures
WHERE period = 0 AND substr(name, 1, length(CAST(? AS text))) = ? ORDER BY name"""

# The index on period.
SINCE = """
SELECT period, name, value FROM lexigram_ai_figures
WHERE period >= ? AND period > 0 ORDER BY period, name"""

# The index on period.
FORGET = "DELETE FROM lexigram_ai_figures WHERE period > 0 AND period < ?"


class Figures:
    """Sums by name, shared by all processes on the database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, amounts: Mapping[str, float], period: int = SINCE_EVER) -> None:
        """Add to several sums in one transaction."""
        await self._write(ADD, amounts, period)

    async def put(self, levels: Mapping[str, float], period: int) -> None:
        """Write several levels in one transaction; the last one of a period stays."""
        await self._write(SET, levels, period)

    async def totals(self, prefix: str) -> Mapping[str, float]:
        """The sums since ever whose names begin so."""
        found = await self._db.execute_query(TOTALS, (prefix, prefix))
        return {row["name"]: row["value"] for row in found.rows}

    async def since(self, period: int) -> Sequence[dict[str, Any]]:
        """What periods from this one on have: period, name, value."""
        return (await self._db.execute_query(SINCE, (period,))).rows

    async def forget(self, before: int) -> int:
        """Remove periods before this one; how many rows."""
        return (await self._db.execute(FORGET, (before,))).row_count

    async def _write(self, statement: str, values: Mapping[str, float], period: int) -> None:
        def steps() -> Steps[None]:
            for name in sorted(values):  # one order for all: no deadlock on PostgreSQL
                yield statement, (name, period, float(values[name]))

        if values:
            await self._db.run_steps(steps)
