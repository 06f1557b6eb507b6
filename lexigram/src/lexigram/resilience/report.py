"""Tells metrics and the event bus what one protection did."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lexigram.contracts.core.result import Err

if TYPE_CHECKING:
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol

_log = logging.getLogger(__name__)


class Reporter:
    """Reports in the name of one protection; without metrics and bus it does nothing."""

    __slots__ = ("_events", "_metrics", "_prefix", "_tags", "name")

    def __init__(
        self,
        kind: str,
        name: str,
        metrics: MetricsProtocol | None,
        events: EventBusProtocol | None,
    ) -> None:
        self.name = name
        self._prefix = f"resilience.{kind}."
        self._tags = {"name": name}
        self._metrics = metrics
        self._events = events

    def count(self, what: str, **tags: str) -> None:
        """Add one to counter ``resilience.<kind>.<what>``."""
        if self._metrics is not None:
            self._metrics.increment(self._prefix + what, 1.0, {**self._tags, **tags})

    def gauge(self, what: str, value: float) -> None:
        """Set gauge ``resilience.<kind>.<what>``."""
        if self._metrics is not None:
            self._metrics.gauge(self._prefix + what, value, self._tags)

    def observe(self, what: str, value: float) -> None:
        """Add one observation to histogram ``resilience.<kind>.<what>``."""
        if self._metrics is not None:
            self._metrics.histogram(self._prefix + what, value, self._tags)

    async def tell(self, kind: type[DomainEvent], build: Callable[[], DomainEvent]) -> None:
        """Publish the event that ``build`` makes, if an event of this class reaches somebody."""
        if self._events is None or not self._events.has_subscribers(kind):
            return
        told = await self._events.publish(build())
        if isinstance(told, Err):
            # The protected call must not fail because somebody who watches it did.
            _log.warning("%s", told.error)
