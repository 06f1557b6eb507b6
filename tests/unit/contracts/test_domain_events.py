import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.domain.events import DomainEvent


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderPlaced(DomainEvent):
    order_id: str
    total: int = 0
    due: datetime | None = None


def test_an_event_is_named_after_its_class_unless_told_otherwise():
    assert OrderPlaced(order_id="1").event_type == "OrderPlaced"
    assert OrderPlaced(order_id="1", event_type="order.placed").event_type == "order.placed"


def test_every_event_has_its_own_id_and_an_aware_time():
    first, second = OrderPlaced(order_id="1"), OrderPlaced(order_id="1")
    assert first.event_id != second.event_id
    assert first.occurred_at.tzinfo is UTC
    assert first != second


def test_an_event_is_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        OrderPlaced("1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        OrderPlaced(order_id="1").total = 2


def test_attaching_an_aggregate_keeps_the_event():
    event = OrderPlaced(order_id="1")
    attached = event.for_aggregate("1", "order")
    assert (attached.aggregate_id, attached.aggregate_type) == ("1", "order")
    assert (attached.event_id, attached.order_id) == (event.event_id, "1")


@given(
    order_id=st.text(),
    total=st.integers(),
    sequence_number=st.none() | st.integers(),
    due=st.none() | st.datetimes(),
    occurred_at=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])),
)
def test_to_dict_and_back_gives_an_equal_event(**fields):
    event = OrderPlaced(**fields)
    assert OrderPlaced.from_dict(event.to_dict()) == event


def test_the_fields_of_the_base_are_json():
    event = DomainEvent(actor_id="me")
    assert DomainEvent.from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_an_unknown_key_is_refused():
    with pytest.raises(TypeError, match="colour"):
        DomainEvent.from_dict({"colour": "red"})
