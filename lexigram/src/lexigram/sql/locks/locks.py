"""``ResourceLockProtocol`` on a database."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import anyio

from lexigram.contracts.core.lock import LockConflictError, LockError, LockLostError
from lexigram.contracts.data.locks import ResourceLock, ResourceLockKind
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.leasing import Backoff, lease_token, renew_until_lost
from lexigram.observability import get_logger
from lexigram.sql.database import Database
from lexigram.sql.errors import TransactionScopeError
from lexigram.sql.leasing import WakeUp, lease_now
from lexigram.sql.locks import statements as sql
from lexigram.sql.steps import Steps

T = TypeVar("T")

logger = get_logger(__name__)

_CHANNEL = "lexigram_locks"
_KEY = 255  # characters of a key in the table
_MARK_SECONDS = 5.0  # that the mark of who waits outlives him when he dies


class SqlResourceLocks:
    """Locks shared by all processes that use the database; their clock is ``lease_now``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._released = WakeUp(database, _CHANNEL, poll=1.0)

    async def acquire(
        self,
        key: str,
        holder_id: str,
        *,
        kind: ResourceLockKind = ResourceLockKind.WORKER,
        ttl: float = 300.0,
        meta: Mapping[str, Any] | None = None,
    ) -> ResourceLock | None:
        """Take the lock if it is free, else None; the holder's own lock is extended."""
        notes = json.dumps(dict(meta or {}))
        return await self._do(lambda: self._acquire(key, holder_id, kind, _positive(ttl), notes))

    async def refresh(self, key: str, holder_id: str, ttl: float = 300.0) -> bool:
        """Start the ttl anew; False when it is not the holder's any more."""
        return await self._do(lambda: self._refresh(key, holder_id, _positive(ttl)))

    async def release(self, key: str, holder_id: str) -> bool:
        """Give the lock back and wake who waits for one."""
        released = await self._do(lambda: self._release(key, holder_id))
        if released:
            await self._wake()
        return released

    @asynccontextmanager
    async def hold(
        self,
        key: str,
        *,
        kind: ResourceLockKind = ResourceLockKind.WORKER,
        ttl: float = 300.0,
        max_wait: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[ResourceLock]:
        """Wait for the lock, keep it refreshed through the block, give it back."""
        self._database.refuse_inside_transaction("holding a lock")
        holder = lease_token()
        lock = await self._acquire_waiting(key, holder, kind, ttl, max_wait, meta)
        lost, failure = False, None
        try:
            async with anyio.create_task_group() as tasks:

                async def keep() -> None:
                    nonlocal lost
                    await renew_until_lost(
                        lambda: self.refresh(key, holder, ttl), ttl, partial(_warn, key)
                    )
                    lost = True
                    tasks.cancel_scope.cancel()

                tasks.start_soon(keep)
                try:
                    yield lock
                except Exception as error:  # noqa: BLE001 - raised below, not as part of a group
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(ttl, shield=True):
                await self._give_back(key, holder)
        if lost:
            raise LockLostError(
                f"the lock {key!r} was lost while it was held",
                details={"key": key, "holder": holder, "fence": lock.fence},
                hint="a longer ttl survives longer pauses",
            ) from failure
        if failure is not None:
            raise failure

    async def get(self, key: str) -> ResourceLock | None:
        """The lock as it is now, or None when nobody has it."""
        # Only a look: who holds the database in a write does not keep others from seeing it.
        return await self._do(lambda: self._get(key), self._database.read_steps)

    async def sweep_expired(self) -> int:
        """Remove rows of expired locks; how many."""
        return await self._do(self._sweep)

    async def force_release(self, key: str, *, reason: str) -> bool:
        """Take the lock from its owner; owner and reason are logged."""
        taken = await self._do(lambda: self._force_release(key))
        if taken is None:
            return False
        logger.warning("lock released by force", key=key, reason=reason, **taken)
        await self._wake()
        return True

    # --- the steps: one transaction each -------------------------------------------------------

    def _acquire(
        self, key: str, holder: str, kind: ResourceLockKind, ttl: float, notes: str
    ) -> Steps[ResourceLock | None]:
        now = yield from lease_now(self._database.dialect)
        found = (yield sql.FIND, (key, now)).first()
        if found is not None and found["holder_id"] != holder:
            return None
        if found is not None and (yield sql.EXTEND, (now + ttl, key, holder, now)).row_count:
            return _lock({**found, "expires_at": now + ttl})
        fence = (yield sql.NEXT_FENCE, ()).rows[0]["last"]
        # The wait for the fence may have been long: judge by the time after it.
        now = yield from lease_now(self._database.dialect)
        granted = yield sql.TAKE, (key, holder, kind.value, notes, fence, now, now + ttl)
        row = granted.first()
        return None if row is None else _lock(row)

    def _refresh(self, key: str, holder: str, ttl: float) -> Steps[bool]:
        now = yield from lease_now(self._database.dialect)
        return (yield sql.EXTEND, (now + ttl, key, holder, now)).row_count == 1

    def _release(self, key: str, holder: str) -> Steps[bool]:
        now = yield from lease_now(self._database.dialect)
        return (yield sql.RELEASE, (key, holder, now)).row_count == 1

    def _get(self, key: str) -> Steps[ResourceLock | None]:
        now = yield from lease_now(self._database.dialect)
        row = (yield sql.FIND, (key, now)).first()
        return None if row is None else _lock(row)

    def _sweep(self) -> Steps[int]:
        now = yield from lease_now(self._database.dialect)
        return (yield sql.SWEEP, (now,)).row_count

    def _force_release(self, key: str) -> Steps[dict[str, Any] | None]:
        now = yield from lease_now(self._database.dialect)
        return (yield sql.FORCE_RELEASE, (key, now)).first()

    # --- holding -------------------------------------------------------------------------------

    async def _acquire_waiting(
        self,
        key: str,
        holder: str,
        kind: ResourceLockKind,
        ttl: float,
        max_wait: float | None,
        meta: Mapping[str, Any] | None,
    ) -> ResourceLock:
        def acquire() -> Awaitable[ResourceLock | None]:
            return self.acquire(key, holder, kind=kind, ttl=ttl, meta=meta)

        try:
            lock = await acquire()
            if lock is None and max_wait != 0:
                with anyio.move_on_after(max_wait):
                    lock = await self._retry_until_granted(key, holder, acquire)
            if lock is None:
                raise await self._conflict(key, max_wait)
        except BaseException:
            # A try that was cancelled may have been granted after all.
            with anyio.move_on_after(ttl, shield=True):
                await self._give_back(key, holder)
            raise
        return lock

    async def _retry_until_granted(
        self, key: str, holder: str, acquire: Callable[[], Awaitable[ResourceLock | None]]
    ) -> ResourceLock:
        backoff, attempt = Backoff(first=0.02, cap=1.0), 0
        mark = sql.WAITING + key
        try:
            async with self._released.waiting() as waiter:
                while True:
                    if (lock := await acquire()) is not None:
                        return lock
                    # One of several that wait has it; a key without room for it goes without.
                    if len(mark) <= _KEY:
                        await self.acquire(mark, holder, ttl=_MARK_SECONDS)
                    attempt += 1
                    await waiter.wait(at_most=backoff.delay(attempt))
        finally:
            with anyio.move_on_after(_MARK_SECONDS, shield=True):
                await self._do(lambda: self._release(mark, holder))

    async def _give_back(self, key: str, holder: str) -> None:
        try:
            await self.release(key, holder)
        except LockError as error:
            logger.warning("lock not given back; it will expire", key=key, error=str(error))

    async def _conflict(self, key: str, max_wait: float | None) -> LockConflictError:
        owner = await self.get(key)
        who = f"{owner.holder_kind.value} {owner.holder_id}" if owner else "another owner"
        return LockConflictError(
            f"the lock {key!r} was held by {who} for {max_wait:g} s"
            if max_wait
            else f"the lock {key!r} is held by {who}",
            details={"key": key, "holder": owner.holder_id if owner else None},
            hint="wait longer, or do the work later",
        )

    async def _wake(self) -> None:
        try:
            await self._released.wake()
        except DatabaseError as error:  # those who wait look again by themselves
            logger.warning("waiters for a lock could not be woken", error=str(error))

    async def _do(
        self,
        steps: Callable[[], Steps[T]],
        door: Callable[[Callable[[], Steps[T]]], Awaitable[T]] | None = None,
    ) -> T:
        try:
            return await (door or self._database.run_steps)(steps)
        except TransactionScopeError:
            raise
        except DatabaseError as error:
            raise LockError(
                f"the locks cannot be used: {error.message}", hint=error.hint
            ) from error


def _warn(key: str, error: Exception) -> None:
    if not isinstance(error, LockError):
        raise error
    logger.warning("lock could not be refreshed", key=key, error=str(error))


def _lock(row: Mapping[str, Any]) -> ResourceLock:
    return ResourceLock(
        resource_key=row["resource_key"],
        holder_id=row["holder_id"],
        fence=row["fence"],
        acquired_at=datetime.fromtimestamp(row["acquired_at"], UTC),
        expires_at=datetime.fromtimestamp(row["expires_at"], UTC),
        holder_kind=ResourceLockKind(row["holder_kind"]),
        holder_meta=json.loads(row["holder_meta"]),
    )


def _positive(ttl: float) -> float:
    if ttl > 0:
        return ttl
    raise LockError(f"a lock cannot be held for {ttl:g} s", hint="give a ttl above 0")
