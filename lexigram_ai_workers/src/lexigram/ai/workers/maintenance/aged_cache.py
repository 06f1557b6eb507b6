"""A cache whose entries have an age, on any CacheBackendProtocol, which cannot list its keys."""

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
    """A CacheBackendProtocol for keys of up to 480 characters; ``clean`` removes what is unused.

    A key is written with the number of the generation of its last use. A reader looks in the
    current one, then in the older ones that may still count, and carries what it finds there
    over. So the age of an entry is known from its key, and a whole generation is removed by
    its prefix. ``hits``, ``misses`` and ``stored`` count since the start of the process.
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
        # seconds; of what is carried over
        self._ttl = ttl
        self._generation = generation
        self._looked_at = max(1, -int(-max_age // generation))
        # The first generation this process knows to be written down as the oldest.
        self._noted: int | None = None
        self.hits = self.misses = self.stored = 0

    async def clean(self, max_age: float) -> Result[int, CacheError]:
        """Remove entries that nobody read or wrote for ``max_age`` seconds; how many."""
        last = int((clock.timestamp() - max_age) // self._generation) - 1
        oldest = await self._backend.get(_OLDEST)
        if isinstance(oldest, Err):
            return Err(oldest.error)
        begin = oldest.unwrap()
        removed = 0
        for number in range(begin if isinstance(begin, int) else last + 1, last + 1):
            gone = await self._backend.delete_pattern(f"{_prefix(number)}*")
            if isinstance(gone, Err):
                return gone
            removed += gone.unwrap()
            noted = await self._backend.set(_OLDEST, number + 1)
            if isinstance(noted, Err):
                return Err(noted.error)
        return Ok(removed)

    # --- CacheBackendProtocol -------------------------------------------------------------------

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value, or Ok(None)."""
        found = await self.get_many([key])
        return Err(found.error) if isinstance(found, Err) else Ok(found.unwrap().get(key))

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there; those of older generations become current."""
        wanted, now = list(dict.fromkeys(keys)), self._current()
        found = await self._read(wanted, [now])
        if isinstance(found, Err):
            return found
        values, old = found.unwrap(), dict[str, Any]()
        if left := [key for key in wanted if key not in values]:
            older = await self._read(left, range(now - self._looked_at, now))
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
        """Remove the key from all generations that are looked at."""
        return (await self.delete_many([key])).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys."""
        wanted, now = list(dict.fromkeys(keys)), self._current()
        generations = range(now - self._looked_at, now + 1)
        names = [_prefix(number) + key for number in generations for key in wanted]
        return await self._backend.delete_many(names)

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match a glob, in all generations that are looked at."""
        now, removed = self._current(), 0
        # One by one: a ``*`` for the number would also match a part of the key.
        for number in range(now - self._looked_at, now + 1):
            gone = await self._backend.delete_pattern(_prefix(number) + pattern)
            if isinstance(gone, Err):
                return gone
            removed += gone.unwrap()
        return Ok(removed)

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """True when the key holds a value other than None."""
        found = await self.get_many([key])
        return Err(found.error) if isinstance(found, Err) else Ok(key in found.unwrap())

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything this cache wrote, and nothing else of the backend."""
        return (await self._backend.delete_pattern(f"{_PREFIX}*")).map_sync(lambda _: None)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """As the backend says."""
        return await self._backend.health_check(timeout)

    # --- inside ---------------------------------------------------------------------------------

    def _current(self) -> int:
        return int(clock.timestamp() // self._generation)

    async def _read(
        self, keys: list[str], generations: Sequence[int]
    ) -> Result[dict[str, Any], CacheError]:
        """What is there, in one call; of several generations the last one counts."""
        names = {_prefix(number) + key: key for number in generations for key in keys}
        found = await self._backend.get_many(names)
        if isinstance(found, Err):
            return found
        values = found.unwrap()
        return Ok({key: values[name] for name, key in names.items() if name in values})

    async def _write(
        self, items: Mapping[str, Any], number: int, ttl: float | None
    ) -> Result[None, CacheError]:
        noted = await self._note(number)
        if isinstance(noted, Err):
            return noted
        prefix = _prefix(number)
        return await self._backend.set_many(
            {prefix + key: value for key, value in items.items()}, ttl
        )

    async def _note(self, number: int) -> Result[None, CacheError]:
        """Write down where ``clean`` begins, once per process: the first ever stays."""
        if self._noted is not None:
            return Ok(None)
        known = await self._backend.get(_OLDEST)
        if isinstance(known, Err):
            return Err(known.error)
        if known.unwrap() is None:
            written = await self._backend.set(_OLDEST, number)
            if isinstance(written, Err):
                return written
        self._noted = number
        return Ok(None)


def _prefix(number: int) -> str:
    return f"{_PREFIX}.{number}:"
