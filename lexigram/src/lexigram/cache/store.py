"""A cache in a table of the database, shared by all processes that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from json import dumps
from typing import Any, TypeVar

import anyio
from attrs import frozen

from lexigram import clock
from lexigram.cache.values import Values, literal_start, problem, problem_of_key
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.lock import LockError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.cache import CacheError
from lexigram.sql import Database, TransactionScopeError, is_transient
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.steps import Steps

T = TypeVar("T")

PAGE = 1000  # keys looked at, or rows removed, in one transaction


@frozen(kw_only=True)
class Statements:
    """What differs by dialect: lists of keys, several rows at once, and who says the time.

    The time stands at one place of a statement. PostgreSQL asks its own clock there; on SQLite it
    is a parameter, from ``lexigram.clock``.
    """

    # Primary key. SQLite: on a reader, so no writer is waited for.
    get: str
    exists: str
    # Primary key, once per key.
    get_many: str
    delete_many: str
    # Primary key; row lock on the row replaced. Expiry: the ttl (or NULL) and the time.
    set: str
    # The prefix of the primary key, in its order: each page goes on after the last key.
    page: str
    # Index on expires_at; the row locks of one batch. SKIP LOCKED: two sweepers share the work.
    sweep: str


# {now} is the time, {keys} a list of keys.
_GET = """
SELECT value FROM lexigram_cache
WHERE namespace = ? AND key = ? AND (expires_at IS NULL OR expires_at > {now})"""

_EXISTS = """
SELECT 1 AS one FROM lexigram_cache
WHERE namespace = ? AND key = ? AND (expires_at IS NULL OR expires_at > {now})"""

_GET_MANY = """
SELECT key, value FROM lexigram_cache
WHERE namespace = ? AND key {keys} AND (expires_at IS NULL OR expires_at > {now})"""

_SET = """
INSERT INTO lexigram_cache (namespace, key, value, expires_at)
VALUES (?, ?, ?, CAST(? AS double precision) + {now})
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"""

_PAGE = """
SELECT key FROM lexigram_cache
WHERE namespace = ? AND substr(key, 1, CAST(? AS integer)) = ? AND key > ?
ORDER BY key LIMIT ?"""

# The rows in the order of their keys: two such statements cannot wait for each other.
_DELETE_ON_POSTGRES = """
WITH gone AS (
    SELECT namespace, key, expires_at FROM lexigram_cache
    WHERE namespace = ? AND key {keys} ORDER BY key FOR UPDATE
), removed AS (
    DELETE FROM lexigram_cache USING gone
    WHERE lexigram_cache.namespace = gone.namespace AND lexigram_cache.key = gone.key
)
SELECT count(*) AS live FROM gone WHERE expires_at IS NULL OR expires_at > {now}"""

# Not `expires_at IS NULL`: SQLite 3.40 calls that false in a RETURNING, whatever the row.
_DELETE_ON_SQLITE = """
DELETE FROM lexigram_cache WHERE namespace = ? AND key {keys}
RETURNING coalesce(expires_at > {now}, 1) AS live"""

_SWEEP_ON_POSTGRES = """
DELETE FROM lexigram_cache WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM lexigram_cache
    WHERE namespace = ? AND expires_at <= {now} LIMIT ? FOR UPDATE SKIP LOCKED))"""

_SWEEP_ON_SQLITE = """
DELETE FROM lexigram_cache WHERE rowid IN (
    SELECT rowid FROM lexigram_cache WHERE namespace = ? AND expires_at <= {now} LIMIT ?)"""


def _statements(now: str, keys: str, delete_many: str, sweep: str) -> Statements:
    return Statements(
        get=_GET.format(now=now),
        exists=_EXISTS.format(now=now),
        get_many=_GET_MANY.format(now=now, keys=keys),
        delete_many=delete_many.format(now=now, keys=keys),
        set=_SET.format(now=now),
        page=_PAGE,
        sweep=sweep.format(now=now),
    )


_POSTGRES = _statements(
    "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
    "= ANY(CAST(? AS text[]))",
    _DELETE_ON_POSTGRES,
    _SWEEP_ON_POSTGRES,
)
_SQLITE = _statements(
    "?", "IN (SELECT value FROM json_each(?))", _DELETE_ON_SQLITE, _SWEEP_ON_SQLITE
)

# Both. The prefix of the primary key; the row locks of all.
CLEAR = "DELETE FROM lexigram_cache WHERE namespace = ?"


class SqlCache:
    """Durable as the database is. Inside a transaction of its task it is part of it.

    ``namespace`` separates caches in one table. Expired rows are never read; ``sweep`` removes
    them. Values without a ttl stay until they are deleted.
    """

    def __init__(
        self,
        database: Database,
        locks: SqlResourceLocks | None = None,
        *,
        namespace: str = "default",
        values: Values | None = None,
    ) -> None:
        self.values = values or Values()
        self.namespace = namespace
        self._database = database
        self._locks = locks or SqlResourceLocks(database)
        self._sql = _SQLITE if database.dialect == "sqlite" else _POSTGRES

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value; Ok(None) when it is missing or expired."""
        if (wrong := problem_of_key(key)) is not None:
            return Err(wrong)

        async def work() -> Any:
            found = await self._database.execute_query(
                self._sql.get, (self.namespace, key, *self._now())
            )
            row = found.first()
            return None if row is None else self.values.read(key, row["value"])

        return await self._result(work)

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store the value."""
        if (wrong := problem((key,), ttl)) is not None:
            return Err(wrong)

        async def work() -> None:
            data = self.values.write(key, value)
            await self._write(self._sql.set, (self.namespace, key, data, ttl, *self._now()))

        return await self._result(work)

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; whether it was there."""
        return (await self.delete_many((key,))).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys in one transaction; how many were there."""
        asked = list(keys)
        if (wrong := problem(asked)) is not None:
            return Err(wrong)
        return await self._result(lambda: self._delete(asked))

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match the glob, page by page; looks at all with its beginning."""

        async def work() -> int:
            start, last, removed = literal_start(pattern), "", 0
            while True:
                page = await self._database.execute_query(
                    self._sql.page, (self.namespace, len(start), start, last, PAGE)
                )
                keys = [row["key"] for row in page.rows]
                if found := [key for key in keys if fnmatchcase(key, pattern)]:
                    removed += await self._delete(found)
                if len(keys) < PAGE:
                    return removed
                last = keys[-1]

        return await self._result(work)

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """Whether the key holds a value, None included."""
        if (wrong := problem_of_key(key)) is not None:
            return Err(wrong)

        async def work() -> bool:
            found = await self._database.execute_query(
                self._sql.exists, (self.namespace, key, *self._now())
            )
            return bool(found.rows)

        return await self._result(work)

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything of this namespace."""

        async def work() -> None:
            await self._write(CLEAR, (self.namespace,))

        return await self._result(work)

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there, by key."""
        asked = list(keys)
        if (wrong := problem(asked)) is not None:
            return Err(wrong)

        async def work() -> dict[str, Any]:
            found = await self._database.execute_query(
                self._sql.get_many, (self.namespace, self._list(asked), *self._now())
            )
            return {row["key"]: self.values.read(row["key"], row["value"]) for row in found.rows}

        return await self._result(work)

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store all values in one transaction, in the order of their keys."""
        if (wrong := problem(items, ttl)) is not None:
            return Err(wrong)

        async def work() -> None:
            # Sorted: two such transactions on PostgreSQL cannot wait for each other.
            rows = sorted((key, self.values.write(key, value)) for key, value in items.items())

            def steps() -> Steps[None]:
                for key, data in rows:
                    yield self._sql.set, (self.namespace, key, data, ttl, *self._now())

            await self._database.run_steps(steps)

        return await self._result(work)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the table answers in time."""
        answer: Result[bool, CacheError] | None = None
        with anyio.move_on_after(timeout):
            answer = await self.exists("health")
        if isinstance(answer, Ok):
            return HealthCheckResult("cache", message=f"{self._database.dialect} answers")
        error = f"no answer within {timeout:g} s" if answer is None else answer.error.message
        return HealthCheckResult("cache", HealthStatus.UNHEALTHY, message=error, error=error)

    async def sweep(self, batch: int = PAGE) -> int:
        """Remove expired rows, ``batch`` per transaction; how many. Raises DatabaseError."""
        removed = 0
        while True:
            done = await self._database.execute(
                self._sql.sweep, (self.namespace, *self._now(), batch)
            )
            removed += done.row_count
            if done.row_count < batch:
                return removed

    # --- leases to load: locks of the database ---------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """Inside one, nobody else would see a lock."""
        return self._database.in_transaction

    async def claim(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Take the lease if nobody has it."""

        async def work() -> bool:
            return await self._locks.acquire(self._lock(key), token, ttl=seconds) is not None

        return await self._result(work)

    async def renew(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Start the seconds anew."""
        return await self._result(lambda: self._locks.refresh(self._lock(key), token, seconds))

    async def fill(
        self, key: str, token: str, value: Any, ttl: float | None
    ) -> Result[bool, CacheError]:
        """Give the lease back and store the value in one transaction, or neither."""

        async def work() -> bool:
            data = self.values.write(key, value)
            async with self._database.transaction() as transaction:
                # The row of the lock is ours until the commit: nobody can claim it in between.
                if not await self._locks.release(self._lock(key), token):
                    return False
                await transaction.execute(
                    self._sql.set, (self.namespace, key, data, ttl, *self._now())
                )
            return True

        return await self._result(work)

    async def abandon(self, key: str, token: str) -> Result[bool, CacheError]:
        """Give the lease back without a value."""
        return await self._result(lambda: self._locks.release(self._lock(key), token))

    def _lock(self, key: str) -> str:
        # Hashed: the key of a lock is shorter than that of a value may be.
        name = f"{self.namespace}\0{key}".encode()
        return f"cache:{sha256(name).hexdigest()}"

    async def _delete(self, keys: list[str]) -> int:
        params = (self.namespace, self._list(keys), *self._now())
        found = await self._write(self._sql.delete_many, params)
        # One row with the number on PostgreSQL, one row per key on SQLite.
        return sum(int(row["live"]) for row in found.rows)

    async def _write(self, sql: str, params: tuple[Any, ...]) -> Any:
        """One round trip; again in a transaction of its own when it failed for the moment."""
        try:
            return await self._database.execute(sql, params)
        except DatabaseError as error:
            if not is_transient(error) or self._database.in_transaction:
                raise

        def steps() -> Steps[Any]:
            return (yield sql, params)

        return await self._database.run_steps(steps)

    def _now(self) -> tuple[float, ...]:
        return (clock.timestamp(),) if self._sql is _SQLITE else ()

    def _list(self, keys: list[str]) -> Any:
        return dumps(keys) if self._sql is _SQLITE else keys

    async def _result(self, work: Callable[[], Any]) -> Result[Any, CacheError]:
        """The one place where failures of the database become values."""
        try:
            return Ok(await work())
        except CacheError as error:
            return Err(error)
        except TransactionScopeError:
            raise  # a mistake in the calling code, not a failing backend
        except (DatabaseError, LockError) as error:
            return Err(
                CacheError(
                    f"the cache in the database cannot be used: {error.message}",
                    hint=error.hint,
                    cause=error,
                )
            )
