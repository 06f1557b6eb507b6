from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.cache import Copies, Values
from lexigram.contracts.infra.cache import CacheReadError, CacheWriteError
from lexigram.serialization import CodecError, register


@register
@dataclass(frozen=True)
class Order:
    number: int
    made: datetime
    lines: tuple[str, ...] = ()
    tags: list[str] = field(default_factory=list)


@dataclass
class Unregistered:
    x: int = 1


ORDER = Order(7, datetime(2026, 11, 16, tzinfo=UTC), ("a", "b"))

PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.binary(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])).filter(lambda k: k != "$type"),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_what_is_written_comes_back_equal_and_of_its_class(value):
    for values in (Values(), Copies()):
        read = values.read("key", values.write("key", value))
        assert read == value
        assert type(read) is type(value)


@pytest.mark.parametrize("kind", [Values, Copies])
def test_objects_of_registered_classes_come_back_with_their_types(kind):
    values = kind()
    assert values.read("key", values.write("key", ORDER)) == ORDER
    assert values.read("key", values.write("key", {"all": [ORDER]})) == {"all": [ORDER]}


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1},
        date(2026, 1, 1),
        datetime.now(UTC),
        Decimal(1),
        {1: "a"},
        {"deep": [{"tuple": (1,)}]},
        object(),
        Unregistered(),
        {"$type": "x"},
        2**70,
        "\ud800",
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value):
    with pytest.raises(CacheWriteError) as caught:
        Values().write("the key", value)
    assert caught.value.key == "the key"


@pytest.mark.parametrize("value", [(1, 2), {"deep": [{1: 2}]}, [Unregistered()]])
def test_a_cache_in_memory_refuses_it_too(value):
    with pytest.raises(CacheWriteError):
        Copies().write("the key", value)


def test_the_refusal_says_what_can_be_stored():
    with pytest.raises(CacheWriteError) as caught:
        Values().write("k", {"when": (1,)})
    assert str(caught.value).startswith(
        "[LEX_ERR_CACHE_003] cannot write 'k' to the cache: tuple would not come back as it is"
    )
    assert "lexigram.serialization.register" in str(caught.value)


def test_a_value_that_contains_itself_ends():
    value = []
    value.append(value)
    for values in (Values(), Copies()):
        with pytest.raises(CacheWriteError):
            values.write("key", value)


def test_json_keeps_large_numbers_and_refuses_bytes():
    values = Values("json")
    assert values.read("key", values.write("key", 2**70)) == 2**70
    with pytest.raises(CacheWriteError):
        values.write("key", b"bytes")


def test_bytes_that_are_not_ours_are_a_read_error_with_a_cure():
    with pytest.raises(CacheReadError, match="delete the key"):
        Values().read("key", b"\xc1")
    with pytest.raises(CacheReadError):
        Values().read("key", Values("json").write("key", {"a": 1}))


def test_an_unknown_serializer_is_named():
    with pytest.raises(CodecError, match="there is no codec 'pickle'"):
        Values("pickle")
