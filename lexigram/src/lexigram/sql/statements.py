"""Statements that no store owns."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# One number for all distributions; the lock is the database's and ends with the transaction, so a
# killed process holds nothing.
MIGRATION_LOCK = "SELECT pg_advisory_xact_lock(5282041503)"


@lru_cache(maxsize=512)
def insert(table: str, columns: tuple[str, ...]) -> str:
    """One row; the names come from code, never from data."""
    if not columns:
        return f"INSERT INTO {table} DEFAULT VALUES"
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names


def delete(table: str, where: str) -> str:
    """The rows that match a condition written in code."""
    return f"DELETE FROM {table} WHERE {where}"  # noqa: S608 - names


_PIECE: Final = re.compile(r"\{([a-z_]+)\}")
_NESTED: Final = 10  # pieces inside each other


def render_statement(text: str, **pieces: str) -> str:
    """Put a piece in the place of each ``{name}``; pieces may have such places themselves.

    Raises ValueError for a place without a piece. Pieces come from code, never from data.
    """

    def piece(place: re.Match[str]) -> str:
        if place[1] not in pieces:
            raise ValueError(f"no piece for {place[0]} in the statement: {text.strip()[:200]}")
        return pieces[place[1]]

    for _ in range(_NESTED):
        rendered = _PIECE.sub(piece, text)
        if rendered == text:
            return text
        text = rendered
    raise ValueError(f"pieces of a statement contain each other: {', '.join(sorted(pieces))}")
