"""A cache in the memory of this process: bounded, with a time to live, least recently used out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from math import inf
from sys import getsizeof
from typing import Any

from lexigram import clock
from lexigram.cache.values import (
    Copies,
    Packed,
    ValueCodec,
    problem,
    problem_of_key,
    problem_of_ttl,
    size_of,
)
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheError, CacheWriteError

MAX_ENTRIES = 10_000

_MISSING: Ok[Any] = Ok(None)
_DONE: Ok[None] = Ok(None)


class MemoryCache:
    """Never more than ``max_entries`` values and ``max_bytes`` of keys and values, at any moment.

    A write that finds no room takes out what has expired, then what was used longest ago; read
    and written count as used, ``exists`` does not. Bytes are counted as Python keeps keys and
    values, without the dictionary around them. ``on_evict`` gets the number of evicted
    values. Nothing is shared with other processes, and nothing outlives this one.
    """

    def __init__(
        self,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int | None = None,
        values: ValueCodec | None = None,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self.values: ValueCodec = Copies() if values is None else values
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._on_evict = on_evict
        # In the order of use: the first was used longest ago.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        # (expires, key) of entries with a ttl. An entry replaced or removed leaves its pair
        # behind, until it comes up or _tidied finds more of them than entries.
        self._expiries: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """How many values are kept, expired ones that nobody met included."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of keys and values; 0 without a limit of bytes, as nobody counts then."""
        return self._bytes

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value, the caller's own; Ok(None) when it is missing or expired."""
        entry = self._entries.get(key)
        if entry is None:
            wrong = problem_of_key(key)
            return _MISSING if wrong is None else Err(wrong)
        if entry.expires <= clock.monotonic():
            self._drop(key)
            return _MISSING
        self._entries.move_to_end(key)
        kept = entry.kept
        if kept.__class__ is not Packed:
            return Ok(kept)
        try:
            return Ok(self.values.read(key, kept))
        except CacheError as error:
            return Err(error)

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Keep the value, and make room for it first."""
        if (wrong := problem_of_key(key) or problem_of_ttl(ttl)) is not None:
            return Err(wrong)
        try:
            entry = self._entry(key, value, inf if ttl is None else clock.monotonic() + ttl)
        except CacheError as error:
            return Err(error)
        self._put(key, entry)
        return _DONE

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; whether it was there."""
        return (await self.delete_many((key,))).map_sync(bool)

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys; how many were there."""
        asked = list(keys)
        if (wrong := problem(asked)) is not None:
            return Err(wrong)
        return Ok(sum(self._remove(key) for key in asked))

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match the glob; looks at every key."""
        found = [key for key in self._entries if fnmatchcase(key, pattern)]
        return Ok(sum(self._remove(key) for key in found))

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """Whether the key holds a value, None included."""
        if (wrong := problem_of_key(key)) is not None:
            return Err(wrong)
        entry = self._entries.get(key)
        return Ok(entry is not None and entry.expires > clock.monotonic())

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything."""
        self._entries.clear()
        self._expiries.clear()
        self._bytes = 0
        return Ok(None)

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there, by key."""
        found: dict[str, Any] = {}
        now = clock.monotonic()
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                if (wrong := problem_of_key(key)) is not None:
                    return Err(wrong)
            elif entry.expires <= now:
                self._drop(key)
            else:
                self._entries.move_to_end(key)
                try:
                    found[key] = self.values.read(key, entry.kept)
                except CacheError as error:
                    return Err(error)
        return Ok(found)

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Keep all values, or none when one is refused."""
        if (wrong := problem(items, ttl)) is not None:
            return Err(wrong)
        expires = inf if ttl is None else clock.monotonic() + ttl
        made: dict[str, _Entry] = {}
        for key, value in items.items():
            try:
                made[key] = self._entry(key, value, expires)
            except CacheError as error:
                return Err(error)
        for key, entry in made.items():
            self._put(key, entry)
        return Ok(None)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY, with how full it is."""
        details: dict[str, Any] = {"entries": len(self), "max_entries": self._max_entries}
        if self._max_bytes is not None:
            details |= {"bytes": self._bytes, "max_bytes": self._max_bytes}
        return HealthCheckResult("cache", message="the memory of this process", details=details)

    def _entry(self, key: str, value: Any, expires: float) -> _Entry:
        kept = self.values.write(key, value)
        size = 0
        if self._max_bytes is not None:
            size = getsizeof(key) + size_of(kept)
            if size > self._max_bytes:
                raise CacheWriteError(
                    key,
                    f"{size} bytes are more than the {self._max_bytes} of the whole cache",
                    hint="raise max_bytes, or store something smaller",
                )
        return _Entry(kept, expires, size)

    def _put(self, key: str, entry: _Entry) -> None:
        self._drop(key)
        self._make_room(entry.size)
        self._entries[key] = entry
        self._bytes += entry.size
        if entry.expires is not inf:
            heappush(self._expiries, (entry.expires, key))
            self._tidy()

    def _make_room(self, size: int) -> None:
        if not self._is_full(size):
            return
        now = clock.monotonic()
        while self._expiries and self._expiries[0][0] <= now:
            expires, key = heappop(self._expiries)
            entry = self._entries.get(key)
            if entry is not None and entry.expires == expires:
                self._drop(key)
        evicted = 0
        while self._is_full(size):
            _, entry = self._entries.popitem(last=False)
            self._bytes -= entry.size
            evicted += 1
        if evicted and self._on_evict is not None:
            self._on_evict(evicted)

    def _is_full(self, size: int) -> bool:
        if len(self._entries) >= self._max_entries:
            return True
        return self._max_bytes is not None and self._bytes + size > self._max_bytes

    def _tidy(self) -> None:
        """Forget pairs of entries that are gone: the heap stays within twice the entries."""
        if len(self._expiries) > 2 * len(self._entries) + 64:
            self._expiries = [
                (entry.expires, key)
                for key, entry in self._entries.items()
                if entry.expires is not inf
            ]
            heapify(self._expiries)

    def _remove(self, key: str) -> bool:
        entry = self._drop(key)
        return entry is not None and entry.expires > clock.monotonic()

    def _drop(self, key: str) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
        return entry


class _Entry:
    __slots__ = ("expires", "kept", "size")

    def __init__(self, kept: Any, expires: float, size: int) -> None:
        self.kept = kept
        self.expires = expires  # on the monotonic clock; inf without a ttl
        self.size = size
