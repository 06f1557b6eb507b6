"""Damaged bytes give a value or our error, and both paths give the same."""

import enum
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pytest

from lexigram.serialization import Codec, SerializationError, TypeRegistry

SEED = 20_260_301
INPUTS = 10_000


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Line:
    sku: str
    count: int
    weight: float | None = None


@attrs.frozen
class Order:
    key: UUID
    lines: list[Line]
    when: datetime
    day: date
    took: timedelta
    blob: bytes
    colour: Colour
    tags: frozenset[str]
    notes: dict[str, int]
    pair: tuple[int, str]


@attrs.frozen
class Circle:
    radius: float


@attrs.frozen
class Square:
    side: Decimal


@attrs.frozen
class Node:
    value: int
    children: "list[Node]" = attrs.field(factory=list)


ORDER = Order(
    UUID(int=7), [Line("a", 1), Line("b\u00e9", -2, 1.5e-9)],
    datetime(2026, 3, 1, 12, 30, 5, 250, UTC), date(2026, 2, 28), timedelta(days=-3, seconds=5),
    b"\x00\xff\x10", Colour.BLUE, frozenset(["x", "y"]), {"n": 2**40}, (3, "z"),
)  # fmt: skip
SAMPLES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (list[Order], [ORDER]),
    (Circle | Square | str | None, Square(Decimal("1.50"))),
    (object, {"shape": Circle(2.5), "list": [1, None, True, "t"]}),
    (Node, Node(1, [Node(2, [Node(3)])])),
    (dict[int, datetime | str], {1: datetime(2020, 1, 1, tzinfo=UTC), -2: "x"}),
]
TOKENS = [
    b"null", b"true", b"-0", b"1e999", b"0.1", b'"$type"', b'{"$type":"Circle"}', b"[[", b"}}", b",", b":",
    b"\xff", b"\\ud800", b"9" * 25, b'"2020-13-01"', b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xd4\xff\x00", b"",
]  # fmt: skip


PARTS = [
    None,
    True,
    0,
    -1,
    2**70 % 2**64,
    1.5,
    "",
    "x",
    "red",
    "YQ==",
    "P1D",
    "2020-01-01T00:00:00Z",
    [],
    {},
    [[]],
]


class Loose:
    """Plain data in and out, type names and all: what a stranger may send."""

    def __init__(self, name):
        self._format = msgspec.json if name == "json" else msgspec.msgpack

    def decode(self, data):
        return self._format.decode(data)

    def encode(self, tree):
        return self._format.encode(tree)


def mutate(rng, data):
    """One to three cuts, flips, inserted tokens, doubled or swapped pieces."""
    for _ in range(rng.randint(1, 3)):
        start, stop = sorted(rng.randint(0, len(data)) for _ in range(2))
        stop = min(stop, start + rng.choice([1, 1, 2, 8, 40]))
        how = rng.randrange(6)
        if how == 0:
            data = data[:start]
        elif how == 1:
            data = data[:start] + data[stop:]
        elif how == 2:
            data = data[:start] + rng.randbytes(stop - start) + data[stop:]
        elif how == 3:
            data = data[:start] + rng.choice(TOKENS) + data[stop:]
        elif how == 4:
            data = data[:stop] + data[start:stop] * rng.choice([1, 2, 200]) + data[stop:]
        else:
            data = data[stop:] + data[start:stop] + data[:start]
    return data


def mutate_tree(rng, codec, data):
    """Well-formed data of a wrong shape: a part replaced, dropped, renamed or moved up."""
    tree = codec.decode(data)
    nodes, pending = [], [tree]
    while pending:
        node = pending.pop()
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        nodes += [(node, place) for place in places]
        pending += [node[place] for place in places if isinstance(node[place], (dict, list))]
    for node, place in rng.sample(nodes, min(len(nodes), rng.randint(1, 2))):
        how = rng.randrange(4)
        if how == 0 and isinstance(node, dict):
            node[rng.choice(["$type", "$value", "other"])] = node.pop(place, None)
        elif how == 1 and isinstance(node, list):
            node.append(rng.choice(PARTS))
        else:
            node[place] = (
                rng.choice(PARTS)
                if how == 2
                else [node.get(place)]
                if isinstance(node, dict)
                else None
            )
    return codec.encode(tree)


def outcome(codec, data, kind):
    try:
        return repr(codec.decode(data, kind))
    except SerializationError as caught:
        error = caught
    assert error.details["path"].startswith("$")
    assert error.hint
    return "malformed" if "the data are not" in error.message else type(error).__name__


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_ten_thousand_damaged_inputs_give_a_value_or_our_error_on_both_paths(name):
    registry = TypeRegistry()
    registry.register(Circle)
    fast, slow = Codec(name, registry=registry), Codec(name, registry=registry, fast=False)
    loose = Loose(name)
    rng = random.Random(SEED)
    texts = [(kind, fast.encode(value, kind)) for kind, value in SAMPLES]
    values = unread = 0
    for number in range(INPUTS):
        kind, text = rng.choice(texts)
        shaped = number % 2 and text[0] in b"[{\x80\x81\x82\x8a\x91\x92"
        data = mutate_tree(rng, loose, text) if shaped else mutate(rng, text)
        found, reference = outcome(fast, data, kind), outcome(slow, data, kind)
        failed = found in ("malformed", "DecodeError", "UnknownTypeError", "LimitError")
        values += not failed
        if not failed and reference == "malformed":
            unread += 1  # the damage is in a value under an unknown key, which msgspec skips
        else:
            assert found == reference, (number, kind, data)
    assert 0 < values < INPUTS
    assert unread < INPUTS / 100
