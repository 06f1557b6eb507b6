"""The little of SQL that a library needs to keep its own tables in the user's database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lexigram.contracts.core.errors import InfrastructureError


class DatabaseError(InfrastructureError):
    """A statement failed, or the database could not be reached."""

    code = "LEX_ERR_DB_001"


class UniqueViolationError(DatabaseError):
    """A row with this key exists already; nothing was written."""

    code = "LEX_ERR_DB_101"


@dataclass(frozen=True)
class QueryResult:
    """What a statement returned: rows for a query, else the number of rows it touched."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    # rows returned, inserted, changed or deleted
    row_count: int = 0

    def first(self) -> dict[str, Any] | None:
        """The first row, or None when there is none."""
        return self.rows[0] if self.rows else None


@runtime_checkable
class DatabaseProviderProtocol(Protocol):
    """Runs statements with ``?`` placeholders, whatever the database uses itself.

    Outside a transaction every call commits by itself. Table and column names are put into the
    statement as they are: they come from code, never from data. Every method raises
    UniqueViolationError for a key that is taken and DatabaseError for all other failures;
    a call that raised wrote nothing, unless its error says that nobody knows: the connection
    was lost after the statement was sent.
    """

    async def execute(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a statement that changes data; ``row_count`` says how many rows. No retry."""
        ...

    async def execute_query(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a query; rows come in the order of its ORDER BY, else in no order."""
        ...

    async def execute_insert(self, table: str, data: Mapping[str, Any]) -> QueryResult:
        """Insert one row; a second call inserts again or raises UniqueViolationError."""
        ...

    async def execute_delete(
        self, table: str, where: str, params: Sequence[Any] = ()
    ) -> QueryResult:
        """Delete the rows that match; none is fine, ``row_count`` is then 0."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """``async with db.transaction():`` commits at the end, rolls back on any exception.

        Calls of the same task inside join it; so does a nested transaction, which neither
        commits nor rolls back by itself. Cancellation rolls back. What another transaction
        sees is up to the database.
        """
        ...
