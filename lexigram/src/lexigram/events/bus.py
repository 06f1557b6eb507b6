"""Deliver events to the handlers of this process."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lexigram.concurrency import CallAbortedError, call
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.events.errors import EventError
from lexigram.contracts.events.protocols import EventHandlerProtocol

if TYPE_CHECKING:
    from lexigram.contracts.domain.events import DomainEvent

_log = logging.getLogger(__name__)

Handler: TypeAlias = EventHandlerProtocol[Any] | Callable[[Any], Any]


class EventBus:
    """An in-process bus: ``publish`` returns when every handler has had the event.

    Handlers run one after the other in the publisher's task, in the order they subscribed,
    whatever class they subscribed to, so events one task publishes arrive in that order. A
    handler gets an event once even when it subscribed to the class and to a base of it. One that
    raises or returns an ``Err`` does not stop the others; all failures are in the answer. That
    holds for ``SystemExit``, a cancellation of the handler's own making and a handler that takes
    longer than the ``timeout`` it subscribed with; a cancellation of the publisher passes.
    """

    def __init__(self) -> None:
        # In the order of delivery.
        self._subscriptions: list[_Subscription] = []
        # Handlers by concrete class, found on first use; dropped at every change.
        self._subscribed: dict[type[DomainEvent], tuple[_Subscription, ...]] = {}

    @property
    def is_idle(self) -> bool:
        """True while nobody subscribed to anything: then no event needs even its class."""
        return not self._subscriptions

    async def publish(self, event: DomainEvent) -> Result[None, EventError]:
        """Deliver and wait for all handlers; ``Err`` holds what every failing handler raised."""
        failures: list[tuple[Handler, Exception]] = []
        for _, handler, timeout in self._subscriptions_of(type(event)):
            try:
                await _deliver(handler, event, timeout)
            except Exception as error:  # noqa: BLE001 - the boundary to code of others
                if isinstance(error, CallAbortedError):
                    name = _name_of(handler)
                    _log.exception("event %s: handler %s was aborted", event.event_type, name)
                failures.append((handler, error))
        return Err(_event_error(event, failures)) if failures else Ok(None)

    def subscribe(
        self, event_type: type[DomainEvent], handler: Handler, *, timeout: float | None = None
    ) -> None:
        """Deliver events of this class and its subclasses; a second time changes nothing."""
        if self._find(event_type, handler) is None:
            self._subscriptions.append(_Subscription(event_type, handler, timeout))
            self._subscribed.clear()

    def unsubscribe(self, event_type: type[DomainEvent], handler: Handler) -> bool:
        """Stop delivering; False when the pair was not subscribed."""
        found = self._find(event_type, handler)
        if found is None:
            return False
        del self._subscriptions[found]
        self._subscribed.clear()
        return True

    def has_subscribers(self, event_type: type[DomainEvent]) -> bool:
        """True when an event of this class has a subscriber; ask before building one."""
        return bool(self._subscriptions_of(event_type))

    def _find(self, event_type: type[DomainEvent], handler: Handler) -> int | None:
        for index, (kind, known, _) in enumerate(self._subscriptions):
            if kind is event_type and _same(known, handler):
                return index
        return None

    def _subscriptions_of(self, event_type: type[DomainEvent]) -> tuple[_Subscription, ...]:
        found = self._subscribed.get(event_type)
        if found is None:
            chosen: list[_Subscription] = []
            for one in self._subscriptions:
                is_new = not any(_same(known.handler, one.handler) for known in chosen)
                if is_new and issubclass(event_type, one.event_type):
                    chosen.append(one)
            found = self._subscribed[event_type] = tuple(chosen)
        return found


class _Subscription(NamedTuple):
    event_type: type[DomainEvent]
    handler: Handler
    timeout: float | None


def _same(one: Handler, other: Handler) -> bool:
    # A bound method is a new object at every access. Other handlers are themselves only: they
    # may be attrs objects that compare equal or cannot be hashed.
    return one is other or (inspect.ismethod(one) and one == other)


async def _deliver(handler: Handler, event: DomainEvent, timeout: float | None) -> None:
    function: Any = getattr(handler, "handle", handler)
    answer = await call(function, event, timeout=timeout, name=f"handler {_name_of(handler)}")
    if isinstance(answer, Err):
        error = answer.error
        raise error if isinstance(error, Exception) else EventError(f"answered {answer!r}")


def _event_error(event: DomainEvent, failures: list[tuple[Handler, Exception]]) -> EventError:
    count = len(failures)
    title = f"{count} handler{'' if count == 1 else 's'} of {event.event_type} failed"
    lines = [f"{_name_of(handler)}: {error!r}" for handler, error in failures]
    errors = [error for _, error in failures]
    return EventError(
        "\n    ".join([title, *lines]),
        details={
            "event_type": event.event_type,
            "event_id": str(event.event_id),
            "handlers": [_name_of(handler) for handler, _ in failures],
        },
        cause=errors[0] if count == 1 else ExceptionGroup(title, errors),
    )


def _name_of(handler: Handler) -> str:
    return getattr(handler, "__qualname__", type(handler).__qualname__)
