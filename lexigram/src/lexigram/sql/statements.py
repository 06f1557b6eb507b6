"""Statements that no store owns."""

from __future__ import annotations

from functools import lru_cache

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
