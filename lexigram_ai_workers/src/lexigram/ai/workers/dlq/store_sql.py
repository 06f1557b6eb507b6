"""The dead-letter store in the database, shared by all processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from lexigram.ai.workers.dlq.dead_letter import DeadLetterState, StoredDeadLetter
from lexigram.ai.workers.dlq.store import Change
from lexigram.ai.workers.errors import DLQError
from lexigram.ai.workers.statistics_store import SqlStatistics
from lexigram.ai.workers.types import FailureCategory
from lexigram.serialization import SerializationError, dumps, loads
from lexigram.sql import Database
from lexigram.sql.steps import Steps

Row: TypeAlias = dict[str, Any]

_COLUMNS = (
    "source, id, payload, failure_count, first_failure, last_failure, last_error, category, "
    "state, retry_count, max_retries, next_retry, retried_at, notified, notes"
)
_PREFIX = "dead_letters."
_MAX_INSERT_ATTEMPTS = 20  # of conflicting concurrent inserts

# Primary key; no lock. PostgreSQL takes the row lock for a change; SQLite has one writer.
FIND_ONE = f"SELECT {_COLUMNS} FROM lexigram_ai_dead_letters WHERE source = ? AND id = ?"  # noqa: S608 - a constant
FIND_LOCKED = {"sqlite": FIND_ONE, "postgresql": f"{FIND_ONE} FOR UPDATE"}

# Primary key; a concurrent second insert does nothing and is repeated as an update.
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

# The index on id, on state, or on last_failure; no lock. All conditions are always present, and
# disabled by NULL, so that there is one statement.
FIND = f"""
SELECT {_COLUMNS} FROM lexigram_ai_dead_letters
WHERE (CAST(? AS text) IS NULL OR id = ?) AND (CAST(? AS text) IS NULL OR source = ?)
    AND state IN (?, ?, ?) AND (CAST(? AS text) IS NULL OR category = ?)
    AND (CAST(? AS double precision) IS NULL OR (state = 'waiting' AND next_retry <= ?
        AND retry_count < max_retries AND category NOT IN ('permanent', 'invalid_input')))
    AND (CAST(? AS integer) = 0 OR (state = 'waiting' AND notified = false
        AND (retry_count >= max_retries OR category IN ('permanent', 'invalid_input'))))
ORDER BY last_failure DESC, id DESC, source DESC LIMIT ? OFFSET ?"""  # noqa: S608 - a constant

# The whole table; used for statistics.
COUNTS = """
SELECT category, state, count(*) AS n FROM lexigram_ai_dead_letters GROUP BY category, state"""


class SqlDeadLetterStore:
    """Implements DeadLetterStore with the tables of ``tables.py``."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._find_locked = FIND_LOCKED[database.dialect]
        self._statistics = SqlStatistics(database)

    async def change(
        self, source: str, dead_letter_id: str, change: Change
    ) -> StoredDeadLetter | None:
        """Replace a dead letter in one transaction."""
        for _ in range(_MAX_INSERT_ATTEMPTS):
            is_done, dead_letter = await self._db.run_steps(
                lambda: _change_steps(self._find_locked, source, dead_letter_id, change)
            )
            if is_done:
                return dead_letter
        raise DLQError(
            f"dead letter {dead_letter_id!r} could not be written because of concurrent writes",
            details={"source": source, "id": dead_letter_id},
        )

    async def find(
        self,
        *,
        dead_letter_id: str | None = None,
        source: str | None = None,
        states: Collection[DeadLetterState] = tuple(DeadLetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        unnotified: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[StoredDeadLetter]:
        """Find dead letters, latest failure first."""
        state_values = [state.value for state in states]
        kind = None if category is None else category.value
        params = (
            *(dead_letter_id, dead_letter_id, source, source),
            *(state_values + [""] * 3)[:3],
            *(kind, kind),
            *(due_before, due_before),
            int(unnotified),
            *(limit, offset),
        )
        return [_read_row(row) for row in (await self._db.execute_query(FIND, params)).rows]

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """Count dead letters by category and state."""
        rows = (await self._db.execute_query(COUNTS)).rows
        return {(row["category"], row["state"]): row["n"] for row in rows}

    async def increment(self, name: str, amount: int = 1) -> None:
        """Increase a counter."""
        await self._statistics.add({_PREFIX + name: amount})

    async def statistics(self) -> Mapping[str, int]:
        """Return all counters."""
        found = await self._statistics.totals(_PREFIX)
        return {name.removeprefix(_PREFIX): round(value) for name, value in found.items()}


def _change_steps(
    find: str, source: str, dead_letter_id: str, change: Change
) -> Steps[tuple[bool, StoredDeadLetter | None]]:
    row = (yield find, (source, dead_letter_id)).first()
    old = None if row is None else _read_row(row)
    new = change(old)
    if new is old:
        return True, new
    if new is None:
        yield DELETE, (source, dead_letter_id)
        return True, None
    if old is None:
        inserted = (yield INSERT, (source, dead_letter_id, *_values(new))).row_count
        return inserted > 0, new
    yield UPDATE, (*_values(new), source, dead_letter_id)
    return True, new


def _values(dead_letter: StoredDeadLetter) -> tuple[Any, ...]:
    return (
        _text(dead_letter.payload, dead_letter),
        dead_letter.failure_count,
        dead_letter.first_failure,
        dead_letter.last_failure,
        dead_letter.last_error.replace("\x00", ""),
        dead_letter.category.value,
        dead_letter.state.value,
        dead_letter.retry_count,
        dead_letter.max_retries,
        dead_letter.next_retry,
        dead_letter.retried_at,
        dead_letter.notified,
        _text(dict(dead_letter.notes), dead_letter),
    )


def _text(value: Any, dead_letter: StoredDeadLetter) -> str:
    try:
        return dumps(value).decode()
    except SerializationError as error:
        raise DLQError(
            f"dead letter {dead_letter.id!r} cannot be written as JSON: {error.message}",
            details={"source": dead_letter.source, "id": dead_letter.id},
            hint="use jobs with plain data as arguments",
            cause=error,
        ) from error


def _read_row(row: Row) -> StoredDeadLetter:
    return StoredDeadLetter(
        source=row["source"],
        id=row["id"],
        payload=loads(row["payload"].encode(), Any),
        failure_count=row["failure_count"],
        first_failure=row["first_failure"],
        last_failure=row["last_failure"],
        last_error=row["last_error"],
        category=FailureCategory(row["category"]),
        state=DeadLetterState(row["state"]),
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        next_retry=row["next_retry"],
        retried_at=row["retried_at"],
        notified=bool(row["notified"]),
        notes=loads(row["notes"].encode(), dict[str, Any]),
    )
