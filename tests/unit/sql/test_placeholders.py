"""Statements name their values by ``?``, whatever the database uses itself."""

import ast
import re
from pathlib import Path

import pytest
import rooms

from lexigram.sql.placeholders import number_placeholders

NUMBERED = re.compile(r"\?\d")


def test_every_placeholder_gets_its_number_on_postgresql():
    assert number_placeholders("SELECT ?, '?' WHERE a ?? ?") == "SELECT $1, '?' WHERE a ? $2"


@pytest.mark.parametrize(
    ("sql", "numbered"),
    [
        ("SELECT $a$ ? $b$ ? $a$, ?", "SELECT $a$ ? $b$ ? $a$, $1"),
        ("SELECT $$ ? $$, ?", "SELECT $$ ? $$, $1"),
        # a name may have $ in it; a tag begins like a name
        ("SELECT a$b$ FROM t WHERE a$b$ = ?", "SELECT a$b$ FROM t WHERE a$b$ = $1"),
        ("SELECT ?, $1$ ?", "SELECT $1, $1$ $2"),
        # PostgreSQL refuses it, and names the place
        ("SELECT ?, $a$ ? $b$", "SELECT $1, $a$ ? $b$"),
    ],
)
def test_a_placeholder_in_a_dollar_quoted_text_is_text(sql, numbered):
    assert number_placeholders(sql) == numbered


# sqlite3 of Python 3.12.0 to 3.12.3 takes ?1 for a name and warns at each value of a sequence.
# On PostgreSQL it would be $1 followed by a digit.
@pytest.mark.parametrize(
    "folder", sorted(rooms.ROOT.glob("lexigram*/src")), ids=lambda f: f.parent.name
)
def test_no_statement_numbers_its_placeholders(folder: Path):
    assert [
        f"{path.relative_to(folder)}:{node.lineno}"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NUMBERED.search(node.value)
    ] == []
