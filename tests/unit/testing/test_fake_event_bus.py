from dataclasses import dataclass

import pytest

from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol
from lexigram.testing import assert_err
from lexigram.testing.fakes import FakeEventBus

# What the contract promises is checked by tests/conformance/test_events.py; here is the rest.


@dataclass(frozen=True, kw_only=True)
class Placed(DomainEvent):
    order: int = 1


@dataclass(frozen=True, kw_only=True)
class PlacedExpress(Placed):
    pass


@dataclass(frozen=True, kw_only=True)
class Paid(DomainEvent):
    order: int = 1


def test_a_fake_event_bus_satisfies_the_contract():
    assert isinstance(FakeEventBus(), EventBusProtocol)


async def test_published_events_are_remembered_and_delivered(fake_event_bus):
    seen = []
    fake_event_bus.subscribe(Placed, seen.append)
    events = [Placed(order=1), Paid(), PlacedExpress(order=2)]
    for event in events:
        await fake_event_bus.publish(event)
    assert fake_event_bus.published == events
    assert seen == [events[0], events[2]]
    assert fake_event_bus.published_of_type(Placed) == [events[0], events[2]]


async def test_an_event_whose_handler_fails_was_published(fake_event_bus):
    fake_event_bus.subscribe(Placed, lambda event: 1 / 0)
    assert isinstance(assert_err(await fake_event_bus.publish(Placed())).cause, ZeroDivisionError)
    fake_event_bus.assert_published_once(Placed)


def test_code_that_asks_for_listeners_first_is_heard(fake_event_bus):
    assert fake_event_bus.has_subscribers(Placed)
    assert not fake_event_bus.is_idle


async def test_assertions_pass_on_what_was_published(fake_event_bus):
    first, second = Placed(order=1), Placed(order=2)
    await fake_event_bus.publish(first)
    await fake_event_bus.publish(second)
    assert fake_event_bus.assert_published(Placed) == [first, second]
    assert fake_event_bus.assert_published(Placed, 2) == [first, second]
    assert fake_event_bus.assert_published(Placed, order=2) == [second]
    assert fake_event_bus.assert_published_once(Placed, order=1) is first
    fake_event_bus.assert_not_published(Paid)
    fake_event_bus.assert_not_published(Placed, order=3)
    fake_event_bus.assert_not_published(Placed, colour=None)  # no such attribute


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda bus: bus.assert_published(Paid), "expected at least one Paid, found 0"),
        (lambda bus: bus.assert_published(Placed, 2), "expected 2 Placed, found 1"),
        (
            lambda bus: bus.assert_published(Placed, order=9),
            "expected at least one Placed(order=9), found 0",
        ),
        (lambda bus: bus.assert_published_once(Paid, order=1), "expected 1 Paid(order=1), found 0"),
        (lambda bus: bus.assert_not_published(Placed), "expected 0 Placed, found 1"),
    ],
)
async def test_a_failed_assertion_lists_what_was_published(fake_event_bus, check, text):
    await fake_event_bus.publish(Placed(order=7))
    with pytest.raises(AssertionError) as caught:
        check(fake_event_bus)
    assert str(caught.value).startswith(f"{text}; published were:\n  Placed(")
    assert "order=7" in str(caught.value)
    fake_event_bus.clear()
    with pytest.raises(AssertionError, match="nothing was published"):
        fake_event_bus.assert_published(Placed)


async def test_order_allows_other_events_in_between(fake_event_bus):
    for event in (Placed(), Paid(), Placed(), PlacedExpress()):
        await fake_event_bus.publish(event)
    fake_event_bus.assert_events_in_order(Placed, Paid, PlacedExpress)
    fake_event_bus.assert_events_in_order(Placed, Placed, Placed)
    fake_event_bus.assert_events_in_order()
    with pytest.raises(AssertionError) as caught:
        fake_event_bus.assert_events_in_order(Placed, Paid, Paid)
    assert str(caught.value).startswith(
        "expected Placed → Paid → Paid, but there is no Paid for place 3; published were:"
    )


async def test_clear_forgets_events_and_keeps_handlers(fake_event_bus):
    seen = []
    fake_event_bus.subscribe(Placed, seen.append)
    await fake_event_bus.publish(Placed())
    fake_event_bus.clear()
    await fake_event_bus.publish(Placed())
    assert (len(fake_event_bus.published), len(seen)) == (1, 2)
