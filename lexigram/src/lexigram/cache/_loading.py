"""Load a missing value once: one loader per key in this process, and per lease among several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any, TypeVar

import anyio
from attrs import frozen

from lexigram.cache._leases import LoadLeases
from lexigram.cache.values import ValueCodec
from lexigram.concurrency import call
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import (
    CacheBackendProtocol,
    CacheError,
    CacheReadError,
    CacheWriteError,
)
from lexigram.leasing import RENEWALS_PER_LEASE, Backoff, lease_token
from lexigram.observability import get_logger

T = TypeVar("T")
Loader = Callable[[], Awaitable[Any]]

_POLL = Backoff(first=0.005, cap=0.25)  # how often a process looks that waits for another

logger = get_logger(__name__)


@frozen(kw_only=True)
class Wanted:
    """What one caller of ``get_or_set`` asks for."""

    key: str
    loader: Loader
    ttl: float | None
    cache_none: bool
    timeout: float | None

    async def load(self) -> Any:
        return await call(self.loader, timeout=self.timeout, name=f"the loader of {self.key!r}")


class Loading:
    """The loads that run now, by key; ``look`` reads a key for a caller and counts it.

    The first caller loads in its own task, so its context and its cancellation are the loader's.
    The others wait: for its value, its error, or, when it was cancelled, for their turn.
    """

    def __init__(
        self,
        backend: CacheBackendProtocol,
        values: ValueCodec,
        *,
        name: str,
        lease: float,
        look: Callable[[tuple[str]], Awaitable[Result[dict[str, Any], CacheError]]],
        on_loaded: Callable[[float], None] | None,
    ) -> None:
        self._backend = backend
        self._values = values
        self._name = name
        self._lease = lease
        self._look = look
        self._on_loaded = on_loaded
        self._leases = backend if isinstance(backend, LoadLeases) else None
        self._flights: dict[str, _Flight] = {}
        self._is_lost = False

    async def value(self, wanted: Wanted) -> Result[Any, CacheError]:
        """The stored value, or the one that is loaded by this caller or by another."""
        alone = self._leases is not None and self._leases.in_transaction
        while True:
            found = self._read(wanted.key, await self._look((wanted.key,)))
            if found is not None:
                return found
            if alone:
                # Waiting for others would hold up the transaction, and they cannot see into it.
                return await self._load(wanted, _Flight())
            flight = self._flights.get(wanted.key)
            if flight is None:
                return await self._lead(wanted)
            if flight.task is asyncio.current_task():
                return Err(_asks_itself(wanted.key))
            await flight.done.wait()
            if flight.outcome is not None:
                return flight.outcome(self._values, wanted.key)

    def overtake(self, keys: Iterable[str]) -> None:
        """These keys were written or removed: what is loaded for them now is out of date."""
        if self._flights:
            for key in keys:
                flight = self._flights.pop(key, None)
                if flight is not None:
                    flight.is_overtaken = True

    def overtake_matching(self, pattern: str) -> None:
        """The same for all keys of a glob."""
        self.overtake([key for key in self._flights if fnmatchcase(key, pattern)])

    async def _lead(self, wanted: Wanted) -> Result[Any, CacheError]:
        flight = self._flights[wanted.key] = _Flight()
        try:
            if self._leases is None:
                # Another load may have ended while this caller was looking.
                found = self._read(wanted.key, await self._backend.get_many((wanted.key,)))
                result = await self._load(wanted, flight) if found is None else found
            else:
                result = await self._load_under_lease(wanted, flight, self._leases)
            result = flight.return_result(result, self._values, wanted.key)
        except Exception as error:
            flight.fail(error)
            raise
        finally:
            if self._flights.get(wanted.key) is flight:
                del self._flights[wanted.key]
            flight.done.set()
        return result

    async def _load(self, wanted: Wanted, flight: _Flight) -> Result[Any, CacheError]:
        value = await self._measure(wanted)
        if flight.is_overtaken or (value is None and not wanted.cache_none):
            return Ok(value)
        stored = await self._backend.set(wanted.key, value, wanted.ttl)
        return self._unless_refused(value, stored)

    async def _load_under_lease(
        self, wanted: Wanted, flight: _Flight, leases: LoadLeases
    ) -> Result[Any, CacheError]:
        token, attempt, is_mine = lease_token(), 0, True
        try:
            while True:
                claimed = await leases.claim(wanted.key, token, self._lease)
                if isinstance(claimed, Err):
                    self._note_failure(claimed.error)
                    is_mine = False
                    return Ok(await self._measure(wanted))
                # After the claim: what others loaded before it is there by now.
                found = self._read(wanted.key, await self._backend.get_many((wanted.key,)))
                if found is not None:
                    return found
                if claimed.value:
                    break
                attempt += 1
                await anyio.sleep(_POLL.delay(attempt))
            value = await self._renewing(wanted, token, leases)
            if flight.is_overtaken or (value is None and not wanted.cache_none):
                return Ok(value)
            stored = await leases.fill(wanted.key, token, value, wanted.ttl)
            is_mine = not (isinstance(stored, Ok) and stored.value)
            return self._unless_refused(value, stored)
        finally:
            if is_mine:
                # A claim that was cancelled may have been granted after all.
                with anyio.move_on_after(self._lease, shield=True):
                    await self._give_back(wanted.key, token, leases)

    async def _renewing(self, wanted: Wanted, token: str, leases: LoadLeases) -> Any:
        """Run the loader; its lease is kept. A lease that is lost costs only the storing."""
        value, failure = None, None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew, wanted.key, token, leases)
            try:
                value = await self._measure(wanted)
            except Exception as error:  # noqa: BLE001 - raised below, not as part of a group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return value

    async def _renew(self, key: str, token: str, leases: LoadLeases) -> None:
        while True:
            await anyio.sleep(self._lease / RENEWALS_PER_LEASE)
            renewed = await leases.renew(key, token, self._lease)
            if isinstance(renewed, Err):
                self._note_failure(renewed.error)
            elif not renewed.value:
                logger.warning("load lease lost; the value is not stored", cache=self._name)
                return

    async def _give_back(self, key: str, token: str, leases: LoadLeases) -> None:
        left = await leases.abandon(key, token)
        if isinstance(left, Err):
            self._note_failure(left.error)

    async def _measure(self, wanted: Wanted) -> Any:
        if self._on_loaded is None:
            return await wanted.load()
        started = perf_counter()
        value = await wanted.load()
        self._on_loaded(perf_counter() - started)
        return value

    def _read(self, key: str, found: Result[dict[str, Any], CacheError]) -> Ok[Any] | None:
        """The stored value; None when it must be loaded, also because it cannot be read."""
        self._note_failure(None if isinstance(found, Ok) else found.error)
        if isinstance(found, Ok) and key in found.value:
            return Ok(found.value[key])
        return None

    def _unless_refused(
        self, value: Any, stored: Result[Any, CacheError]
    ) -> Result[Any, CacheError]:
        if isinstance(stored, Err):
            if isinstance(stored.error, CacheWriteError):
                return stored
            self._note_failure(stored.error)
        return Ok(value)

    def _note_failure(self, error: CacheError | None) -> None:
        """Log the begin and the end of an outage, and each value that cannot be read."""
        if isinstance(error, CacheReadError):
            logger.warning("cached value ignored", cache=self._name, error=error.message)
        elif error is not None and not self._is_lost:
            self._is_lost = True
            logger.warning("loading without the cache", cache=self._name, error=error.message)
        elif error is None and self._is_lost:
            self._is_lost = False
            logger.warning("the cache answers again", cache=self._name)


def _asks_itself(key: str) -> CacheError:
    return CacheError(
        f"the loader of {key!r} asks for {key!r} and would wait for itself",
        hint="let it read what it needs from its source",
    )


class _Flight:
    """A load that runs; without an outcome at its end it was cancelled."""

    __slots__ = ("done", "is_overtaken", "outcome", "task")

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.done = anyio.Event()
        self.is_overtaken = False
        self.outcome: Callable[[ValueCodec, str], Result[Any, CacheError]] | None = None

    def return_result(
        self, result: Result[Any, CacheError], values: ValueCodec, key: str
    ) -> Result[Any, CacheError]:
        """Keep it for those who wait; Err when it is of a kind that cannot be copied for them."""
        kept: Any = None
        if isinstance(result, Ok):
            try:
                # Written now: the leader may change its value as soon as it has it.
                kept = values.write(key, result.value)
            except CacheError as error:
                result = Err(error)
        if isinstance(result, Err):
            self.outcome = lambda _values, _key: result
        else:
            self.outcome = lambda values, key: Ok(values.read(key, kept))
        return result

    def fail(self, error: Exception) -> None:
        def outcome(_values: ValueCodec, _key: str) -> Result[Any, CacheError]:
            raise error

        self.outcome = outcome
