"""Every handler gets every event it asked for, once, whatever the others do."""

from dataclasses import dataclass

import anyio
import pytest
from attrs import define
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL

from lexigram.concurrency import CallAbortedError, CallTimeoutError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol, EventError
from lexigram.events import (
    ApplicationStarted,
    ApplicationStarting,
    ApplicationStopped,
    ApplicationStopping,
    EventBus,
    HealthCheckCompleted,
    ProviderBooted,
    ProviderRegistered,
)


@dataclass(frozen=True, kw_only=True)
class OrderPlaced(DomainEvent):
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class GiftOrderPlaced(OrderPlaced):
    pass


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


def test_the_bus_keeps_the_contract(bus):
    contract: EventBusProtocol = bus
    assert isinstance(contract, EventBusProtocol)


async def test_handlers_may_be_functions_or_objects_sync_or_async(bus):
    got: list[str] = []

    async def function(event):
        got.append("async function")

    class Object:
        async def handle(self, event):
            got.append("object")
            return Ok(None)

    bus.subscribe(OrderPlaced, function)
    bus.subscribe(OrderPlaced, lambda event: got.append("function"))
    bus.subscribe(OrderPlaced, Object())
    assert await bus.publish(OrderPlaced()) == Ok(None)
    assert got == ["async function", "function", "object"]


async def test_a_handler_of_a_base_class_gets_all_below_in_order_of_subscription(bus):
    got: list[str] = []
    bus.subscribe(DomainEvent, lambda event: got.append(f"all {event.event_type}"))
    bus.subscribe(GiftOrderPlaced, lambda event: got.append("gift"))
    bus.subscribe(OrderPlaced, lambda event: got.append("order"))
    await bus.publish(GiftOrderPlaced())
    await bus.publish(OrderPlaced())
    await bus.publish(ApplicationStarting(app_name="x"))
    assert got == [
        *("all GiftOrderPlaced", "gift", "order"),
        *("all OrderPlaced", "order"),
        "all ApplicationStarting",
    ]


async def test_events_of_one_publisher_arrive_in_order(bus):
    got: list[int] = []

    async def slow_for_the_first(event):
        if event.number == 0:
            await anyio.lowlevel.checkpoint()
        got.append(event.number)

    bus.subscribe(OrderPlaced, slow_for_the_first)
    for number in range(5):
        await bus.publish(OrderPlaced(number=number))
    assert got == [0, 1, 2, 3, 4]


async def test_a_handler_gets_an_event_once_however_often_it_subscribed(bus):
    class Shop:
        def __init__(self) -> None:
            self.got = 0

        def placed(self, event) -> None:
            self.got += 1

    shop = Shop()
    bus.subscribe(OrderPlaced, shop.placed)
    bus.subscribe(OrderPlaced, shop.placed)
    bus.subscribe(DomainEvent, shop.placed)
    await bus.publish(OrderPlaced())
    assert shop.got == 1


async def test_handlers_that_compare_equal_are_still_two(bus):
    @define
    class Counter:
        got: int = 0

        def handle(self, event) -> None:
            self.got += 1

    one, two = Counter(), Counter()
    bus.subscribe(OrderPlaced, one)
    bus.subscribe(OrderPlaced, two)
    await bus.publish(OrderPlaced())
    assert (one.got, two.got) == (1, 1)
    assert bus.unsubscribe(OrderPlaced, one)
    await bus.publish(OrderPlaced())
    assert (one.got, two.got) == (1, 2)


async def test_all_failures_are_in_the_answer_and_no_handler_is_skipped(bus):
    got: list[int] = []

    def broken(event):
        raise KeyError("first")

    async def refusing(event):
        return Err(ValueError("second"))

    async def refusing_with_text(event):
        return Err("third")

    bus.subscribe(OrderPlaced, broken)
    bus.subscribe(OrderPlaced, refusing)
    bus.subscribe(OrderPlaced, refusing_with_text)
    bus.subscribe(OrderPlaced, lambda event: got.append(1))
    event = OrderPlaced()
    error = (await bus.publish(event)).unwrap_err()

    assert got == [1]
    assert isinstance(error, EventError)
    here = "test_all_failures_are_in_the_answer_and_no_handler_is_skipped.<locals>."
    assert str(error) == (
        "[LEX_ERR_EVT_001] 3 handlers of OrderPlaced failed\n"
        f"    {here}broken: KeyError('first')\n"
        f"    {here}refusing: ValueError('second')\n"
        f"    {here}refusing_with_text: EventError(\"answered Err('third')\")"
    )
    assert isinstance(error.cause, ExceptionGroup)
    assert [type(e) for e in error.cause.exceptions] == [KeyError, ValueError, EventError]
    assert error.details["event_id"] == str(event.event_id)


async def test_the_cause_of_one_failure_is_the_failure(bus):
    failure = RuntimeError("x")

    def broken(event):
        raise failure

    bus.subscribe(OrderPlaced, broken)
    assert (await bus.publish(OrderPlaced())).unwrap_err().cause is failure


async def test_cancellation_passes_through(bus):
    started = anyio.Event()

    async def hang(event):
        started.set()
        await anyio.sleep_forever()

    bus.subscribe(OrderPlaced, hang)
    async with anyio.create_task_group() as group:
        group.start_soon(bus.publish, OrderPlaced())
        await started.wait()
        group.cancel_scope.cancel()


async def test_unsubscribing_during_a_delivery_counts_from_the_next_event_on(bus):
    got: list[str] = []

    def second(event):
        got.append("second")

    def first(event):
        got.append("first")
        bus.unsubscribe(OrderPlaced, second)

    bus.subscribe(OrderPlaced, first)
    bus.subscribe(OrderPlaced, second)
    await bus.publish(OrderPlaced())
    await bus.publish(OrderPlaced())
    assert got == ["first", "second", "first"]


def test_whoever_publishes_can_ask_if_somebody_listens(bus):
    assert bus.is_idle
    assert not bus.has_subscribers(OrderPlaced)
    bus.subscribe(OrderPlaced, print)
    assert bus.has_subscribers(OrderPlaced)
    assert bus.has_subscribers(GiftOrderPlaced)
    assert not bus.has_subscribers(DomainEvent)
    assert not bus.is_idle
    assert bus.unsubscribe(OrderPlaced, print)
    assert not bus.unsubscribe(OrderPlaced, print)
    assert not bus.has_subscribers(OrderPlaced)
    assert bus.is_idle


def test_lifecycle_events_are_frozen_and_survive_a_round_trip():
    for event in (
        ApplicationStarting(app_name="a"),
        ApplicationStarted(app_name="a", duration_ms=1.0),
        ApplicationStopping(app_name="a"),
        ApplicationStopped(app_name="a", duration_ms=1.0),
        ProviderRegistered(provider="p"),
        ProviderBooted(provider="p", duration_ms=1.0),
        HealthCheckCompleted(status=HealthStatus.HEALTHY, duration_ms=1.0),
    ):
        assert type(event).from_dict(event.to_dict()) == event
        with pytest.raises(AttributeError):
            event.actor_id = "x"


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_handler_that_fails_in_any_way_fails_alone(fail, caplog):
    bus = EventBus()
    heard = []

    async def broken(event):
        await fail()

    bus.subscribe(OrderPlaced, broken, timeout=TIME_LIMIT)
    bus.subscribe(OrderPlaced, heard.append)
    result = await bus.publish(OrderPlaced())

    assert len(heard) == 1
    cause = result.unwrap_err().cause
    assert isinstance(cause, ValueError | CallAbortedError | CallTimeoutError)
    logged = [record.exc_info[0] for record in caplog.records]
    assert logged == ([CallAbortedError] if isinstance(cause, CallAbortedError) else [])
