"""Filters match in Python what they match as a condition, and nothing can be slipped in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.ai.workers.vectors.errors import VectorFilterError
from lexigram.ai.workers.vectors.filters import (
    check_filter,
    columns_of,
    facts_of,
    ids_in,
    matches,
    where,
)


@pytest.mark.parametrize(
    ("metadata", "wanted", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": ["x"]}, {"a": "x"}, False),
        ({"a": ["x"]}, {"a": [["x"]]}, True),
        ({"a": {"k": 1, "b": 2}}, {"a": [{"b": 2, "k": 1}]}, True),
        ({}, {"a": None}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": 1, "b": 2}, {"a": [1, 2], "b": (2,)}, True),
    ],
)
def test_a_filter_compares_json_values(metadata, wanted, expected):
    assert matches(metadata, wanted) is expected


def test_texts_of_known_keys_go_to_columns_and_all_else_to_facts():
    metadata = {"document_id": "d", "source": 5, "lang": "de"}
    assert columns_of(metadata)["document_id"] == "d"
    assert columns_of(metadata)["source"] is None
    assert list(facts_of(metadata)) == ['"source":5', '"lang":"de"']


def test_quotes_are_doubled_wherever_they_come_from():
    assert where({"uri": "a' OR '1'='1"}) == "(uri IN ('a'' OR ''1''=''1'))"
    assert where({"k'": "v'"}) == "(array_has_any(facts, ['\"k''\":\"v''\"']))"
    assert ids_in(["a'b"]) == "id IN ('a''b')"


@given(st.dictionaries(st.text(), st.text(), min_size=1))
def test_a_condition_never_has_an_odd_quote(wanted):
    assert where(wanted).count("'") % 2 == 0


@pytest.mark.parametrize("wanted", [{}, {"a": object()}, {"a": float("nan")}, {"a": [b"x"]}])
def test_what_nothing_can_equal_is_refused(wanted):
    with pytest.raises(VectorFilterError):
        check_filter(wanted)
