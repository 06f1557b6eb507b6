"""What is written, what is refused, and what the errors say."""

import abc
import dataclasses
import math
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Generic, NewType, TypeVar

import attrs
import pytest

from lexigram.serialization import (
    Codec,
    CodecError,
    DecodeError,
    EncodeError,
    LimitError,
    Limits,
    SerializationError,
    SerializerProtocol,
    TypeRegistrationError,
    TypeRegistry,
    UnknownTypeError,
    UnsupportedTypeError,
    dumps,
    get_codec,
    loads,
    register_codec,
    structure,
    unstructure,
)

T = TypeVar("T")
Sku = NewType("Sku", str)


@attrs.frozen
class Line:
    sku: str
    count: int = 1


@attrs.frozen
class Order:
    key: str
    lines: list[Line]
    total: float = 0.0


@attrs.frozen
class Event:
    at: datetime


@attrs.frozen
class Paid(Event):
    amount: Decimal


@attrs.frozen
class Circle:
    radius: float


@attrs.frozen
class Square:
    side: float


@attrs.frozen
class Box(Generic[T]):
    item: T
    more: dict[str, list[T]]


@attrs.frozen
class Pair(Box[int]):
    name: str


@attrs.frozen
class Node:
    value: int
    next: "Node | None" = None


@attrs.frozen
class Link:
    value: int
    next: "Link | None" = None


@attrs.frozen
class SpecialLink(Link):
    extra: str = ""


@attrs.frozen
class Step:
    at: datetime
    then: "Step | None" = None


@attrs.frozen
class Lost:
    where: "Nowhere"  # noqa: F821 - that is the point


@attrs.define
class Loop:
    inner: Any = None


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


@attrs.frozen
class Base(Shape):
    pass


@attrs.frozen
class Disc(Base):
    radius: float

    def area(self):
        return self.radius


@dataclasses.dataclass
class Checked:
    count: int

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("count must not be negative")


@attrs.frozen
class Account:
    _secret: str
    balance: Decimal = attrs.field(converter=Decimal, default=Decimal(0))
    label: str = attrs.field(init=False, default="derived")


@attrs.define
class Cached:
    base: int

    @cached_property
    def double(self):
        return self.base * 2


MOMENT = datetime(2026, 3, 1, tzinfo=UTC)
BOTH = pytest.mark.parametrize("fast", [True, False])


def test_importing_the_package_loads_no_library():
    code = (
        "import sys\nbefore = set(sys.modules)\n"  # coverage.py loads some of them
        "import lexigram.serialization\nfrom lexigram.serialization import dumps, Codec\n"
        "print({'cattrs', 'msgspec', 'orjson', 'pickle'} & (set(sys.modules) - before) or 'none')"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "none"


def test_dumps_and_loads_speak_plain_json():
    order = Order("o-1", [Line("a"), Line("b", 2)], 1.5)
    assert loads(dumps(order), Order) == order
    assert loads(b'{"key": "k", "lines": [], "extra": [1]}', Order) == Order("k", [])


def test_plain_data_come_from_and_go_to_plain_containers():
    data = unstructure(Order("o", [Line("a")]))
    assert data == {"key": "o", "lines": [{"sku": "a", "count": 1}], "total": 0.0}
    assert structure(data, Order) == Order("o", [Line("a")])


@BOTH
@pytest.mark.parametrize(
    ("kind", "data", "path", "text"),
    [
        (Order, b'{"key":"k","lines":[{"sku":"a"},{"sku":1}]}', "$.lines[1].sku", "str"),
        (Order, b'{"lines":[]}', "$.key", "missing"),
        (Order, b'{"key":"k","lines":"abc"}', "$.lines", "list"),
        (dict[str, int], b'{"a":1,"b":true}', "$.b", "int"),
        (tuple[int, str], b'[1,"a",2]', "$", "list of 2"),
        (list[int], b'["1"]', "$[0]", "int"),
        (Checked, b'{"count":-1}', "$", "negative"),
        (Order, b"[]", "$", "Order"),
        (int, b"1.5", "$", "int"),
        (Event, b'{"at":"yesterday"}', "$.at", "datetime"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_say_where_and_what(kind, data, path, text, fast):
    with pytest.raises(DecodeError, match=text) as caught:
        Codec(fast=fast).decode(data, kind)
    assert caught.value.details["path"] == path
    assert caught.value.hint


def test_every_problem_of_a_document_is_listed():
    with pytest.raises(DecodeError, match="and 2 more") as caught:
        loads(b'{"lines":[{"sku":1}],"total":"x"}', Order)
    problems = caught.value.details["problems"]
    assert [problem.split(":")[0] for problem in problems] == ["$.key", "$.lines[0].sku", "$.total"]


@BOTH
@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"key":1} x', b"nul", b'"\\ud800"'])
def test_malformed_data_are_our_error(data, fast):
    with pytest.raises(DecodeError):
        Codec(fast=fast).decode(data, Order)


def test_a_union_of_classes_is_told_apart_by_name():
    shapes = [Circle(1.0), Square(1.0)]
    written = dumps(shapes, list[Circle | Square])
    assert written == b'[{"$type":"Circle","radius":1.0},{"$type":"Square","side":1.0}]'
    assert loads(written, list[Circle | Square]) == shapes


def test_a_name_that_is_not_of_the_union_is_unknown():
    with pytest.raises(UnknownTypeError, match=r"\$\[0\]: .*os.system") as caught:
        loads(b'[{"$type":"os.system"}]', list[Circle | Square])
    assert caught.value.details["known"] == ["Circle", "Square"]


def test_members_of_one_form_are_wrapped_with_their_name():
    kind = datetime | str | None
    for value in (MOMENT, MOMENT.isoformat(), None):
        assert loads(dumps(value, kind), kind) == value


def test_a_union_that_cannot_be_told_apart_is_refused():
    with pytest.raises(UnsupportedTypeError, match="one class"):
        dumps([1], list[int] | list[str])


def test_registered_classes_travel_where_anything_may_stand():
    codec = Codec(registry=TypeRegistry())
    codec.registry.register(Circle, "shape.circle")
    written = codec.encode({"a": [Circle(2.0)]}, object)
    assert written == b'{"a":[{"$type":"shape.circle","radius":2.0}]}'
    assert codec.decode(written, object) == {"a": [Circle(2.0)]}


def test_an_unregistered_class_cannot_stand_where_anything_may():
    with pytest.raises(EncodeError, match=r"\$\.a\[0\]: .*Circle") as caught:
        Codec().encode({"a": [Circle(2.0)]}, object)
    assert "register(Circle)" in caught.value.hint


def test_a_name_in_data_is_looked_up_and_never_imported():
    module = "this_module_is_only_in_data"
    with pytest.raises(UnknownTypeError):
        Codec().decode(f'{{"$type":"{module}.Thing"}}'.encode(), object)
    assert module not in sys.modules


def test_a_subclass_in_the_place_of_its_base_carries_its_name():
    codec = Codec(registry=TypeRegistry())
    event = Paid(MOMENT, Decimal("1.50"))
    with pytest.raises(EncodeError, match="has no name"):
        codec.encode([event], list[Event])
    codec.registry.register(Paid)
    written = codec.encode([event, Event(MOMENT)], list[Event])
    assert codec.decode(written, list[Event]) == [event, Event(MOMENT)]
    with pytest.raises(UnknownTypeError):
        codec.decode(b'[{"$type":"Circle"}]', list[Event])


@BOTH
def test_a_registered_subclass_may_stand_in_a_union_with_its_base(fast):
    codec = Codec(registry=TypeRegistry(), fast=fast)
    codec.registry.register(Paid)
    kind = Event | datetime | str
    for value in (Paid(MOMENT, Decimal(1)), Event(MOMENT), MOMENT, "text"):
        assert codec.decode(codec.encode(value, kind), kind) == value
    with pytest.raises(UnknownTypeError):
        codec.decode(b'{"$type":"Circle","$value":1}', kind)


@BOTH
def test_an_unregistered_subclass_deep_inside_is_not_cut_down_to_its_base(fast):
    with pytest.raises(EncodeError, match=r"\$\.next: .*SpecialLink") as caught:
        Codec(fast=fast).encode(Link(1, SpecialLink(2, None, "lost")))
    assert caught.value.details["path"] == "$.next"


@BOTH
def test_a_moment_deep_inside_a_recursive_value_stays_the_same_instant(fast):
    odd = MOMENT.astimezone(timezone(timedelta(seconds=1172)))
    value = Step(MOMENT, Step(odd))
    codec = Codec(fast=fast)
    assert codec.decode(codec.encode(value), Step) == value


def test_an_optional_field_of_anything_holds_anything():
    value = Loop({"a": [1, None]})
    assert loads(dumps({"x": None}, dict[str, Any | None]), dict[str, Any | None]) == {"x": None}
    assert loads(dumps(value), Loop) == value


def test_an_annotation_that_cannot_be_resolved_is_named():
    with pytest.raises(UnsupportedTypeError, match="Nowhere") as caught:
        loads(b"{}", Lost)
    assert caught.value.details["name"] == "Nowhere"


def test_an_abstract_base_needs_a_name_in_the_data():
    codec = Codec(registry=TypeRegistry())
    codec.registry.register(Disc)
    assert codec.decode(codec.encode(Disc(1.0), Base), Base) == Disc(1.0)
    with pytest.raises(DecodeError, match="abstract"):
        codec.decode(b'{"radius":1.0}', Base)


def test_a_name_stands_for_one_class_and_a_class_has_one_name():
    registry = TypeRegistry()
    assert registry.register(Circle) is registry.register(Circle)
    with pytest.raises(TypeRegistrationError, match="already stands for"):
        registry.register(Square, "Circle")
    with pytest.raises(TypeRegistrationError, match="already registered as"):
        registry.register(Circle, "Other")
    with pytest.raises(TypeRegistrationError, match="neither"):
        registry.register(int)


def test_generic_classes_are_read_by_their_arguments():
    box = Box(MOMENT, {"a": [MOMENT]})
    assert loads(dumps(box, Box[datetime]), Box[datetime]) == box
    pair = Pair(1, {"a": [2]}, "n")
    assert loads(dumps(pair), Pair) == pair
    with pytest.raises(DecodeError) as caught:
        loads(b'{"item":1,"more":{"a":["x"]},"name":"n"}', Pair)
    assert caught.value.details["path"] == "$.more.a[0]"


def test_new_types_and_annotated_types_are_what_they_wrap():
    kind = dict[Sku, Annotated[int, "stock"]]
    assert loads(dumps({Sku("a"): 1}, kind), kind) == {"a": 1}


@BOTH
def test_private_converted_and_derived_fields_go_through_the_constructor(fast):
    codec = Codec(fast=fast)
    account = Account("s", "1.5")
    assert codec.encode(account) == b'{"_secret":"s","balance":"1.5"}'
    assert codec.decode(codec.encode(account), Account) == account


@BOTH
def test_what_was_cached_on_an_object_is_not_written(fast):
    value = Cached(2)
    assert value.double == 4
    assert Codec(fast=fast).encode(value) == b'{"base":2}'


@BOTH
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_json_refuses_what_it_would_write_as_null_and_msgpack_keeps_it(value, fast):
    with pytest.raises(EncodeError, match=r"\$\.total") as caught:
        Codec(fast=fast).encode(Order("k", [], value))
    assert caught.value.details["path"] == "$.total"
    codec = Codec("msgpack", fast=fast)
    assert str(codec.decode(codec.encode(Order("k", [], value)), Order).total) == str(value)


def test_a_time_whose_offset_has_no_text_is_refused():
    with pytest.raises(EncodeError, match="whole minutes"):
        dumps(time(1, tzinfo=timezone(timedelta(seconds=30))))


@pytest.mark.parametrize(
    "value", [object(), {"a": lambda: 1}, 1j, "\ud800", {1.5: 1}, {1: 1, "1": 2}]
)
def test_a_value_without_a_form_is_refused(value):
    with pytest.raises(EncodeError) as caught:
        dumps(value)
    assert caught.value.details["path"].startswith("$")


def test_subclasses_of_plain_types_are_written_as_those():
    class Name(str):
        __slots__ = ()

    assert dumps(OrderedDict(a=Name("x"))) == b'{"a":"x"}'
    assert dumps(Line(Name("x"))) == b'{"count":1,"sku":"x"}'


def test_msgpack_refuses_integers_beyond_its_range():
    with pytest.raises(EncodeError, match="msgpack"):
        get_codec("msgpack").encode(2**64)


def test_the_key_of_type_names_is_not_for_other_data():
    with pytest.raises(EncodeError, match="kept for type names"):
        dumps({"$type": "Circle"})


@BOTH
@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_data_deeper_than_allowed_are_refused_in_both_directions(name, fast):
    codec = Codec(name, limits=Limits(max_depth=5), fast=fast)
    node = deeper = Node(1, Node(2, Node(3, Node(4, Node(5)))))
    assert codec.decode(codec.encode(node), Node) == node
    deeper = Node(0, node)
    with pytest.raises(LimitError, match="5 levels"):
        codec.encode(deeper)
    with pytest.raises(LimitError, match="5 levels"):
        codec.decode(Codec(name).encode(deeper), Node)


@BOTH
@pytest.mark.parametrize("kind", [object, Node, Order, list[list[int]]])
def test_a_hundred_thousand_brackets_are_refused_and_not_a_crash(kind, fast):
    with pytest.raises(SerializationError):
        Codec(fast=fast).decode(b"[" * 100_000, kind)
    with pytest.raises(SerializationError):
        Codec(fast=fast).decode(b'{"value":1,"key":"k","next":' * 20_000, kind)


def test_the_deepest_allowed_data_do_not_end_the_stack():
    codec = Codec(limits=Limits(max_depth=100))
    node = Node(0)
    for number in range(99):
        node = Node(number, node)
    assert codec.decode(codec.encode(node), Node) == node


def test_a_value_that_contains_itself_is_refused():
    loop = Loop()
    loop.inner = [loop]
    codec = Codec(registry=TypeRegistry())
    codec.registry.register(Loop)
    with pytest.raises(LimitError):
        codec.encode(loop)


@BOTH
def test_data_larger_than_allowed_are_refused_in_both_directions(fast):
    codec = Codec(limits=Limits(max_bytes=50), fast=fast)
    with pytest.raises(LimitError, match="50 allowed") as caught:
        codec.encode(Line("a" * 60))
    assert caught.value.details["max_bytes"] == 50
    with pytest.raises(LimitError):
        codec.decode(b" " * 51, Line)


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_codecs_are_found_by_name(name):
    codec = get_codec(name)
    assert isinstance(codec, SerializerProtocol)
    assert codec.decode(codec.encode(Line("a", 3)), Line) == Line("a", 3)


def test_a_codec_of_ones_own_is_found_by_its_name():
    mine = Codec(limits=Limits(max_bytes=10))
    register_codec("tiny-of-a-test", mine)
    register_codec("tiny-of-a-test", mine)
    assert get_codec("tiny-of-a-test") is mine
    with pytest.raises(CodecError, match="another codec"):
        register_codec("json", mine)


def test_an_unknown_codec_names_the_known_ones():
    with pytest.raises(CodecError, match="json, msgpack"):
        get_codec("xml")


@pytest.mark.parametrize("kind", [complex, type, dict[float, int], list[complex], "Order", []])
def test_a_type_we_cannot_serialize_is_refused_as_such(kind):
    with pytest.raises(UnsupportedTypeError):
        loads(b"[1]" if kind == list[complex] else b'{"1":1}', kind)


def test_text_is_not_taken_for_bytes():
    with pytest.raises(DecodeError, match="expected bytes"):
        loads("{}", Order)


@pytest.mark.parametrize(
    ("kind", "encode", "decode"),
    [(Line, True, True), (Order, True, True), (Event, True, True), (Node, True, True), (Step, False, True),
     (list[Event], False, True), (Paid, True, False), (Checked, False, False),
     (Circle | Square, False, False), (Box[int], False, False), (Account, False, False)],
)  # fmt: skip
def test_msgspec_does_the_work_for_plain_types(kind, encode, decode):
    plan = Codec()._plan(kind)
    assert (plan.shape.encode, plan.decoder is not None) == (encode, decode)


class TestPlainData:
    """Dicts and lists of what JSON has take the short way, and come out the same."""

    VALUES = (
        {"id": 1, "name": "Zürich", "price": 1.5, "paid": True, "note": None},
        {"nested": {"list": [1, "two", [3.0, {"four": None}]]}},
        [],
        {},
        [{"a": 2**63}, {"b": -(2**70)}],
        {"deep": [[[[[[[[[["deeper than the short way looks"]]]]]]]]]]},
    )

    @pytest.mark.parametrize("value", VALUES, ids=str)
    def test_it_is_written_and_read_as_the_converter_does(self, value):
        fast, slow = Codec("json"), Codec("json", fast=False)
        assert fast.encode(value) == slow.encode(value)
        assert fast.decode(slow.encode(value), Any) == value

    @pytest.mark.parametrize("value", [{"a": math.nan}, [math.inf], {"$type": "x"}, {"a": {1}}])
    def test_what_the_converter_refuses_or_changes_is_left_to_it(self, value):
        fast, slow = Codec("json"), Codec("json", fast=False)
        try:
            expected = slow.encode(value)
        except SerializationError as error:
            with pytest.raises(type(error)):
                fast.encode(value)
        else:
            assert fast.encode(value) == expected

    def test_a_value_that_contains_itself_is_refused(self):
        endless: list[object] = []
        endless.append(endless)
        with pytest.raises(LimitError):
            Codec("json").encode(endless)

    @pytest.mark.parametrize("data", [b'{"$type":"Nobody"}', b'{"\\u0024type":"Nobody"}'])
    def test_a_type_name_is_seen_however_it_is_written(self, data):
        with pytest.raises(UnknownTypeError):
            Codec("json").decode(data, Any)


@pytest.mark.parametrize("name", [rb"$type", rb"\u0024type", rb"\u0024\u0074ype"], ids=str)
def test_a_type_name_is_one_however_it_is_written(name):
    with pytest.raises(UnknownTypeError):
        loads(b'{"%s": "Nobody"}' % name, Any)
