"""What a payload is to a handler that declares no type: equal to what was published, or refused."""

from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from math import isnan
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.outbox.outbox import TransactionalOutbox
from lexigram.queue.runtime.payloads import Payloads
from lexigram.serialization import SerializationError, register
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)


class Pair(NamedTuple):
    left: int
    right: int


class Level(IntEnum):
    LOW = 1


class Status(StrEnum):
    OPEN = "open"


class Color(Enum):
    RED = "red"


@attrs.frozen
class Line:
    price: Decimal
    tags: frozenset[str] = frozenset()
    by_number: dict[int, datetime] = attrs.field(factory=dict)
    anything: Any = None


register(Line, "tests.payloads.Line")


def through(serializer, payload, kind=Any):
    """The payload as a handler that declares ``kind`` gets it."""
    payloads = Payloads(serializer)
    wire = payloads.encode(BusMessage(payload=payload), "t")
    return payloads.decode(wire, kind).payload


def attempt(serializer, payload, kind=Any):
    """The same, or why it was refused."""
    try:
        return through(serializer, payload, kind), None
    except SerializationError as error:
        return None, error


TEXT = st.text(max_size=5)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
MOMENTS = st.datetimes() | st.dates() | st.timedeltas() | st.times()
OTHER = (
    MOMENTS
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.binary(max_size=5)
    | st.sampled_from([Level.LOW, Status.OPEN, Color.RED, bytearray(b"x"), Pair(1, 2)])
    | st.builds(Line, st.decimals(allow_nan=False), anything=PLAIN | MOMENTS)
)
HASHABLE = PLAIN | MOMENTS | st.uuids() | st.tuples(st.integers())


def containers(inner):
    return (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.dictionaries(TEXT, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    )


VALUES = st.recursive(PLAIN | OTHER, containers, max_leaves=8)


def same(one, other):
    """Equal; NaN is one value here, and so is a dict of any order."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and not isinstance(one, Pair):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Line):
        return same(attrs.astuple(one, recurse=False), attrs.astuple(other, recurse=False))
    if isinstance(one, set | frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, float) and isnan(one):
        return isnan(other)
    return one == other


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_every_accepted_payload_comes_back_equal(serializer, data):
    payload = data.draw(st.dictionaries(TEXT, VALUES) | st.lists(VALUES) | PLAIN)
    found, problem = attempt(serializer, payload)
    if problem is None:
        assert same(found, payload), found
        assert found.__class__ is payload.__class__
    else:
        assert problem.details["path"].startswith("$")
        assert problem.hint


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter("$type".__ne__)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-9e9, 9e9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=20,
)


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@settings(max_examples=100, deadline=None, database=None)
@given(JSON)
def test_plain_data_are_never_refused(serializer, payload):
    assert through(serializer, payload) == payload


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_an_accepted_payload_of_another_class_comes_back_equal_where_that_is_declared(
    serializer, data
):
    payload = data.draw(VALUES.filter(lambda value: value.__class__ not in (dict, list)))
    kind = Any if isinstance(payload, OrderedDict | bytearray) else payload.__class__
    found, problem = attempt(serializer, payload, kind)
    assert problem is not None or same(found, payload), found


REFUSED = [
    ({1: 2}, "$.1", "the key 1 would come back as text"),
    ({"a": {MOMENT: 1}}, "$.a", "would come back as text"),
    ({"a": {1, 2}}, "$.a", "a set would come back as a list"),
    ([frozenset()], "$[0]", "a frozenset would come back as a list"),
    ({"a": (1, 2)}, "$.a", "a tuple would come back as a list"),
    ([Pair(1, 2)], "$[0]", "a tuple would come back as a list"),
    ({"at": MOMENT}, "$.at", "a datetime would come back as text"),
    ({"a": [date(2026, 1, 1)]}, "$.a[0]", "a date would come back as text"),
    ([{"a": time(1, 2)}], "$[0].a", "a time would come back as text"),
    ([timedelta(1)], "$[0]", "a timedelta would come back as text"),
    ({"total": Decimal("1.5")}, "$.total", "a Decimal would come back as text"),
    ([UUID(int=1)], "$[0]", "a UUID would come back as text"),
    ({"color": Color.RED}, "$.color", "a Color would come back as text"),
    (((MOMENT,),), "$[0]", "a tuple would come back as a list"),
    (Line(Decimal(1), anything={2: 3}), "$.anything", "the key 2 would come back as text"),
]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize(("payload", "path", "text"), REFUSED, ids=repr)
def test_what_would_come_back_as_something_else_is_refused_with_its_path(
    serializer, payload, path, text
):
    with pytest.raises(SerializationError, match=text) as caught:
        through(serializer, payload)
    assert caught.value.details["path"].startswith(path)
    assert "declare" in caught.value.hint


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"level": Level.LOW, "status": Status.OPEN}, Any),
        ({"line": Line(Decimal("1.5"), frozenset("a"), {1: MOMENT})}, Any),
        (Line(Decimal("1.5"), frozenset("a"), {1: MOMENT}), Line),
        ((1, "a"), tuple),
        ({1, 2}, set[int]),
        (MOMENT, datetime),
        (Decimal("1.50"), Decimal),
        (Color.RED, Color),
    ],
    ids=repr,
)
def test_what_says_itself_what_it_is_or_is_declared_comes_back_equal(serializer, payload, kind):
    assert through(serializer, payload, kind) == payload


@pytest.mark.parametrize(
    ("payload", "untyped"),
    [((1, "a"), [1, "a"]), ({1}, [1]), (MOMENT, "2026-03-01T00:00:00Z"), (Decimal("1.50"), "1.50")],
    ids=repr,
)
def test_a_payload_of_a_class_nobody_declares_comes_as_the_form_the_docs_name(payload, untyped):
    assert through("json", payload) == untyped


def test_bytes_in_a_payload_come_back_on_msgpack_and_are_refused_on_json():
    assert through("msgpack", {"a": b"x"}) == {"a": b"x"}
    with pytest.raises(SerializationError, match="a bytes would come back as text"):
        through("json", {"a": b"x"})


async def test_every_way_into_the_bus_refuses_it_and_nothing_is_sent(queue):
    bad = BusMessage(payload={"totals": [Decimal(1)]})
    outbox = TransactionalOutbox(queue)

    async def answer(message):
        with pytest.raises(SerializationError, match=r"\$\.totals\[0\]"):
            await queue.reply(message, bad.payload)
        await queue.reply(message, "refused")

    await queue.subscribe("answers", answer)
    assert (await queue.request("answers", BusMessage(payload=1))).payload == "refused"
    for publish in (
        lambda: queue.publish("t", bad),
        lambda: queue.publish_many("t", [BusMessage(payload=1), bad]),
        lambda: outbox.stage("t", bad),
        lambda: queue.request("t", bad),
    ):
        with pytest.raises(SerializationError, match=r"\$\.totals\[0\]"):
            await publish()
    assert "t" not in queue.driver.broker.topics


async def test_objects_that_are_handed_on_in_memory_are_checked_as_on_any_broker(open_queue):
    seen = []

    async def note(message):
        seen.append(message.payload)

    queue = await open_queue(driver=MemoryDriver())
    await queue.subscribe("t", note)
    with pytest.raises(SerializationError, match="a tuple would come back as a list"):
        await queue.publish("t", BusMessage(payload=[(1, 2)]))
    await queue.publish("t", BusMessage(payload=(1, "a")))
    await wait_until(lambda: seen == [(1, "a")])
