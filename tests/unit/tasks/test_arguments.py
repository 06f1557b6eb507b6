"""What the arguments of a job are when its handler gets them: through the text a queue keeps."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram.serialization import register
from lexigram.tasks.handlers import Handler, definition_of
from lexigram.tasks.intake import admitted, payload_of

pytestmark = pytest.mark.anyio


class Color(Enum):
    RED = "red"


@attrs.frozen
class Line:
    price: Decimal


register(Line, "tests.arguments.Line")

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
# Annotation and values: what a handler may declare.
TYPED = st.one_of(
    st.tuples(st.just(datetime), st.datetimes()),
    st.tuples(st.just(date), st.dates()),
    st.tuples(st.just(timedelta), st.timedeltas()),
    st.tuples(st.just(Decimal), st.decimals(allow_nan=False)),
    st.tuples(st.just(UUID), st.uuids()),
    st.tuples(st.just(bytes), st.binary(max_size=5)),
    st.tuples(st.just(Color), st.just(Color.RED)),
    st.tuples(st.just(Line), st.builds(Line, st.decimals(allow_nan=False))),
    st.tuples(st.just(dict[int, str]), st.dictionaries(st.integers(), TEXT, max_size=3)),
    st.tuples(st.just(set[date]), st.sets(st.dates(), max_size=3)),
    st.tuples(st.just(tuple[int, ...]), st.lists(st.integers(), max_size=3).map(tuple)),
    st.tuples(st.just(dict[str, Any]), st.dictionaries(TEXT.filter("$type".__ne__), PLAIN)),
)


async def handled(annotation, value):
    """The argument as a handler with this annotation gets it."""

    async def note(value):
        return value

    note.__annotations__ = {} if annotation is None else {"value": annotation}
    kept = admitted({"name": "note", "kwargs": {"value": value}}).payload
    args, kwargs, _ = payload_of(kept)
    return await Handler(definition_of(note, "note"))(*args, **kwargs)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(TYPED)
async def test_an_argument_of_the_type_its_handler_declares_comes_back_equal(typed):
    annotation, value = typed
    assert await handled(annotation, value) == value


@pytest.mark.parametrize(
    ("value", "untyped"),
    [
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00Z"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"abc", "YWJj"),
        (Color.RED, "red"),
        ((1, "a"), [1, "a"]),
        ({1}, [1]),
        ({1: 2}, {"1": 2}),
        ({"a": [(1,)]}, {"a": [[1]]}),
        (Line(Decimal(1)), Line(Decimal(1))),
        ({"a": [1, None, 1.5, True]}, {"a": [1, None, 1.5, True]}),
    ],
    ids=repr,
)
async def test_an_argument_without_an_annotation_comes_as_the_form_the_docs_name(value, untyped):
    found = await handled(None, value)
    assert found == untyped
    assert type(found) is type(untyped)
