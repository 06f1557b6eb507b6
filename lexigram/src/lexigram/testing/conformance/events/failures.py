"""A failing handler harms nobody else, and is told to the publisher."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.events import EventBusProtocol, EventError
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    OrderPlaced,
    Recorder,
)


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
