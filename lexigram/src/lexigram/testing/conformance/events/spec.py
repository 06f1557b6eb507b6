"""What the specs of the event bus contract share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


class EventBusCapability(StrEnum):
    """What an event bus can do; all but the last are the core."""

    DELIVERY = "delivery"
    INHERITANCE = "inheritance"
    SUBSCRIPTIONS = "subscriptions"
    FAILURES = "failures"
    CANCELLATION = "cancellation"
    IDLENESS = "idleness"  # no listener of its own, such as an audit log


class EventBusSpec(ConformanceSuite):
    """The contract and its core."""

    contract = EventBusProtocol
    core = frozenset(EventBusCapability) - {EventBusCapability.IDLENESS}


@dataclass(frozen=True, kw_only=True)
class OrderPlaced(DomainEvent):
    """An event with a subclass."""

    number: int = 1


@dataclass(frozen=True, kw_only=True)
class ExpressOrderPlaced(OrderPlaced):
    """The subclass."""


@dataclass(frozen=True, kw_only=True)
class OrderCancelled(DomainEvent):
    """An event that has nothing to do with them."""


class Recorder:
    """A handler object, with two more handlers as methods, that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def handle(self, event: Any, /) -> None:
        """Keep the event."""
        self.seen.append(event)

    async def on_event(self, event: Any) -> None:
        """Keep the event."""
        self.seen.append(event)

    def on_event_plainly(self, event: Any) -> None:
        """Keep the event, without async."""
        self.seen.append(event)
