"""A key-value cache whose failures are values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.core.health import HealthCheckResult
    from lexigram.contracts.core.result import Result
    from lexigram.contracts.infra.cache.errors import CacheError

T = TypeVar("T")


@runtime_checkable
class CacheBackendProtocol(Protocol):
    """Stores values for a while.

    Guaranteed: a value read was written under that key, and never after its ``ttl`` (seconds;
    None keeps it as long as there is room). Not guaranteed: that a value is still there (a
    cache may evict), durability, atomicity over several keys, and that a mutable value comes
    back as the same object. No method raises for a failing backend: it returns
    ``Err(CacheError)``. A key is text of 1 to 512 characters without NUL; another one, and a
    ``ttl`` that is not above 0, is ``Err(CacheKeyError)``.
    """

    async def get(self, key: str) -> Result[Any, CacheError]:
        """The value; ``Ok(None)`` when it is missing or expired, which is not an error."""
        ...

    async def set(self, key: str, value: Any, ttl: float | None = None) -> Result[None, CacheError]:
        """Store the value; a second call replaces value and ttl.

        ``Err(CacheWriteError)`` when the value cannot be encoded; the old one then stays.
        """
        ...

    async def delete(self, key: str) -> Result[bool, CacheError]:
        """Remove the key; ``Ok(False)`` when it was not there."""
        ...

    async def delete_many(self, keys: Iterable[str]) -> Result[int, CacheError]:
        """Remove the keys; the number that were there."""
        ...

    async def delete_pattern(self, pattern: str) -> Result[int, CacheError]:
        """Remove the keys that match a glob (``*``, ``?``, ``[abc]``); how many they were.

        A key written while this runs may survive.
        """
        ...

    async def exists(self, key: str) -> Result[bool, CacheError]:
        """True when the key holds a value, None included; may already be stale."""
        ...

    async def clear(self) -> Result[None, CacheError]:
        """Remove everything this cache wrote, and nothing else that shares the backend."""
        ...

    async def get_many(self, keys: Iterable[str]) -> Result[dict[str, Any], CacheError]:
        """The values that are there, by key; missing keys are left out."""
        ...

    async def set_many(
        self, items: Mapping[str, Any], ttl: float | None = None
    ) -> Result[None, CacheError]:
        """Store all values. After an Err some of them may be stored."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether the backend really answers within ``timeout`` seconds; never raises."""
        ...


@runtime_checkable
class CacheProtocol(CacheBackendProtocol, Protocol):
    """A cache that also fills itself."""

    async def get_or_set(
        self,
        key: str,
        loader: Callable[[], Awaitable[T]],
        ttl: float | None = None,
        *,
        cache_none: bool = True,
        timeout: float | None = None,
    ) -> Result[T, CacheError]:
        """The value; a missing one is loaded and stored, by one of all concurrent callers.

        Guaranteed while nobody dies and the backend answers: one ``loader`` runs per missing
        key, in all processes that share the backend; every caller has a value of its own. What
        ``loader`` raises is raised to all who waited for it in this process and nothing is
        stored; callers in other processes run their own. When the caller that loads is
        cancelled, one that waits takes over with its loader. A backend that does not answer
        costs the sharing, never the value: the loader runs, and its value is ``Ok``.
        ``Err(CacheWriteError)``: the loaded value is of a kind the cache cannot store.
        None is a value and is stored too, unless ``cache_none`` is False. A loader that takes
        longer than ``timeout`` seconds is cancelled and fails with a TimeoutError.
        """
        ...
