"""Control characters in texts of others are shown, and change nothing at a terminal."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lexigram.config.escape import escape_json, escape_line, escape_text, indent_lines

# What a terminal or a reader of lines acts upon.
CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"\u061c", "\u200e", "\u200f"}


def steers(char):
    return (
        unicodedata.category(char) in CATEGORIES
        or unicodedata.bidirectional(char) in BIDI
        or char in MARKS
    )


def test_a_control_character_is_shown_by_its_number():
    assert escape_text("a\x1b[31mb\x9bc\u202ed\x7f") == r"a\x1b[31mb\x9bc\u202ed\x7f"
    assert escape_text("a\tb\r\nc") == "a\\tb\\r\nc"
    assert escape_line("a\r\nb") == r"a\r\nb"


def test_further_lines_are_indented():
    assert indent_lines("a\nkey: b\x1b") == "a\n    key: b\\x1b"


def test_letters_and_emoji_of_any_language_stay():
    text = "Straße שלום سلام 日本語 👩‍🚀 [red]x[/red]"
    assert escape_text(text) == escape_line(text) == text


def test_no_character_that_steers_is_left_and_no_other_one_is_touched():
    for number in range(0x110000):
        char = chr(number)
        assert (escape_line(char) != char) == steers(char), hex(number)


@given(st.text(st.characters(categories=["L", "Cc", "Cf", "Cs", "Zl", "Zp", "So"])))
def test_escaping_twice_is_escaping_once_and_json_keeps_its_values(text):
    assert escape_text(escape_text(text)) == escape_text(text)
    assert not any(map(steers, escape_line(text)))
    for ensure_ascii in (True, False):
        document = escape_json(json.dumps({"text": text}, indent=1, ensure_ascii=ensure_ascii))
        assert json.loads(document) == {"text": text}
        assert not any(steers(char) for char in document if char != "\n")
