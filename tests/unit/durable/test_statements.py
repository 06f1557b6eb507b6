"""The statements that run, as files to read: they are put together from pieces in the store.

``python -m tests.unit.durable.test_statements`` writes them again after a wanted change.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lexigram.sql.placeholders import number_placeholders
from lexigram.sql.url import Dialect
from lexigram.workflow.durable.store import _document_statements as documents
from lexigram.workflow.durable.store import (
    _postgres_statements,
    _sqlite_statements,
    kept,
    overview,
    statements,
    sync_states,
)

FOLDER = Path(__file__).with_name("statements")
ROOMS = {
    "postgresql": [_postgres_statements],
    "sqlite": [_sqlite_statements],
    "shared": [statements, kept, sync_states],
    "overview": [overview],
    "documents_postgresql": [],
    "documents_sqlite": [],
}
DOCUMENTS: dict[str, Dialect] = {
    "documents_postgresql": "postgresql",
    "documents_sqlite": "sqlite",
}
SQL = re.compile(r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\b")
PIECE = re.compile(r"\{[a-z_]+\}")  # a place where a dialect puts something in


def texts(name: str, value: object, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Those that run as they are; the others too, if not ``whole``."""
    if isinstance(value, str):
        if SQL.match(value) and not (whole and PIECE.search(value)):
            yield name, value.strip()
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts(f"{name} {key}", one, whole=whole)
    elif isinstance(value, tuple):
        for number, one in enumerate(value, 1):
            yield from texts(f"{name} {number}", one, whole=whole)


def of_module(module: ModuleType, *, whole: bool = True) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        if name.isupper() and not name.startswith("_"):
            yield from texts(name, value, whole=whole)
    for owner in vars(module).values():
        if isinstance(owner, type) and owner.__module__ == module.__name__:
            for name, value in vars(owner).items():
                if name.isupper() and value not in vars(module).values():
                    yield from texts(name, value, whole=whole)


def document(room: str) -> str:
    found: dict[str, str] = {}
    for module in ROOMS[room]:
        for name, text in of_module(module):
            assert found.setdefault(name, text) == text, f"two statements {name}"
    if dialect := DOCUMENTS.get(room):
        for name, text in of_module(documents, whole=False):
            found[name] = documents.statement_for(dialect, text)
    return "\n\n".join(f"-- {name}\n{text};" for name, text in sorted(found.items())) + "\n"


@pytest.mark.parametrize("room", ROOMS)
def test_the_statements_that_run_are_those_in_the_files(room):
    recorded = (FOLDER / f"{room}.sql").read_text(encoding="utf-8")
    assert document(room) == recorded, "run: python -m tests.unit.durable.test_statements"


@pytest.mark.parametrize("room", ROOMS)
def test_no_statement_has_a_piece_that_nothing_was_put_in_for(room):
    text = document(room)
    assert text.count("\n-- ") > 10
    assert not PIECE.search(number_placeholders(text))


if __name__ == "__main__":
    for room in ROOMS:
        (FOLDER / f"{room}.sql").write_text(document(room), encoding="utf-8")
