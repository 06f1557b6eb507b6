"""A cache in memory with every semantic of the contract, and an outage at will."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

from attrs import frozen

from lexigram.cache.values import problem
from lexigram.contracts.core.clock import ClockProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheError, CacheWriteError
from lexigram.testing.fakes.clock import FakeClock


class FakeCache:
    """Keeps copies of values until their ttl is over on ``clock``, and never evicts.

    A value that cannot be copied is refused, as a real backend refuses what it cannot encode.
    """

    def __init__(self, clock: ClockProtocol | None = None) -> None:
        self.clock: ClockProtocol = clock if clock is not None else FakeClock()
        self._entries: dict[str, _Entry] = {}
        self._failure: CacheError | None = None

    @contextmanager
    def outage(self, error: CacheError | None = None) -> Iterator[CacheError]:
        """While the block lasts every call gives Err; what is stored stays stored."""
        before, self._failure = self._failure, error or CacheError("the cache is down")
        try:
            yield self._failure
        finally:
            self._failure = before

    def keys(self) -> list[str]:
        """Keys that hold a value now, in the order they were first written."""
        now = self.clock.monotonic()
        self._entries = {key: item for key, item in self._entries.items() if item.lives_at(now)}
        return list(self._entries)

    async def get(self, key: str) -> Result[Any, CacheError]:
        """A copy of the value; Ok(None) when it is missing or expired."""
        return (await self.get_many([key])).map_sync(lambda found: found.get(key))

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store a copy of the value."""
        return await self.set_many({key: value}, ttl)

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; whether it was there."""
        return (await self.delete_many([key])).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys; how many were there."""
        asked = list(keys)
        if (wrong := self._failure or problem(asked)) is not None:
            return Err(wrong)
        found = set(self.keys()).intersection(asked)
        for key in found:
            del self._entries[key]
        return Ok(len(found))

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match the glob; how many they were."""
        return await self.delete_many(key for key in self.keys() if fnmatchcase(key, pattern))

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """Whether the key holds a value, None included."""
        wrong = self._failure or problem([key])
        return Ok(key in self.keys()) if wrong is None else Err(wrong)

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything."""
        if self._failure is not None:
            return Err(self._failure)
        self._entries.clear()
        return Ok(None)

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """Copies of the values that are there, by key."""
        asked = list(keys)
        wrong = self._failure or problem(asked)
        return Ok(self._read(asked)) if wrong is None else Err(wrong)

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store copies of all values, or of none when one cannot be copied."""
        if (wrong := self._failure or problem(items, ttl)) is not None:
            return Err(wrong)
        expires = None if ttl is None else self.clock.monotonic() + ttl
        entries: dict[str, _Entry] = {}
        for key, value in items.items():
            try:
                entries[key] = _Entry(value=deepcopy(value), expires=expires)
            except Exception as error:  # noqa: BLE001 - copying runs code of the value
                return Err(CacheWriteError(key, f"it cannot be copied: {error}", cause=error))
        self._entries.update(entries)
        return Ok(None)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY, or UNHEALTHY during an outage."""
        if self._failure is None:
            return HealthCheckResult("cache")
        return HealthCheckResult("cache", HealthStatus.UNHEALTHY, error=str(self._failure))

    def _read(self, keys: Iterable[str]) -> dict[str, Any]:
        live = set(self.keys())
        return {key: deepcopy(self._entries[key].value) for key in keys if key in live}


@frozen(kw_only=True)
class _Entry:
    value: Any
    expires: float | None  # on the monotonic clock

    def lives_at(self, now: float) -> bool:
        return self.expires is None or now < self.expires
