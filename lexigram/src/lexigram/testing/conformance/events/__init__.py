"""The conformance suite of EventBusProtocol."""

from lexigram.testing.conformance.events.spec import EventBusCapability
from lexigram.testing.conformance.events.suite import EventBusConformance

__all__ = ["EventBusCapability", "EventBusConformance"]
