"""The connection to a Redis, and a cache in it that all its clients share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import anyio

from lexigram.cache.values import Values, literal_start, problem, problem_of_key
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheError
from lexigram.resilience.redis import connect, to_its_end

T = TypeVar("T")

PREFIX = "lexigram:cache"
PAGE = 1000  # keys asked for, or removed, in one command


class RedisConnection:
    """A pool of connections to one Redis; it connects on first use.

    Never more than ``max_connections``; who finds none free waits, up to ``timeout`` seconds,
    which is also the limit of every answer.
    """

    def __init__(self, url: str, *, timeout: float = 2.0, max_connections: int = 20) -> None:
        self.client = connect(
            url,
            timeout,
            purpose="a cache in redis",
            setting="redis_url of the cache",
            max_connections=max_connections,
        )
        self._scripts: dict[str, Any] = {}

    async def ask(
        self,
        question: Callable[[Any], Awaitable[T]],
        *,
        again: bool = False,
        to_its_end: bool = False,
    ) -> T:
        """The answer of ``question(client)``; CacheError when Redis gives none.

        ``again``: after a lost connection ask once more, for what may be done twice. A Redis
        that was restarted has closed the idle connections of the pool, which shows at their use.
        ``to_its_end``: who is cancelled may count on it that nothing is on its way any more.
        """
        answer = _to_its_end if to_its_end else _unless_cancelled
        from redis.exceptions import ConnectionError as LostConnectionError
        from redis.exceptions import RedisError

        try:
            try:
                return await answer(question(self.client))
            except LostConnectionError:
                if not again:
                    raise
            return await answer(question(self.client))
        except (RedisError, OSError) as error:
            raise CacheError(
                f"redis does not answer: {error!r}",
                hint="check that the server runs, and redis_url of the cache",
                cause=error,
            ) from error

    async def run(
        self, script: str, keys: list[str], args: list[Any], *, again: bool = False
    ) -> Any:
        """The answer of a script."""
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self.client.register_script(script)
        return await self.ask(lambda _: known(keys=keys, args=args), again=again, to_its_end=True)

    async def aclose(self) -> None:
        """Close the connections; the object may be used again and then opens new ones."""
        await self.client.aclose()


class RedisCache:
    """Values under ``<prefix>:v:``; Redis expires them, and evicts as its ``maxmemory`` says."""

    # A lease is part of no transaction here.
    in_transaction = False

    def __init__(
        self, connection: RedisConnection, *, prefix: str = PREFIX, values: Values | None = None
    ) -> None:
        self.values = values or Values()
        self._redis = connection
        self._prefix = f"{prefix}:v:"
        self._leases = f"{prefix}:load:"

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value; Ok(None) when it is missing or expired."""
        if (wrong := problem_of_key(key)) is not None:
            return Err(wrong)

        async def work() -> Any:
            data = await self._redis.ask(lambda redis: redis.get(self._prefix + key), again=True)
            return None if data is None else self.values.read(key, data)

        return await _result(work)

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store the value."""
        if (wrong := problem((key,), ttl)) is not None:
            return Err(wrong)

        async def work() -> None:
            data = self.values.write(key, value)
            await self._redis.ask(
                lambda redis: redis.set(self._prefix + key, data, px=milliseconds(ttl)), again=True
            )

        return await _result(work)

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; whether it was there."""
        return (await self.delete_many((key,))).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys; how many were there."""
        asked = list(keys)
        if (wrong := problem(asked)) is not None:
            return Err(wrong)
        return await _result(lambda: self._unlink([self._prefix + key for key in asked]))

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match the glob; walks over all keys of the server."""
        return await _result(lambda: self._unlink_matching(pattern))

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """Whether the key holds a value, None included."""
        if (wrong := problem_of_key(key)) is not None:
            return Err(wrong)

        async def work() -> bool:
            return bool(
                await self._redis.ask(lambda redis: redis.exists(self._prefix + key), again=True)
            )

        return await _result(work)

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything of this prefix; walks over all keys of the server."""

        async def work() -> None:
            await self._unlink_matching("*")

        return await _result(work)

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there, by key."""
        asked = list(keys)
        if (wrong := problem(asked)) is not None:
            return Err(wrong)

        async def work() -> dict[str, Any]:
            found: dict[str, Any] = {}
            for page in _pages(asked):
                names = [self._prefix + key for key in page]
                answer = await self._redis.ask(lambda redis: redis.mget(names), again=True)  # noqa: B023 - awaited here
                for key, data in zip(page, answer, strict=True):
                    if data is not None:
                        found[key] = self.values.read(key, data)
            return found

        return await _result(work)

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store all values, a page of them per transaction."""
        if (wrong := problem(items, ttl)) is not None:
            return Err(wrong)

        async def work() -> None:
            made = [
                (self._prefix + key, self.values.write(key, value)) for key, value in items.items()
            ]
            for page in _pages(made):
                await self._redis.ask(lambda redis: _set_page(redis, page, ttl), again=True)  # noqa: B023 - awaited here

        return await _result(work)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when Redis answers in time."""
        error: str | None = f"no answer within {timeout:g} s"
        with anyio.move_on_after(timeout):
            answer = await _result(lambda: self._redis.ask(lambda redis: redis.ping(), again=True))
            error = None if isinstance(answer, Ok) else answer.error.message
        status = HealthStatus.HEALTHY if error is None else HealthStatus.UNHEALTHY
        return HealthCheckResult("cache", status, message=error or "redis answers", error=error)

    # --- leases to load ------------------------------------------------------------------------

    async def claim(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Take the lease if nobody has it."""

        async def work() -> bool:
            return bool(
                await self._redis.ask(
                    lambda redis: redis.set(
                        self._leases + key, token, nx=True, px=milliseconds(seconds)
                    ),
                    to_its_end=True,
                )
            )

        return await _result(work)

    async def renew(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Start the seconds anew."""
        return await self._run(RENEW, [self._leases + key], [token, milliseconds(seconds)])

    async def fill(
        self, key: str, token: str, value: Any, ttl: float | None
    ) -> Result[bool, CacheError]:
        """Store the value and give the lease back, both or none."""
        try:
            data = self.values.write(key, value)
        except CacheError as error:
            return Err(error)
        keys = [self._leases + key, self._prefix + key]
        return await self._run(FILL, keys, [token, data, milliseconds(ttl) or 0])

    async def abandon(self, key: str, token: str) -> Result[bool, CacheError]:
        """Give the lease back without a value."""
        return await self._run(ABANDON, [self._leases + key], [token])

    async def _run(self, script: str, keys: list[str], args: list[Any]) -> Result[bool, CacheError]:
        async def work() -> bool:
            return bool(await self._redis.run(script, keys, args))

        return await _result(work)

    async def _unlink(self, names: list[str]) -> int:
        removed = 0
        for page in _pages(names):
            removed += await self._redis.ask(lambda redis: redis.unlink(*page))  # noqa: B023 - awaited here
        return removed

    async def _unlink_matching(self, pattern: str) -> int:
        # Redis knows more special signs than the contract: it gets the plain beginning only.
        match = _escape(self._prefix + literal_start(pattern)) + "*"
        cursor, removed = 0, 0
        while True:
            cursor, names = await self._scan(cursor, match)
            texts = [name.decode() if isinstance(name, bytes) else name for name in names]
            start = len(self._prefix)
            removed += await self._unlink(
                [name for name in texts if fnmatchcase(name[start:], pattern)]
            )
            if not cursor:
                return removed

    async def _scan(self, cursor: int, match: str) -> tuple[int, list[Any]]:
        return await self._redis.ask(
            lambda redis: redis.scan(cursor, match=match, count=PAGE), again=True
        )


def milliseconds(seconds: float | None) -> int | None:
    """As Redis wants it: whole, and never 0."""
    return None if seconds is None else max(1, round(seconds * 1000))


async def _unless_cancelled(question: Awaitable[T]) -> T:
    """The answer; a cancellation that the client loses while it looks at a connection is kept."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    answer = await question
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


async def _to_its_end(question: Awaitable[T]) -> T:
    async def ask() -> T:
        return await question

    answer: T = await to_its_end(ask())
    return answer


async def _result(work: Callable[[], Awaitable[T]]) -> Result[T, CacheError]:
    try:
        return Ok(await work())
    except CacheError as error:
        return Err(error)


async def _set_page(redis: Any, page: list[tuple[str, bytes]], ttl: float | None) -> None:
    async with redis.pipeline(transaction=True) as pipe:
        for name, data in page:
            pipe.set(name, data, px=milliseconds(ttl))
        await pipe.execute()


def _pages(items: list[T]) -> Iterable[list[T]]:
    return (items[at : at + PAGE] for at in range(0, len(items), PAGE))


def _escape(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "*?[]^\\" else sign for sign in text)


RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# The lease and the value change together: a loader that was paused cannot overwrite newer things.
FILL = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if tonumber(ARGV[3]) > 0 then
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
else
    redis.call('SET', KEYS[2], ARGV[2])
end
redis.call('DEL', KEYS[1])
return 1
"""

ABANDON = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
