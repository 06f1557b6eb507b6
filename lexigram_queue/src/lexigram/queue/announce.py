"""Tells hooks, events and metrics what happened, and builds nothing when nobody listens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lexigram.concurrency import as_failure
from lexigram.contracts.core.result import Err
from lexigram.queue.events import (
    ConsumerRegisteredEvent,
    MessageConsumedEvent,
    MessageDeadLetteredEvent,
)
from lexigram.queue.hooks import MessageConsumedHook, MessagePublishedHook, QueueDrainedHook

if TYPE_CHECKING:
    from lexigram.contracts.core.hooks import HookRegistryProtocol
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.contracts.queue import BusMessage, DeadLetterReason

PUBLISHED, CONSUMED, DRAINED = "message.published", "message.consumed", "queue.drained"

_log = logging.getLogger(__name__)


class Announcer:
    """Speaks in the name of one queue. A listener that fails never fails the work."""

    def __init__(self, queue_name: str) -> None:
        self.queue_name = queue_name
        self.hooks: HookRegistryProtocol | None = None
        self.events: EventBusProtocol | None = None
        self.metrics: MetricsProtocol | None = None

    def nobody_listens(self) -> bool:
        """True when no hook, event or metric could be interested: asked for every message."""
        hooks, events = self.hooks, self.events
        if self.metrics is not None:
            return False
        return (hooks is None or getattr(hooks, "is_idle", False)) and (
            events is None or getattr(events, "is_idle", False)
        )

    async def published(self, message: BusMessage) -> None:
        """A message was confirmed."""
        self.count("published")
        await self._hook(PUBLISHED, MessagePublishedHook, lambda: _hook_facts(self, message))

    async def consumed(self, message: BusMessage, consumer_id: str) -> None:
        """A handler returned."""
        self.count("consumed")
        await self._hook(CONSUMED, MessageConsumedHook, lambda: _hook_facts(self, message))
        await self._event(
            MessageConsumedEvent,
            lambda: {
                "message_id": message.id,
                "queue_name": self.queue_name,
                "consumer_id": consumer_id,
            },
        )

    async def dead_lettered(self, message: BusMessage, reason: DeadLetterReason) -> None:
        """A message was set aside."""
        self.count("dead_lettered", reason=reason.value)
        await self._event(
            MessageDeadLetteredEvent,
            lambda: {
                "message_id": message.id,
                "queue_name": self.queue_name,
                "reason": reason.value,
            },
        )

    async def registered(self, consumer_id: str) -> None:
        """A consumer began to receive."""
        await self._event(
            ConsumerRegisteredEvent,
            lambda: {"consumer_id": consumer_id, "queue_name": self.queue_name},
        )

    async def drained(self) -> None:
        """Everything in flight was finished or handed back."""
        await self._hook(DRAINED, QueueDrainedHook, lambda: {"queue_name": self.queue_name})

    def count(self, what: str, **tags: str) -> None:
        """Add one to counter ``queue.<what>``."""
        if self.metrics is not None:
            try:
                self.metrics.increment(f"queue.{what}", 1.0, {"queue": self.queue_name, **tags})
            except BaseException as error:  # noqa: BLE001 - code of others
                _log_failure(f"metric queue.{what}", error)

    async def _hook(self, name: str, kind: type[Any], facts: Callable[[], dict[str, Any]]) -> None:
        hooks = self.hooks
        if hooks is None:
            return
        by_class = getattr(hooks, "wants", None)
        if not (hooks.has_action(name) or (by_class is not None and by_class(kind))):
            return
        payload = kind(**facts())
        try:
            await hooks.call_action(name, payload=payload)
            if by_class is not None:
                await hooks.emit(payload)  # type: ignore[attr-defined]  # ours, not of the protocol
        except BaseException as error:  # noqa: BLE001 - code of others
            _log_failure(f"hook {name}", error)

    async def _event(self, kind: type[DomainEvent], facts: Callable[[], dict[str, Any]]) -> None:
        if self.events is None or not self.events.has_subscribers(kind):
            return
        try:
            published = await self.events.publish(kind(**facts()))
        except BaseException as error:  # noqa: BLE001 - code of others
            _log_failure(f"event {kind.__name__}", error)
            return
        if isinstance(published, Err):
            _log.warning("%s", published.error)


def _log_failure(listener: str, error: BaseException) -> None:
    """Log what a listener raised; a cancellation of the caller is raised again."""
    failure = as_failure(error)
    if failure is None:
        raise error
    _log.error("%s failed", listener, exc_info=failure)


def _hook_facts(announcer: Announcer, message: BusMessage) -> dict[str, Any]:
    return {
        "queue_name": announcer.queue_name,
        "message_type": type(message.payload).__name__,
    }
