"""``IdempotencyStoreProtocol`` in the memory of a process, and what all of them share."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import heappop, heappush
from math import inf
from typing import Any

from attrs import frozen

from lexigram import clock
from lexigram.cache.values import Copies, Values, problem
from lexigram.contracts.core.idempotency import (
    IdempotencyError,
    IdempotencyRecord,
    IdempotencyStatus,
)
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheError


class MemoryIdempotencyStore:
    """Keys and outcomes of this process; they end with it.

    What is expired is forgotten with the next write; what has no ttl is kept for ever.
    """

    def __init__(self, values: Values | None = None) -> None:
        self._values = values or Copies()
        self._records: dict[str, _Kept] = {}
        self._expiries: list[tuple[float, str]] = []  # may name records replaced since

    async def acquire(self, key: str, ttl: float | None = None) -> Result[bool, IdempotencyError]:
        """Claim the key: Ok(True) for exactly one caller."""
        if (wrong := refusal_of(key, ttl)) is not None:
            return Err(wrong)
        if self._live(key) is not None:
            return Ok(False)
        self._keep(key, IdempotencyStatus.IN_PROGRESS, None, ttl, clock.now())
        return Ok(True)

    async def set(
        self, key: str, value: Any, ttl: float | None = None
    ) -> Result[None, IdempotencyError]:
        """Store the outcome and mark the key COMPLETED."""
        if (wrong := refusal_of(key, ttl)) is not None:
            return Err(wrong)
        try:
            kept = self._values.write(key, value)
        except CacheError as error:
            return Err(as_idempotency_error(error))
        live = self._live(key)
        created = clock.now() if live is None else live.created_at
        self._keep(key, IdempotencyStatus.COMPLETED, kept, ttl, created)
        return Ok(None)

    async def get(self, key: str) -> Result[Any, IdempotencyError]:
        """The stored outcome; Ok(None) for an unknown key and for one in progress."""
        return (await self.get_record(key)).map_sync(outcome)

    async def get_record(self, key: str) -> Result[IdempotencyRecord | None, IdempotencyError]:
        """Everything known about the key, or Ok(None)."""
        if (wrong := refusal_of(key)) is not None:
            return Err(wrong)
        live = self._live(key)
        if live is None:
            return Ok(None)
        try:
            value = self._values.read(key, live.value)
        except CacheError as error:
            return Err(as_idempotency_error(error))
        return Ok(IdempotencyRecord(key, live.status, live.created_at, live.expires_at, value))

    async def delete(self, key: str) -> Result[bool, IdempotencyError]:
        """Forget the key."""
        if (wrong := refusal_of(key)) is not None:
            return Err(wrong)
        was = self._live(key) is not None
        self._records.pop(key, None)
        return Ok(was)

    def _live(self, key: str) -> _Kept | None:
        record = self._records.get(key)
        return record if record is not None and record.until > clock.monotonic() else None

    def _keep(
        self,
        key: str,
        status: IdempotencyStatus,
        value: Any,
        ttl: float | None,
        created: datetime,
    ) -> None:
        self._forget_expired()
        until = inf if ttl is None else clock.monotonic() + ttl
        at = None if ttl is None else datetime.fromtimestamp(clock.timestamp() + ttl, UTC)
        self._records[key] = _Kept(
            status=status, value=value, created_at=created, expires_at=at, until=until
        )
        if ttl is not None:
            heappush(self._expiries, (until, key))

    def _forget_expired(self) -> None:
        now = clock.monotonic()
        while self._expiries and self._expiries[0][0] <= now:
            until, key = heappop(self._expiries)
            record = self._records.get(key)
            if record is not None and record.until == until:
                del self._records[key]


@frozen(kw_only=True)
class _Kept:
    status: IdempotencyStatus
    value: Any
    created_at: datetime
    expires_at: datetime | None
    until: float  # on the monotonic clock


def refusal_of(key: str, ttl: float | None = None) -> IdempotencyError | None:
    """Why the key or ttl cannot be used, or None; the same rules as for the cache."""
    wrong = problem((key,), ttl)
    return None if wrong is None else as_idempotency_error(wrong)


def as_idempotency_error(error: CacheError) -> IdempotencyError:
    """The same failure in the name of this contract."""
    return IdempotencyError(error.message, hint=error.hint, cause=error)


def outcome(record: IdempotencyRecord | None) -> Any:
    """The stored outcome, or None."""
    return None if record is None else record.value
