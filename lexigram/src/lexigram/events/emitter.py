"""Report what a component does: to the event bus, to hooks and to metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lexigram.concurrency import as_failure, call
from lexigram.contracts.core.result import Err
from lexigram.contracts.observability.metrics import NoOpMetrics

if TYPE_CHECKING:
    from lexigram.contracts.core.hooks import HookRegistryProtocol
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol

Event = TypeVar("Event", bound="DomainEvent")
Payload = TypeVar("Payload")

_log = logging.getLogger(__name__)


class EventEmitter:
    """Reports for one component; a part of the application that is not bound is left out.

    Events and payloads are built only when there is a listener. A listener that fails is logged and
    never fails the work: only a cancellation of the caller passes. Names of metrics begin with
    ``prefix``; ``tags`` are on all of them.
    """

    def __init__(
        self,
        *,
        events: EventBusProtocol | None = None,
        hooks: HookRegistryProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        prefix: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.events = events
        self.hooks = hooks
        # Metrics that do nothing are not called for every item.
        self.metrics = None if isinstance(metrics, NoOpMetrics) else metrics
        self._prefix = prefix
        self._tags = dict(tags or {})

    @property
    def is_idle(self) -> bool:
        """True when nothing can reach anybody: one question for each item of a hot path."""
        return (
            self.metrics is None
            and (self.hooks is None or getattr(self.hooks, "is_idle", False))
            and (self.events is None or getattr(self.events, "is_idle", False))
        )

    def has_subscribers(self, kind: type[DomainEvent]) -> bool:
        """Whether an event of this class has a subscriber."""
        return self.events is not None and self.events.has_subscribers(kind)

    async def publish(self, kind: type[Event], build: Callable[[], Event]) -> None:
        """Publish the event that ``build`` makes, if an event of this class has a subscriber."""
        events = self.events
        if events is None or not events.has_subscribers(kind):
            return
        event = build()
        try:
            result = await call(events.publish, event)
        except Exception:  # noqa: BLE001 - the boundary to code of others
            _log.exception("event %s could not be published", kind.__name__)
            return
        if isinstance(result, Err):
            _log.warning("%s", result.error)

    async def emit(
        self, kind: type[Payload], build: Callable[[], Payload], *, name: str | None = None
    ) -> None:
        """Run the hooks of this class of payloads, and those called ``name``, if there are any."""
        hooks: Any = self.hooks
        if hooks is None:
            return
        # A registry of the contract has names only.
        is_wanted = hasattr(hooks, "wants") and hooks.wants(kind)
        is_named = name is not None and hooks.has_action(name)
        if not (is_wanted or is_named):
            return
        payload = build()
        if is_named:
            await self._run_hook(name, partial(hooks.call_action, name, payload=payload))
        if is_wanted:
            await self._run_hook(kind.__name__, partial(hooks.emit, payload))

    def count(self, what: str, value: float = 1.0, **tags: str) -> None:
        """Add to the counter ``what``."""
        if self.metrics is not None:
            self._record(self.metrics.increment, what, value, tags)

    def gauge(self, what: str, value: float, **tags: str) -> None:
        """Set the gauge ``what``."""
        if self.metrics is not None:
            self._record(self.metrics.gauge, what, value, tags)

    def observe(self, what: str, value: float, **tags: str) -> None:
        """Add one observation to the histogram ``what``."""
        if self.metrics is not None:
            self._record(self.metrics.histogram, what, value, tags)

    async def _run_hook(self, name: str | None, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await call(run)
        except Exception:  # noqa: BLE001 - the boundary to code of others
            _log.exception("hook %s failed", name)

    def _record(
        self,
        record: Callable[[str, float, Mapping[str, str]], None],
        what: str,
        value: float,
        tags: dict[str, str],
    ) -> None:
        try:
            record(self._prefix + what, value, {**self._tags, **tags} if self._tags else tags)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            _log.error("metric %s%s failed", self._prefix, what, exc_info=failure)
