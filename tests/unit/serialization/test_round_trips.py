"""Round trips over generated types, and msgspec against the converter: the same everywhere."""

import dataclasses
import enum
import itertools
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Literal, Optional
from uuid import UUID

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram.serialization import Codec

FAST = {name: Codec(name) for name in ("json", "msgpack")}
SLOW = {name: Codec(name, fast=False) for name in ("json", "msgpack")}
NUMBERS = itertools.count()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    NONE = None


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


EARLIEST = datetime(2, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
LATEST = datetime(9998, 1, 1)  # noqa: DTZ001 - same
OFFSETS = st.one_of(
    st.none(),
    st.just(UTC),
    st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = [
    (bool, st.booleans()),
    (int, st.integers(-(2**63), 2**64 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (
        datetime,
        st.datetimes(min_value=EARLIEST, max_value=LATEST, timezones=OFFSETS),
    ),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Odd, st.sampled_from(Odd)),
    (Rights, st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE])),
    (Literal["a", 2], st.sampled_from(["a", 2])),
]
SCALAR = st.sampled_from(SCALARS)
KEY = st.sampled_from(
    [
        pair
        for pair in SCALARS
        if pair[0] in (str, int, UUID, date, datetime, Colour, Level, Decimal)
    ]
)


def record(members):
    """An attrs class or a dataclass with these fields, and its instances."""
    names = [f"f{index}" for index in reversed(range(len(members)))]
    name = f"Record{next(NUMBERS)}"
    return st.sampled_from(["slots", "dict", "dataclass"]).map(
        lambda kind: (
            made := _class(kind, name, names, members),
            st.builds(made, **dict(zip(names, (values for _, values in members), strict=True))),
        )
    )


def _class(kind, name, names, members):
    fields = list(zip(names, (annotation for annotation, _ in members), strict=True))
    if kind == "dataclass":
        return dataclasses.make_dataclass(name, fields)
    made = {field: attrs.field(type=annotation) for field, annotation in fields}
    return attrs.make_class(name, made, slots=kind == "slots")


def union(members):
    """Two records of different classes: told apart by their names."""
    (one, ones), (two, twos) = members
    return (one | two, ones | twos)


def containers(inner):
    return st.one_of(
        inner.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        inner.map(lambda pair: (tuple[pair[0], ...], st.lists(pair[1], max_size=3).map(tuple))),
        inner.map(lambda pair: (Optional[pair[0]], st.none() | pair[1])),  # noqa: UP045
        st.tuples(inner, inner).map(lambda p: (tuple[p[0][0], p[1][0]], st.tuples(p[0][1], p[1][1]))),
        SCALAR.map(lambda pair: (set[pair[0]], st.sets(pair[1], max_size=3))),
        SCALAR.map(lambda pair: (frozenset[pair[0]], st.frozensets(pair[1], max_size=3))),
        st.tuples(KEY, inner).map(lambda p: (dict[p[0][0], p[1][0]], st.dictionaries(p[0][1], p[1][1], max_size=3))),
        st.lists(inner, min_size=1, max_size=4).flatmap(record),
        st.tuples(*[st.lists(SCALAR, min_size=1, max_size=2).flatmap(record)] * 2).map(union),
        st.just((datetime | str | int | None, st.none() | st.integers(0, 9) | TEXT | st.datetimes())),
    )  # fmt: skip


TYPES = st.recursive(SCALAR, containers, max_leaves=6)
RECORDS = st.lists(TYPES, min_size=1, max_size=5).flatmap(record)


@pytest.mark.parametrize("name", ["json", "msgpack"])
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_generated_classes_round_trip_and_both_paths_agree_to_the_byte(name, data):
    kind, values = data.draw(RECORDS)
    value = data.draw(values)
    written = FAST[name].encode(value, kind)
    assert written == SLOW[name].encode(value, kind)
    fast, slow = FAST[name].decode(written, kind), SLOW[name].decode(written, kind)
    assert fast == value
    assert repr(fast) == repr(slow)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_generated_annotations_round_trip_without_a_class_around_them(data):
    kind, values = data.draw(TYPES)
    value = data.draw(values)
    for name, codec in FAST.items():
        written = codec.encode(value, kind)
        assert written == SLOW[name].encode(value, kind)
        assert codec.decode(written, kind) == value


@settings(max_examples=100, deadline=None, database=None)
@given(st.integers())
def test_json_keeps_integers_of_any_size(value):
    assert FAST["json"].decode(FAST["json"].encode(value), int) == value
    assert SLOW["json"].decode(SLOW["json"].encode(value), int) == value


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.datetimes(min_value=EARLIEST, max_value=LATEST),
    st.integers(-80_000, 80_000),
)
def test_an_offset_with_seconds_becomes_utc_and_stays_the_same_instant(moment, seconds):
    @attrs.frozen
    class Event:
        when: datetime

    event = Event(moment.replace(tzinfo=timezone(timedelta(seconds=seconds))))
    for codec in (*FAST.values(), *SLOW.values()):
        assert codec.decode(codec.encode(event), Event) == event
