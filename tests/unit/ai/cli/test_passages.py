"""What people see of a passage."""

import pytest

from lexigram.ai.workers.cli.search import (
    _filters,
    excerpt,
    extract_terms,
    highlight,
    matches_query,
)
from lexigram.cli import CliError


def test_common_words_are_not_looked_for_unless_there_are_no_others():
    assert extract_terms("How do I clean the mirror?") == ["clean", "mirror"]
    assert extract_terms("what is it") == ["what", "is", "it"]


@pytest.mark.parametrize("word", ["Clean", "cleaned", "cleaning", "cleans"])
def test_every_form_of_a_word_is_meant(word):
    assert matches_query(word, ["clean"])
    assert not matches_query(word, ["clear"])


def test_a_short_passage_is_shown_whole_in_one_line():
    assert excerpt("one\n\n  two", ["one"], 100) == "one two"


def test_of_a_long_passage_the_part_with_the_words_is_shown():
    text = "filler " * 100 + "the mirror is washed " + "filler " * 100
    shown = excerpt(text, ["mirror", "wash"], 80)
    assert "the mirror is washed" in shown
    assert shown.startswith("… the mirror")
    assert shown.endswith("filler …")
    assert len(shown) <= 84


def test_a_long_passage_without_the_words_is_shown_from_its_beginning():
    assert excerpt("a" * 30 + " b" * 100, ["mirror"], 40).startswith("a" * 30)
    assert len(excerpt("x" * 500, ["mirror"], 40)) <= 44


def test_the_words_are_marked():
    text = highlight("Mirrors and more mirror", ["mirror"])
    assert [(span.start, span.end) for span in text.spans] == [(0, 7), (17, 23)]


def test_filters_are_pairs_and_numbers_are_numbers():
    assert _filters(["page=3", "title=A", "title=B=C"]) == {"page": 3, "title": ["A", "B=C"]}
    assert _filters(["a=-1", "b=--1", "c=1_0"]) == {"a": -1, "b": "--1", "c": "1_0"}
    assert _filters(["a=" + "9" * 5_000]) == {"a": "9" * 5_000}
    with pytest.raises(CliError, match="KEY=VALUE"):
        _filters(["page"])
