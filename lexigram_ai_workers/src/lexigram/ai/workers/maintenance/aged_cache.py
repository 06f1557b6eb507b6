"""A cache with age-based cleanup, on any CacheBackendProtocol (which cannot list its keys)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError

GENERATION_SECONDS = 5 * 24 * 3600.0
MAX_AGE_SECONDS = 30 * 24 * 3600.0
_PREFIX = "lexigram.aged"
_OLDEST = f"{_PREFIX}:oldest"


class AgedCache:
    """A CacheBackendProtocol for keys of up to 480 characters; ``clean`` removes unused entries.

    Keys are prefixed with the number of a generation, a time period. Reads check the current
    generation, then older ones, and copy entries found there to the current one. So unused
    entries stay in old generations, which are deleted by prefix. ``hits``, ``misses`` and
    ``stored`` count since the start of the process.
    """

    def __init__(
        self,
        backend: CacheBackendProtocol,
        *,
        max_age: float = MAX_AGE_SECONDS,
        generation: float = GENERATION_SECONDS,
        ttl: float | None = None,
    ) -> None:
        self._backend = backend
        # seconds; for entries copied to the current generation
        self._ttl = ttl
        self._generation = generation
        self._generations_read = max(1, -int(-max_age // generation))
        # A generation, once the oldest generation is recorded in the backend.
        self._recorded_generation: int | None = None
        self.hits = self.misses = self.stored = 0

    async def clean(self, max_age: float) -> Result[int, CacheError]:
        """Delete entries that were not used for ``max_age`` seconds; returns their number."""
        last = int((clock.timestamp() - max_age) // self._generation) - 1
        oldest = await self._backend.get(_OLDEST)
        if isinstance(oldest, Err):
            return Err(oldest.error)
        begin = oldest.unwrap()
        removed = 0
        for number in range(begin if isinstance(begin, int) else last + 1, last + 1):
            deleted = await self._backend.delete_pattern(f"{_prefix(number)}*")
            if isinstance(deleted, Err):
                return deleted
            removed += deleted.unwrap()
            recorded = await self._backend.set(_OLDEST, number + 1)
            if isinstance(recorded, Err):
                return Err(recorded.error)
        return Ok(removed)

    # --- CacheBackendProtocol -------------------------------------------------------------------

    async def get(self, key: str) -> Result[Any, CacheError]:
        """Return the value, or Ok(None)."""
        found = await self.get_many([key])
        return Err(found.error) if isinstance(found, Err) else Ok(found.unwrap().get(key))

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """Return the existing values; entries of older generations are copied to the current one."""
        wanted, now = list(dict.fromkeys(keys)), self._current()
        found = await self._read(wanted, [now])
        if isinstance(found, Err):
            return found
        values, old = found.unwrap(), dict[str, Any]()
        if missing := [key for key in wanted if key not in values]:
            older = await self._read(missing, range(now - self._generations_read, now))
            if isinstance(older, Err):
                return older
            old = older.unwrap()
        if old:
            carried = await self._write(old, now, self._ttl)
            if isinstance(carried, Err):
                return Err(carried.error)
        values |= old
        self.hits += len(values)
        self.misses += len(wanted) - len(values)
        return Ok(values)

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store a value."""
        return await self.set_many({key: value}, ttl)

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store all values in the current generation."""
        written = await self._write(items, self._current(), ttl)
        if isinstance(written, Ok):
            self.stored += len(items)
        return written

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Delete a key in all current generations."""
        return (await self.delete_many([key])).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Delete keys."""
        wanted, now = list(dict.fromkeys(keys)), self._current()
        generations = range(now - self._generations_read, now + 1)
        names = [_prefix(number) + key for number in generations for key in wanted]
        return await self._backend.delete_many(names)

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Delete the keys that match a glob, in all current generations."""
        now, removed = self._current(), 0
        # One by one: ``*`` for the number would also match parts of keys.
        for number in range(now - self._generations_read, now + 1):
            deleted = await self._backend.delete_pattern(_prefix(number) + pattern)
            if isinstance(deleted, Err):
                return deleted
            removed += deleted.unwrap()
        return Ok(removed)

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """True if the key has a value other than None."""
        found = await self.get_many([key])
        return Err(found.error) if isinstance(found, Err) else Ok(key in found.unwrap())

    async def clear(self) -> Result[None, CacheError]:
        """Delete all entries of this cache; other entries of the backend are kept."""
        return (await self._backend.delete_pattern(f"{_PREFIX}*")).map_sync(lambda _: None)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Return the health of the backend."""
        return await self._backend.health_check(timeout)

    # --- internals ---------------------------------------------------------------------------------

    def _current(self) -> int:
        return int(clock.timestamp() // self._generation)

    async def _read(
        self, keys: list[str], generations: Sequence[int]
    ) -> Result[dict[str, Any], CacheError]:
        """Read keys of several generations in one call; the latest generation takes precedence."""
        names = {_prefix(number) + key: key for number in generations for key in keys}
        found = await self._backend.get_many(names)
        if isinstance(found, Err):
            return found
        values = found.unwrap()
        return Ok({key: values[name] for name, key in names.items() if name in values})

    async def _write(
        self, items: Mapping[str, Any], number: int, ttl: float | None
    ) -> Result[None, CacheError]:
        recorded = await self._record_oldest(number)
        if isinstance(recorded, Err):
            return recorded
        prefix = _prefix(number)
        return await self._backend.set_many(
            {prefix + key: value for key, value in items.items()}, ttl
        )

    async def _record_oldest(self, number: int) -> Result[None, CacheError]:
        """Record the oldest generation in the backend, once per process, if there is none."""
        if self._recorded_generation is not None:
            return Ok(None)
        known = await self._backend.get(_OLDEST)
        if isinstance(known, Err):
            return Err(known.error)
        if known.unwrap() is None:
            written = await self._backend.set(_OLDEST, number)
            if isinstance(written, Err):
                return written
        self._recorded_generation = number
        return Ok(None)


def _prefix(number: int) -> str:
    return f"{_PREFIX}.{number}:"
