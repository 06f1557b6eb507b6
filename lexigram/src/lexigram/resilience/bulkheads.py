"""Limits how many blocks run at once, and how many wait for their turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import anyio

from lexigram.contracts.infra.resilience.errors import BulkheadError
from lexigram.resilience.checks import require
from lexigram.resilience.events import CallRejected
from lexigram.resilience.report import Reporter

if TYPE_CHECKING:
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol

P = ParamSpec("P")
T = TypeVar("T")


class Bulkhead:
    """At most ``max_concurrent`` run and ``max_waiting`` wait, in the order they came."""

    def __init__(
        self,
        max_concurrent: int,
        *,
        max_waiting: int = 0,
        name: str = "",
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        require(max_concurrent >= 1, "max_concurrent", max_concurrent, "at least 1")
        require(max_waiting >= 0, "max_waiting", max_waiting, "0 or more")
        self.max_concurrent = max_concurrent
        self.max_waiting = max_waiting
        self._slots = anyio.Semaphore(max_concurrent, fast_acquire=True)
        self._report = Reporter("bulkhead", name, metrics, events)

    @property
    def running(self) -> int:
        """How many blocks are inside now."""
        return self.max_concurrent - self._slots.value

    @property
    def waiting(self) -> int:
        """How many wait to enter now."""
        return self._slots.statistics().tasks_waiting

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call inside the bulkhead."""
        async with self:
            return await func(*args, **kwargs)

    async def __aenter__(self) -> Self:
        if self._slots.value == 0 and self.waiting >= self.max_waiting:
            await self._refuse()
        await self._slots.acquire()
        self._report.gauge("running", self.running)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._slots.release()
        self._report.gauge("running", self.running)

    async def _refuse(self) -> None:
        name = self._report.name
        self._report.count("rejected")
        await self._report.publish(CallRejected, lambda: CallRejected(by="bulkhead", name=name))
        raise BulkheadError(
            f"bulkhead {name!r} is full: {self.max_concurrent} run and {self.max_waiting} wait",
            details={"name": name, "running": self.max_concurrent, "waiting": self.max_waiting},
            hint="try later, or raise max_concurrent or max_waiting",
        )
