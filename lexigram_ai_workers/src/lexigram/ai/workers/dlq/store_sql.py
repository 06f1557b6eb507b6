"""Letters in the application's database: kept over restarts, shared by all processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from lexigram.ai.workers.dlq.letters import Letter, LetterState
from lexigram.ai.workers.dlq.store import Change
from lexigram.ai.workers.errors import DLQError
from lexigram.ai.workers.store_figures import Figures
from lexigram.ai.workers.types import FailureCategory
from lexigram.serialization import SerializationError, dumps, loads
from lexigram.sql import Database
from lexigram.sql.steps import Steps

Row: TypeAlias = dict[str, Any]

_COLUMNS = (
    "source, id, payload, failure_count, first_failure, last_failure, last_error, category, "
    "state, retry_count, max_retries, next_retry, retried_at, notified, notes"
)
_FIGURES = "dead_letters."
_TRIES = 20  # of an insert that others win: each time one of them got on

# Primary key; no lock. PostgreSQL takes the row lock for a change; SQLite has one writer.
FIND_ONE = f"SELECT {_COLUMNS} FROM lexigram_ai_dead_letters WHERE source = ? AND id = ?"  # noqa: S608 - a constant
FIND_LOCKED = {"sqlite": FIND_ONE, "postgresql": f"{FIND_ONE} FOR UPDATE"}

# Primary key; whoever comes second inserts nothing, and looks again.
INSERT = f"""
INSERT INTO lexigram_ai_dead_letters ({_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, id) DO NOTHING"""  # noqa: S608 - a constant

# Primary key; row lock.
UPDATE = """
UPDATE lexigram_ai_dead_letters SET payload = ?, failure_count = ?, first_failure = ?,
    last_failure = ?, last_error = ?, category = ?, state = ?, retry_count = ?, max_retries = ?,
    next_retry = ?, retried_at = ?, notified = ?, notes = ?
WHERE source = ? AND id = ?"""

# Primary key; row lock.
DELETE = "DELETE FROM lexigram_ai_dead_letters WHERE source = ? AND id = ?"

# The index on id, on state, or on last_failure, as the database sees fit; no lock. Every
# condition is there always and empty where it does not count, so that there is one statement.
FIND = f"""
SELECT {_COLUMNS} FROM lexigram_ai_dead_letters
WHERE (CAST(? AS text) IS NULL OR id = ?) AND (CAST(? AS text) IS NULL OR source = ?)
    AND state IN (?, ?, ?) AND (CAST(? AS text) IS NULL OR category = ?)
    AND (CAST(? AS double precision) IS NULL OR (state = 'waiting' AND next_retry <= ?
        AND retry_count < max_retries AND category NOT IN ('permanent', 'invalid_input')))
    AND (CAST(? AS integer) = 0 OR (state = 'waiting' AND notified = false
        AND (retry_count >= max_retries OR category IN ('permanent', 'invalid_input'))))
ORDER BY last_failure DESC, id DESC, source DESC LIMIT ? OFFSET ?"""  # noqa: S608 - a constant

# The whole table: an operator asks.
COUNTS = """
SELECT category, state, count(*) AS n FROM lexigram_ai_dead_letters GROUP BY category, state"""


class SqlLetters:
    """Implements LetterStore on the tables of ``tables.py``."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._find_locked = FIND_LOCKED[database.dialect]
        self._figures = Figures(database)

    async def change(self, source: str, letter_id: str, change: Change) -> Letter | None:
        """Replace one letter in one transaction."""
        for _ in range(_TRIES):
            done, letter = await self._db.run_steps(
                lambda: _changed(self._find_locked, source, letter_id, change)
            )
            if done:
                return letter
        raise DLQError(
            f"dead letter {letter_id!r} could not be written: others write it all the time",
            details={"source": source, "id": letter_id},
        )

    async def find(
        self,
        *,
        letter_id: str | None = None,
        source: str | None = None,
        states: Collection[LetterState] = tuple(LetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        untold: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Letter]:
        """Letters, the latest failure first."""
        wanted = [state.value for state in states]
        kind = None if category is None else category.value
        params = (
            *(letter_id, letter_id, source, source),
            *(wanted + [""] * 3)[:3],
            *(kind, kind),
            *(due_before, due_before),
            int(untold),
            *(limit, offset),
        )
        return [_letter(row) for row in (await self._db.execute_query(FIND, params)).rows]

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """How many letters there are of each category and state."""
        rows = (await self._db.execute_query(COUNTS)).rows
        return {(row["category"], row["state"]): row["n"] for row in rows}

    async def add_figure(self, name: str, amount: int = 1) -> None:
        """Add to a sum."""
        await self._figures.add({_FIGURES + name: amount})

    async def figures(self) -> Mapping[str, int]:
        """All sums."""
        found = await self._figures.totals(_FIGURES)
        return {name.removeprefix(_FIGURES): round(value) for name, value in found.items()}


def _changed(
    find: str, source: str, letter_id: str, change: Change
) -> Steps[tuple[bool, Letter | None]]:
    row = (yield find, (source, letter_id)).first()
    old = None if row is None else _letter(row)
    new = change(old)
    if new is old:
        return True, new
    if new is None:
        yield DELETE, (source, letter_id)
        return True, None
    if old is None:
        inserted = (yield INSERT, (source, letter_id, *_values(new))).row_count
        return inserted > 0, new
    yield UPDATE, (*_values(new), source, letter_id)
    return True, new


def _values(letter: Letter) -> tuple[Any, ...]:
    return (
        _text(letter.payload, letter),
        letter.failure_count,
        letter.first_failure,
        letter.last_failure,
        letter.last_error.replace("\x00", ""),
        letter.category.value,
        letter.state.value,
        letter.retry_count,
        letter.max_retries,
        letter.next_retry,
        letter.retried_at,
        letter.notified,
        _text(dict(letter.notes), letter),
    )


def _text(value: Any, letter: Letter) -> str:
    try:
        return dumps(value).decode()
    except SerializationError as error:
        raise DLQError(
            f"dead letter {letter.id!r} holds what cannot be written as JSON: {error.message}",
            details={"source": letter.source, "id": letter.id},
            hint="give jobs whose arguments are plain data",
            cause=error,
        ) from error


def _letter(row: Row) -> Letter:
    return Letter(
        source=row["source"],
        id=row["id"],
        payload=loads(row["payload"].encode(), Any),
        failure_count=row["failure_count"],
        first_failure=row["first_failure"],
        last_failure=row["last_failure"],
        last_error=row["last_error"],
        category=FailureCategory(row["category"]),
        state=LetterState(row["state"]),
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        next_retry=row["next_retry"],
        retried_at=row["retried_at"],
        notified=bool(row["notified"]),
        notes=loads(row["notes"].encode(), dict[str, Any]),
    )
