"""One small and one larger payload, and one that only the converter can do."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import attrs
import msgspec
import orjson
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union
from harness import Plan, Section, Work, measure, outcome, snippet

from lexigram.serialization import Codec

NOTE = (
    "The converter alone (`fast=False`) is what our codec does for types that msgspec cannot give "
    "identical results for. Plain orjson writes and reads dicts and knows nothing of the classes; "
    "plain cattrs is its orjson converter without our strictness, limits and paths in errors. "
    "Every case is checked once for giving the value back."
)


class State(enum.Enum):
    OPEN = "open"
    DONE = "done"


@attrs.frozen
class Event:
    key: UUID
    at: datetime
    topic: str
    state: State
    attempts: int = 0


@attrs.frozen
class Line:
    sku: str
    count: int
    weight: float


@attrs.frozen
class Order:
    key: str
    lines: list[Line]
    tags: dict[str, str]


@attrs.frozen
class Card:
    number: str
    amount: Decimal


@attrs.frozen
class Transfer:
    iban: str
    amount: Decimal


@attrs.frozen
class Payment:
    key: str
    by: Card | Transfer


EVENT = Event(
    UUID(int=77), datetime(2026, 3, 1, 12, 30, tzinfo=UTC), "orders.placed", State.OPEN, 3
)
ORDER = Order(
    "o-1", [Line(f"sku-{n}", n, n / 7) for n in range(50)], {"a": "b", "source": "web shop"}
)
PAYMENT = Payment("p-1", Transfer("DE02", Decimal("19.90")))
WORKS = (
    ("an event of 5 fields", EVENT, Event),
    ("an order with 50 lines", ORDER, Order),
    ("a payment with a union of classes", PAYMENT, Payment),
)


async def sections(plan: Plan) -> list[Section]:
    writing = [await _writing(*work) for work in WORKS]
    reading = [await _reading(*work) for work in WORKS]
    await measure([*writing, *reading], plan)
    return [Section("Writing JSON", NOTE, writing), Section("Reading JSON", "", reading)]


async def _writing(title: str, value, kind) -> Work:
    plain = orjson.loads(Codec().encode(value))
    cases = [
        snippet("orjson, plain dicts", "result = f(v)", {"f": orjson.dumps, "v": plain}),
        snippet("cattrs", "result = f(v)", {"f": _cattrs().dumps, "v": value}),
        snippet("lexigram", "result = f(v)", {"f": Codec().encode, "v": value}),
        snippet(
            "lexigram, converter", "result = f(v)", {"f": Codec(fast=False).encode, "v": value}
        ),
        snippet("lexigram, msgpack", "result = f(v)", {"f": Codec("msgpack").encode, "v": value}),
    ]
    if kind is not Payment:
        encode = msgspec.json.Encoder().encode
        cases.insert(1, snippet("msgspec", "result = f(v)", {"f": encode, "v": value}))
    for case in cases:
        assert await outcome(case), case.who
    return Work(title, "µs", "orjson, plain dicts", cases)


async def _reading(title: str, value, kind) -> Work:
    json, pack, cattrs = Codec().encode(value), Codec("msgpack").encode(value), _cattrs()
    cases = [
        snippet("orjson, plain dicts", "result = f(v)", {"f": orjson.loads, "v": json}),
        _reader("cattrs", cattrs.loads, cattrs.dumps(value), kind),
        _reader("lexigram", Codec().decode, json, kind),
        _reader("lexigram, converter", Codec(fast=False).decode, json, kind),
        _reader("lexigram, msgpack", Codec("msgpack").decode, pack, kind),
    ]
    if kind is not Payment:
        decode = msgspec.json.Decoder(kind).decode
        cases.insert(1, snippet("msgspec", "result = f(v)", {"f": decode, "v": json}))
    for case in cases[1:]:
        assert await outcome(case) == value, case.who
    return Work(title, "µs", "orjson, plain dicts", cases)


def _reader(who: str, decode, data: bytes, kind):
    return snippet(who, "result = f(v, k)", {"f": decode, "v": data, "k": kind})


def _cattrs():
    converter = make_converter()
    converter.register_unstructure_hook(Decimal, str)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    configure_tagged_union(Card | Transfer, converter)
    return converter
