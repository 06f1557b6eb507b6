"""Who is subscribed when publish is called gets the event; nobody else does."""

from __future__ import annotations

from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    ExpressOrderPlaced,
    OrderPlaced,
    Recorder,
)


class SubscriptionsSpec(EventBusSpec, capability=EventBusCapability.SUBSCRIPTIONS):
    """subscribe, unsubscribe, has_subscribers."""

    async def test_the_same_pair_twice_is_one_call(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        subject.subscribe(OrderPlaced, recorder)
        # A bound method is a new object at every access, and still the same handler.
        subject.subscribe(OrderPlaced, recorder.on_event)
        subject.subscribe(OrderPlaced, recorder.on_event)
        await subject.publish(OrderPlaced())
        assert len(recorder.seen) == 2

    async def test_unsubscribe_ends_delivery_and_tells_whether_it_did(
        self, subject: EventBusProtocol
    ) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder.on_event)
        assert subject.unsubscribe(OrderPlaced, recorder.on_event) is True
        assert subject.unsubscribe(OrderPlaced, recorder.on_event) is False
        await subject.publish(OrderPlaced())
        assert recorder.seen == []

    async def test_unsubscribe_ends_only_the_pair_it_names(self, subject: EventBusProtocol) -> None:
        left, stays = Recorder(), Recorder()
        subject.subscribe(OrderPlaced, left)
        subject.subscribe(OrderPlaced, stays)
        assert subject.unsubscribe(ExpressOrderPlaced, left) is False
        assert subject.unsubscribe(OrderPlaced, left) is True
        await subject.publish(OrderPlaced())
        assert (len(left.seen), len(stays.seen)) == (0, 1)

    async def test_one_handler_of_two_classes_can_leave_one(
        self, subject: EventBusProtocol
    ) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        subject.subscribe(ExpressOrderPlaced, recorder)
        subject.unsubscribe(OrderPlaced, recorder)
        await subject.publish(OrderPlaced())
        await subject.publish(ExpressOrderPlaced())
        assert [type(event) for event in recorder.seen] == [ExpressOrderPlaced]

    async def test_a_handler_that_joins_during_delivery_waits_for_the_next_event(
        self, subject: EventBusProtocol
    ) -> None:
        late = Recorder()
        subject.subscribe(OrderPlaced, lambda _: subject.subscribe(OrderPlaced, late))
        await subject.publish(OrderPlaced(number=1))
        await subject.publish(OrderPlaced(number=2))
        assert [event.number for event in late.seen] == [2]

    async def test_a_handler_that_leaves_during_delivery_still_gets_this_event(
        self, subject: EventBusProtocol
    ) -> None:
        first, last = Recorder(), Recorder()

        def leave(_: OrderPlaced) -> None:
            subject.unsubscribe(OrderPlaced, first)
            subject.unsubscribe(OrderPlaced, last)

        subject.subscribe(OrderPlaced, first)
        subject.subscribe(OrderPlaced, leave)
        subject.subscribe(OrderPlaced, last)
        await subject.publish(OrderPlaced(number=1))
        await subject.publish(OrderPlaced(number=2))
        assert [event.number for event in first.seen] == [1]
        assert [event.number for event in last.seen] == [1]

    async def test_a_class_has_subscribers_when_its_events_would_arrive(
        self, subject: EventBusProtocol
    ) -> None:
        subject.subscribe(OrderPlaced, Recorder())
        assert subject.has_subscribers(OrderPlaced) is True
        assert subject.has_subscribers(ExpressOrderPlaced) is True
