"""What the drivers of cloud services share: their frame, names, errors, health."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar, cast

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import DeadLetterEntry, NotConnectedError, QueueError


class Closable(Protocol):
    """What is open between connect and close."""

    async def close(self) -> None:
        """Close it."""


SpaceT = TypeVar("SpaceT", bound=Closable)
PlaceT = TypeVar("PlaceT")  # the names of a group on the service


class CloudDriver(ABC, Generic[SpaceT, PlaceT]):
    """What the drivers of clouds do alike: they open clients, close them, and clear dead letters."""

    name: str

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._space: SpaceT | None = None

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its lease ends."""
        space, self._space = self._space, None
        if space is not None:
            await space.close()

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Look through all of them, oldest first, each id once."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("list dead letters", topic):
            entries = await self._read_dead(space, place)
        return entries[offset : offset + limit]

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send them to their group again, then remove the dead ones."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("redrive", topic):
            return await self._clear_dead(space, place, ids, again=True)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Remove the dead ones."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("purge dead letters", topic):
            return await self._clear_dead(space, place, ids, again=False)

    def _now(self) -> SpaceT:
        if self._space is None:
            raise NotConnectedError(
                f"{type(self).__name__} not connected",
                backend=self.name,
                hint="await driver.connect() first",
            )
        return self._space

    def _translate_errors(self, what: str, topic: str = "unknown") -> AbstractContextManager[None]:
        """The one place where errors of the client and the service become ours."""
        return translate_errors(self._is_foreign, lambda error: self._error(error, what, topic))

    @abstractmethod
    def _place(self, topic: str, group: str) -> PlaceT: ...

    @abstractmethod
    def _is_foreign(self, error: Exception) -> bool:
        """Whether the library of the client raised it."""

    @abstractmethod
    def _error(self, error: Exception, what: str, topic: str) -> QueueError: ...

    @abstractmethod
    async def _read_dead(self, space: SpaceT, place: PlaceT) -> Sequence[DeadLetterEntry]: ...

    @abstractmethod
    async def _clear_dead(
        self, space: SpaceT, place: PlaceT, ids: Sequence[str] | None, *, again: bool
    ) -> int:
        """Remove the wanted ones, all without ``ids``; ``again``: send each id once before."""


def hash_text(text: str) -> str:
    """64 hexadecimal digits for any text: services take short names of few characters."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_object(text: str | None) -> dict[str, Any]:
    """Text as a JSON object; empty where it is not one."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


async def unless(refused: type[Exception], asked: Awaitable[Any]) -> bool:
    """Ask; False when the service answers so, such as that a thing is there, or is not."""
    try:
        await asked
    except refused:
        return False
    return True


@contextmanager
def translate_errors(
    is_foreign: Callable[[Exception], bool], ours: Callable[[Exception], QueueError]
) -> Generator[None]:
    """Errors of a client become ours; what neither network nor client raised is let through.

    ``is_foreign``: whether the client's library raised it, whose classes are loaded late.
    """
    try:
        yield
    except QueueError:
        raise
    except Exception as error:  # the boundary to the client
        if isinstance(error, TimeoutError | OSError | ValueError) or is_foreign(error):
            raise ours(error) from error
        raise


async def health_of(
    ask: Callable[[], Awaitable[Any]], service: str, facts: Mapping[str, str], timeout: float
) -> HealthCheckResult:
    """HEALTHY when the service answers in time; ``ask`` raises QueueError otherwise."""
    begun, text = clock.monotonic(), None
    try:
        async with asyncio.timeout(timeout):
            await ask()
    except QueueError as error:
        text = error.message
    except TimeoutError:
        text = f"no answer in {timeout} s"
    return HealthCheckResult(
        component="queue",
        status=HealthStatus.HEALTHY if text is None else HealthStatus.UNHEALTHY,
        message=f"{service} queue OK" if text is None else None,
        error=text,
        details=dict(facts),
        duration_ms=(clock.monotonic() - begun) * 1000,
    )
