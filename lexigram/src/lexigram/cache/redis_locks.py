"""``DistributedLockProtocol`` in Redis; every step is one script."""

from __future__ import annotations

from typing import Any

from lexigram.cache.locks import blocking, positive
from lexigram.cache.redis import PREFIX, RedisConnection, milliseconds
from lexigram.contracts.core.lock import LockError
from lexigram.contracts.infra.cache import CacheError


class RedisLocks:
    """Locks under ``<prefix>:lock:`` by the clock of one Redis server.

    They live in its memory: a server that lost its data has given all locks back, and its fences
    begin anew. Where that matters, take the locks of the database.
    """

    def __init__(self, connection: RedisConnection, *, prefix: str = PREFIX) -> None:
        self._redis = connection
        self._prefix = f"{prefix}:lock:"
        self._fence = f"{prefix}:fence"

    async def acquire(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Take the lock if it is free or expired; the owner's own is extended."""
        args = [owner, milliseconds(positive(ttl))]
        return bool(await self._run(ACQUIRE, [self._prefix + key, self._fence], args))

    async def acquire_blocking(
        self, key: str, owner: str, ttl: float = 30.0, timeout: float | None = None
    ) -> bool:
        """Wait until ``acquire`` succeeds, at most ``timeout`` seconds."""
        return await blocking(self.acquire, self.release, key, owner, ttl, timeout)

    async def extend(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Start the ttl anew."""
        args = [owner, milliseconds(positive(ttl))]
        return bool(await self._run(EXTEND, [self._prefix + key], args))

    async def release(self, key: str, owner: str) -> bool:
        """Give the lock back."""
        return bool(await self._run(RELEASE, [self._prefix + key], [owner]))

    async def is_held(self, key: str, owner: str | None = None) -> bool:
        """Whether the owner, or anybody, holds the lock."""
        holder, _ = await self._find(key)
        return holder is not None and owner in (None, holder)

    async def fence(self, key: str, owner: str) -> int | None:
        """The number of the owner's grant."""
        holder, fence = await self._find(key)
        return fence if holder == owner else None

    async def _find(self, key: str) -> tuple[str | None, int]:
        owner, fence = await self._run(FIND, [self._prefix + key], [])
        return (None, 0) if owner is None else (_text(owner), int(fence))

    async def _run(self, script: str, keys: list[str], args: list[Any]) -> Any:
        try:
            # Twice is once: an owner that has the lock is granted it again.
            return await self._redis.run(script, keys, args, again=script is not RELEASE)
        except CacheError as error:
            raise LockError(
                f"the locks cannot be used: {error.message}", hint=error.hint, cause=error
            ) from error


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


# The number is taken only when the lock changes hands, in the same step: so fences grow in the
# order of grants.
ACQUIRE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
if not owner then
    redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', redis.call('INCR', KEYS[2]))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""

EXTEND = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

RELEASE = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

FIND = "return redis.call('HMGET', KEYS[1], 'owner', 'fence')"
