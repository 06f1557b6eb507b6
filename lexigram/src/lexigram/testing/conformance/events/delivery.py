"""Every handler gets the event, once, before publish returns."""

from __future__ import annotations

from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lexigram.contracts.core.result import Ok
from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    OrderCancelled,
    OrderPlaced,
    Recorder,
)


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
