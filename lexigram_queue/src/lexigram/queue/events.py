"""Events of the bus, for the event bus of the process."""

from __future__ import annotations

from dataclasses import dataclass

from lexigram.contracts.domain.events import DomainEvent


@dataclass(frozen=True, kw_only=True)
class MessageConsumedEvent(DomainEvent):
    """A consumer handled a message."""

    message_id: str
    queue_name: str
    consumer_id: str


@dataclass(frozen=True, kw_only=True)
class MessageDeadLetteredEvent(DomainEvent):
    """A message became a dead letter; published once, after the last attempt."""

    message_id: str
    queue_name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ConsumerRegisteredEvent(DomainEvent):
    """A consumer began to receive."""

    consumer_id: str
    queue_name: str
