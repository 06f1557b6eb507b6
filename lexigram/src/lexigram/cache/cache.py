"""The cache that an application uses: a backend with metrics, and ``get_or_set``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from lexigram.cache._loading import Loading, Wanted
from lexigram.cache.values import Copies, ValueCodec, problem
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError
from lexigram.contracts.observability.metrics import MetricsProtocol

T = TypeVar("T")

LOAD_LEASE = 10.0  # seconds others wait for a process that died while it loaded


class Cache:
    """``CacheProtocol`` on any backend; without metrics nothing is counted.

    ``get_or_set`` runs one loader per key and process, and one per key where the backend has
    leases. A ``set``, ``delete`` or ``clear`` through this object while a key is loaded wins:
    the loaded value then goes to those who waited for it and is not stored.
    """

    def __init__(
        self,
        backend: CacheBackendProtocol,
        *,
        name: str = "default",
        values: ValueCodec | None = None,
        metrics: MetricsProtocol | None = None,
        load_lease: float = LOAD_LEASE,
    ) -> None:
        """``values`` makes the copies for those who share a loaded value: the backend's own."""
        self.backend = backend
        self.name = name
        self._metrics = metrics
        self._tags = {"cache": name}
        own: ValueCodec | None = getattr(backend, "values", None)
        self._loading = Loading(
            backend,
            values or own or Copies(),
            name=name,
            lease=load_lease,
            look=self.get_many,
            on_loaded=None if metrics is None else self._count_load,
        )

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value; Ok(None) when it is missing or expired."""
        if self._metrics is None:
            return await self.backend.get(key)
        # Only get_many distinguishes a stored None from a miss.
        return (await self.get_many((key,))).map_sync(lambda found: found.get(key))

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store the value."""
        self._loading.overtake((key,))
        return await self.backend.set(key, value, ttl)

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; whether it was there."""
        self._loading.overtake((key,))
        return await self.backend.delete(key)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys; how many were there."""
        asked = list(keys)
        self._loading.overtake(asked)
        return await self.backend.delete_many(asked)

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match the glob; how many they were."""
        self._loading.overtake_matching(pattern)
        return await self.backend.delete_pattern(pattern)

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """Whether the key holds a value, None included."""
        return await self.backend.exists(key)

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything this cache wrote."""
        self._loading.overtake_matching("*")
        return await self.backend.clear()

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there, by key."""
        if self._metrics is None:
            return await self.backend.get_many(keys)
        asked = list(keys)
        found = await self.backend.get_many(asked)
        if isinstance(found, Ok):
            self._count_reads(len(found.value), len(set(asked)) - len(found.value))
        else:
            self._metrics.increment("cache.errors", 1.0, self._tags)
        return found

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store all values."""
        self._loading.overtake(items)
        return await self.backend.set_many(items, ttl)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """What the backend says of itself."""
        return await self.backend.health_check(timeout)

    async def get_or_set(
        self,
        key: str,
        loader: Callable[[], Awaitable[T]],
        ttl: float | None = None,
        *,
        cache_none: bool = True,
        timeout: float | None = None,
    ) -> Result[T, CacheError]:
        """The value; a missing one is loaded and stored, by one of all concurrent callers."""
        if (wrong := problem((key,), ttl)) is not None:
            return Err(wrong)
        wanted = Wanted(key=key, loader=loader, ttl=ttl, cache_none=cache_none, timeout=timeout)
        return await self._loading.value(wanted)

    def _count_reads(self, hits: int, misses: int) -> None:
        assert self._metrics is not None
        if hits:
            self._metrics.increment("cache.hits", hits, self._tags)
        if misses:
            self._metrics.increment("cache.misses", misses, self._tags)

    def _count_load(self, seconds: float) -> None:
        assert self._metrics is not None
        self._metrics.histogram("cache.load_seconds", seconds, self._tags)
