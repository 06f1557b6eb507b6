"""A handler of a class gets the events of its subclasses."""

from __future__ import annotations

from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    ExpressOrderPlaced,
    OrderCancelled,
    OrderPlaced,
    Recorder,
)


class InheritanceSpec(EventBusSpec, capability=EventBusCapability.INHERITANCE):
    """Base classes and subclasses of events."""

    async def test_a_handler_of_the_base_gets_the_subclass(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        event = ExpressOrderPlaced()
        await subject.publish(event)
        assert recorder.seen == [event]

    async def test_a_handler_of_the_subclass_does_not_get_the_base(
        self, subject: EventBusProtocol
    ) -> None:
        recorder = Recorder()
        subject.subscribe(ExpressOrderPlaced, recorder)
        await subject.publish(OrderPlaced())
        assert recorder.seen == []

    async def test_a_handler_of_the_root_gets_everything(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()
        subject.subscribe(DomainEvent, recorder)
        events = [OrderPlaced(), OrderCancelled(), ExpressOrderPlaced()]
        for event in events:
            await subject.publish(event)
        assert recorder.seen == events

    async def test_a_handler_of_class_and_base_gets_the_event_once(
        self, subject: EventBusProtocol
    ) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        subject.subscribe(ExpressOrderPlaced, recorder)
        event = ExpressOrderPlaced()
        await subject.publish(event)
        assert recorder.seen == [event]

    async def test_a_subclass_published_before_anyone_subscribed_is_found_later(
        self, subject: EventBusProtocol
    ) -> None:
        await subject.publish(ExpressOrderPlaced())
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        await subject.publish(ExpressOrderPlaced())
        assert len(recorder.seen) == 1
