"""Contracts of the in-process event bus."""

from lexigram.contracts.events.errors import EventError
from lexigram.contracts.events.protocols import (
    EventBusProtocol,
    EventHandlerProtocol,
    NoOpEventBus,
)

__all__ = ["EventBusProtocol", "EventError", "EventHandlerProtocol", "NoOpEventBus"]
