"""The conformance suite of EventBusProtocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol, EventError
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["EventBusCapability", "EventBusConformance"]


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


class DeliverySpec(EventBusSpec, capability=EventBusCapability.DELIVERY):
    """publish, when nothing goes wrong."""

    async def test_functions_and_objects_of_every_form_get_the_event(
        self, subject: EventBusProtocol
    ) -> None:
        as_object, as_method, as_plain_method = Recorder(), Recorder(), Recorder()
        in_builtin: list[Any] = []
        subject.subscribe(OrderPlaced, as_object)
        subject.subscribe(OrderPlaced, as_method.on_event)
        subject.subscribe(OrderPlaced, as_plain_method.on_event_plainly)
        subject.subscribe(OrderPlaced, in_builtin.append)
        event = OrderPlaced()
        assert await subject.publish(event) == Ok(None)
        seen = [as_object.seen, as_method.seen, as_plain_method.seen, in_builtin]
        assert seen == [[event]] * 4

    async def test_publish_waits_for_slow_handlers(self, subject: EventBusProtocol) -> None:
        finished: list[str] = []

        async def slow(_: OrderPlaced) -> None:
            for _turn in range(10):
                await checkpoint()
            finished.append("slow")

        subject.subscribe(OrderPlaced, slow)
        await subject.publish(OrderPlaced())
        assert finished == ["slow"]

    async def test_events_of_other_classes_do_not_arrive(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        assert await subject.publish(OrderCancelled()) == Ok(None)
        assert recorder.seen == []

    async def test_an_event_nobody_wants_is_ok(self, subject: EventBusProtocol) -> None:
        assert await subject.publish(OrderPlaced()) == Ok(None)

    async def test_publishing_again_delivers_again(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()
        subject.subscribe(OrderPlaced, recorder)
        event = OrderPlaced()
        await subject.publish(event)
        await subject.publish(event)
        assert recorder.seen == [event, event]

    async def test_what_a_handler_returns_besides_err_is_no_failure(
        self, subject: EventBusProtocol
    ) -> None:
        subject.subscribe(OrderPlaced, lambda _: Ok("fine"))
        subject.subscribe(OrderPlaced, lambda _: False)
        assert await subject.publish(OrderPlaced()) == Ok(None)

    async def test_a_handler_may_publish(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()

        async def cancel(_: OrderPlaced) -> None:
            await subject.publish(OrderCancelled())

        subject.subscribe(OrderPlaced, cancel)
        subject.subscribe(OrderCancelled, recorder)
        with anyio.fail_after(30):  # a bus that locks itself would wait for ever
            await subject.publish(OrderPlaced())
        assert [type(event) for event in recorder.seen] == [OrderCancelled]

    async def test_events_published_at_once_all_arrive(self, subject: EventBusProtocol) -> None:
        recorder = Recorder()

        async def slow(event: OrderPlaced) -> None:
            await checkpoint()
            recorder.seen.append(event.number)

        subject.subscribe(OrderPlaced, slow)
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(subject.publish, OrderPlaced(number=number))
        assert sorted(recorder.seen) == list(range(50))


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


class BoomError(Exception):
    """What the handlers of these tests raise."""


def raise_plainly(_: Any) -> None:
    """Fail without async."""
    raise BoomError("plain")


async def raise_async(_: Any) -> None:
    """Fail inside a coroutine."""
    raise BoomError("async")


def answer_err(_: Any) -> Err[BoomError]:
    """Fail by value."""
    return Err(BoomError("err"))


class FailuresSpec(EventBusSpec, capability=EventBusCapability.FAILURES):
    """publish, when handlers fail."""

    async def test_every_way_to_fail_is_one_err_with_the_error_as_cause(
        self, subject: EventBusProtocol
    ) -> None:
        for handler in (raise_plainly, raise_async, answer_err):
            subject.subscribe(OrderPlaced, handler)
            error = (await subject.publish(OrderPlaced())).unwrap_err()
            assert isinstance(error, EventError)
            assert isinstance(error.cause, BoomError)
            subject.unsubscribe(OrderPlaced, handler)

    async def test_an_err_without_an_exception_is_a_failure_too(
        self, subject: EventBusProtocol
    ) -> None:
        subject.subscribe(OrderPlaced, lambda _: Err("no stock"))
        assert isinstance((await subject.publish(OrderPlaced())).unwrap_err(), EventError)

    async def test_the_other_handlers_get_the_event(self, subject: EventBusProtocol) -> None:
        before, after = Recorder(), Recorder()
        subject.subscribe(OrderPlaced, before)
        subject.subscribe(OrderPlaced, raise_async)
        subject.subscribe(OrderPlaced, answer_err)
        subject.subscribe(OrderPlaced, after)
        assert (await subject.publish(OrderPlaced())).is_err()
        assert (len(before.seen), len(after.seen)) == (1, 1)

    async def test_several_failures_are_one_error_with_a_group_as_cause(
        self, subject: EventBusProtocol
    ) -> None:
        for handler in (raise_plainly, raise_async, answer_err):
            subject.subscribe(OrderPlaced, handler)
        cause = (await subject.publish(OrderPlaced())).unwrap_err().cause
        assert isinstance(cause, BaseExceptionGroup)
        assert sorted(str(error) for error in cause.exceptions) == ["async", "err", "plain"]

    async def test_a_handler_that_failed_gets_the_next_event(
        self, subject: EventBusProtocol
    ) -> None:
        seen: list[int] = []

        def fail_first(event: OrderPlaced) -> None:
            seen.append(event.number)
            if event.number == 1:
                raise BoomError("first")

        subject.subscribe(OrderPlaced, fail_first)
        assert (await subject.publish(OrderPlaced(number=1))).is_err()
        assert await subject.publish(OrderPlaced(number=2)) == Ok(None)
        assert seen == [1, 2]


class CancellationSpec(EventBusSpec, capability=EventBusCapability.CANCELLATION):
    """Cancelling publish."""

    async def test_cancellation_passes_through_the_handler_to_the_publisher(
        self, subject: EventBusProtocol
    ) -> None:
        cancelled: list[bool] = []
        recorder = Recorder()

        async def wait_for_ever(_: OrderPlaced) -> None:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled.append(True)
                raise

        subject.subscribe(OrderPlaced, wait_for_ever)
        subject.subscribe(OrderCancelled, recorder)
        with anyio.CancelScope() as scope:
            await subject.publish(OrderPlaced())
        assert scope.cancelled_caught
        assert cancelled == [True]
        # The bus is as good as new.
        assert await subject.publish(OrderCancelled()) == Ok(None)
        assert len(recorder.seen) == 1


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


class EventBusConformance(
    DeliverySpec,
    InheritanceSpec,
    SubscriptionsSpec,
    FailuresSpec,
    CancellationSpec,
    IdlenessSpec,
):
    """Run it on an event bus: ``conformance_suite(EventBusConformance, MyBus)``."""
