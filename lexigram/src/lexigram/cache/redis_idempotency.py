"""``IdempotencyStoreProtocol`` in Redis; every step is one script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lexigram.cache.idempotency import as_idempotency_error, outcome, refusal_of
from lexigram.cache.redis import PREFIX, RedisConnection, milliseconds
from lexigram.cache.values import Values
from lexigram.contracts.core.idempotency import (
    IdempotencyError,
    IdempotencyRecord,
    IdempotencyStatus,
)
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheError


class RedisIdempotencyStore:
    """Keys under ``<prefix>:once:``; durable as far as the server writes to its disk."""

    def __init__(
        self, connection: RedisConnection, *, prefix: str = PREFIX, values: Values | None = None
    ) -> None:
        self._redis = connection
        self._prefix = f"{prefix}:once:"
        self._values = values or Values()

    async def acquire(self, key: str, ttl: float | None = None) -> Result[bool, IdempotencyError]:
        """Claim the key: Ok(True) for exactly one caller of all processes."""
        found = await self._run(ACQUIRE, key, [milliseconds(ttl) or 0], ttl)
        return found.map_sync(bool)

    async def set(
        self, key: str, value: Any, ttl: float | None = None
    ) -> Result[None, IdempotencyError]:
        """Store the outcome and mark the key COMPLETED."""
        try:
            data = self._values.write(key, value)
        except CacheError as error:
            return Err(as_idempotency_error(error))
        found = await self._run(COMPLETE, key, [milliseconds(ttl) or 0, data], ttl, again=True)
        return found.map_sync(lambda _: None)

    async def get(self, key: str) -> Result[Any, IdempotencyError]:
        """The stored outcome; Ok(None) for an unknown key and for one in progress."""
        return (await self.get_record(key)).map_sync(outcome)

    async def get_record(self, key: str) -> Result[IdempotencyRecord | None, IdempotencyError]:
        """Everything known about the key, or Ok(None)."""
        found = await self._run(FIND, key, [], again=True)
        if isinstance(found, Err):
            return found
        try:
            return Ok(self._record(key, found.value))
        except CacheError as error:
            return Err(as_idempotency_error(error))

    async def delete(self, key: str) -> Result[bool, IdempotencyError]:
        """Forget the key."""
        return (await self._run(DELETE, key, [])).map_sync(bool)

    def _record(self, key: str, found: Sequence[Any]) -> IdempotencyRecord | None:
        status, created, data, expires = found
        if status is None:
            return None
        return IdempotencyRecord(
            key,
            IdempotencyStatus(status.decode() if isinstance(status, bytes) else status),
            _moment(int(created)),
            None if int(expires) < 0 else _moment(int(expires)),
            None if data is None else self._values.read(key, data),
        )

    async def _run(
        self,
        script: str,
        key: str,
        args: list[Any],
        ttl: float | None = None,
        *,
        again: bool = False,
    ) -> Result[Any, IdempotencyError]:
        if (wrong := refusal_of(key, ttl)) is not None:
            return Err(wrong)
        try:
            return Ok(await self._redis.run(script, [self._prefix + key], args, again=again))
        except CacheError as error:
            return Err(as_idempotency_error(error))


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


ACQUIRE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'status', 'in_progress',
    'created', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
if tonumber(ARGV[1]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
"""

COMPLETE = """
local time = redis.call('TIME')
redis.call('HSETNX', KEYS[1], 'created',
    string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('HSET', KEYS[1], 'status', 'completed', 'value', ARGV[2])
if tonumber(ARGV[1]) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
else
    redis.call('PERSIST', KEYS[1])
end
return 1
"""

# -1: it has no end. PEXPIRETIME would need Redis 7.
FIND = """
local found = redis.call('HMGET', KEYS[1], 'status', 'created', 'value')
local left = redis.call('PTTL', KEYS[1])
local expires = -1
if left >= 0 then
    local time = redis.call('TIME')
    expires = time[1] * 1000 + math.floor(time[2] / 1000) + left
end
return {found[1], found[2], found[3], string.format('%.0f', expires)}
"""

DELETE = "return redis.call('DEL', KEYS[1])"
