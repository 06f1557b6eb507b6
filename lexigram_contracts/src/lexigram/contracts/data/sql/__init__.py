"""Contracts of SQL databases."""

from lexigram.contracts.data.sql.database import (
    DatabaseError,
    DatabaseProviderProtocol,
    QueryResult,
    UniqueViolationError,
)

__all__ = [
    "DatabaseError",
    "DatabaseProviderProtocol",
    "QueryResult",
    "UniqueViolationError",
]
