"""Without subscribers there is nobody to build an event for."""

from __future__ import annotations

from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    ExpressOrderPlaced,
    OrderCancelled,
    OrderPlaced,
    Recorder,
)


class IdlenessSpec(EventBusSpec, capability=EventBusCapability.IDLENESS):
    """has_subscribers, when the answer is no."""

    async def test_nobody_is_there_before_the_first_and_after_the_last(
        self, subject: EventBusProtocol
    ) -> None:
        recorder = Recorder()
        assert subject.has_subscribers(OrderPlaced) is False
        subject.subscribe(OrderPlaced, recorder)
        subject.unsubscribe(OrderPlaced, recorder)
        assert subject.has_subscribers(OrderPlaced) is False

    async def test_a_subscriber_of_another_class_or_a_subclass_does_not_count(
        self, subject: EventBusProtocol
    ) -> None:
        subject.subscribe(OrderCancelled, Recorder())
        subject.subscribe(ExpressOrderPlaced, Recorder())
        assert subject.has_subscribers(OrderPlaced) is False
