"""``IdempotencyStoreProtocol`` in a table of the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from lexigram.cache.idempotency import as_idempotency_error, outcome, refusal_of
from lexigram.cache.values import Values
from lexigram.contracts.core.idempotency import (
    IdempotencyError,
    IdempotencyRecord,
    IdempotencyStatus,
)
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.cache import CacheError
from lexigram.sql import Database, TransactionScopeError
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps

T = TypeVar("T")

# Primary key. A row that has not expired is not changed: RETURNING is then empty. Two claimers
# of a new key: the second waits for the first one's commit and finds its row.
ACQUIRE = """
INSERT INTO lexigram_idempotency (namespace, key, status, value, created_at, expires_at)
VALUES (?, ?, 'in_progress', NULL, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET
    status = excluded.status, value = NULL,
    created_at = excluded.created_at, expires_at = excluded.expires_at
WHERE lexigram_idempotency.expires_at <= excluded.created_at
RETURNING key"""

# Primary key; row lock. The moment of the first claim stays while the row lives.
COMPLETE = """
INSERT INTO lexigram_idempotency (namespace, key, status, value, created_at, expires_at)
VALUES (?, ?, 'completed', ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET
    status = excluded.status, value = excluded.value, expires_at = excluded.expires_at,
    created_at = CASE WHEN lexigram_idempotency.expires_at <= excluded.created_at
        THEN excluded.created_at ELSE lexigram_idempotency.created_at END"""

# Primary key; no lock.
FIND = """
SELECT status, value, created_at, expires_at FROM lexigram_idempotency
WHERE namespace = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"""

# Primary key; row lock.
DELETE = """
DELETE FROM lexigram_idempotency WHERE namespace = ? AND key = ?
RETURNING expires_at"""

# Index on expires_at; the row locks of one batch. By the primary key: both databases have it.
SWEEP = """
DELETE FROM lexigram_idempotency WHERE namespace = ? AND key IN (
    SELECT key FROM lexigram_idempotency WHERE namespace = ? AND expires_at <= ? LIMIT ?)
AND expires_at <= ?"""


class SqlIdempotencyStore:
    """Durable as the database is. Inside a transaction of its task it is part of it: a claim is
    undone with the work that is rolled back.
    """

    def __init__(
        self, database: Database, *, namespace: str = "default", values: Values | None = None
    ) -> None:
        self._database = database
        self._namespace = namespace
        self._values = values or Values()

    async def acquire(self, key: str, ttl: float | None = None) -> Result[bool, IdempotencyError]:
        """Claim the key: Ok(True) for exactly one caller of all processes."""
        if (wrong := refusal_of(key, ttl)) is not None:
            return Err(wrong)

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._database.dialect)
            claimed = yield ACQUIRE, (self._namespace, key, now, _end(now, ttl))
            return bool(claimed.rows)

        return await self._result(steps)

    async def set(
        self, key: str, value: Any, ttl: float | None = None
    ) -> Result[None, IdempotencyError]:
        """Store the outcome and mark the key COMPLETED."""
        if (wrong := refusal_of(key, ttl)) is not None:
            return Err(wrong)

        def steps() -> Steps[None]:
            data = self._values.write(key, value)
            now = yield from lease_now(self._database.dialect)
            yield COMPLETE, (self._namespace, key, data, now, _end(now, ttl))

        return await self._result(steps)

    async def get(self, key: str) -> Result[Any, IdempotencyError]:
        """The stored outcome; Ok(None) for an unknown key and for one in progress."""
        return (await self.get_record(key)).map_sync(outcome)

    async def get_record(self, key: str) -> Result[IdempotencyRecord | None, IdempotencyError]:
        """Everything known about the key, or Ok(None)."""
        if (wrong := refusal_of(key)) is not None:
            return Err(wrong)

        def steps() -> Steps[IdempotencyRecord | None]:
            now = yield from lease_now(self._database.dialect)
            row = (yield FIND, (self._namespace, key, now)).first()
            return None if row is None else self._record(key, row)

        return await self._result(steps)

    async def delete(self, key: str) -> Result[bool, IdempotencyError]:
        """Forget the key."""
        if (wrong := refusal_of(key)) is not None:
            return Err(wrong)

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._database.dialect)
            gone = (yield DELETE, (self._namespace, key)).first()
            return gone is not None and (gone["expires_at"] is None or gone["expires_at"] > now)

        return await self._result(steps)

    async def sweep(self, batch: int = 1000) -> int:
        """Remove expired rows, ``batch`` per transaction; how many. Raises DatabaseError."""

        def steps() -> Steps[int]:
            now = yield from lease_now(self._database.dialect)
            name = self._namespace
            return (yield SWEEP, (name, name, now, batch, now)).row_count

        removed = 0
        while (done := await self._database.run_steps(steps)) > 0:
            removed += done
        return removed

    def _record(self, key: str, row: dict[str, Any]) -> IdempotencyRecord:
        data, until = row["value"], row["expires_at"]
        return IdempotencyRecord(
            key,
            IdempotencyStatus(row["status"]),
            datetime.fromtimestamp(row["created_at"], UTC),
            None if until is None else datetime.fromtimestamp(until, UTC),
            None if data is None else self._values.read(key, data),
        )

    async def _result(self, steps: Callable[[], Steps[T]]) -> Result[T, IdempotencyError]:
        """The one place where failures of the database become values."""
        try:
            return Ok(await self._database.run_steps(steps))
        except CacheError as error:
            return Err(as_idempotency_error(error))
        except TransactionScopeError:
            raise  # a mistake in the calling code, not a failing backend
        except DatabaseError as error:
            return Err(
                IdempotencyError(
                    f"the idempotency store cannot be used: {error.message}",
                    hint=error.hint,
                    cause=error,
                )
            )


def _end(now: float, ttl: float | None) -> float | None:
    return None if ttl is None else now + ttl
