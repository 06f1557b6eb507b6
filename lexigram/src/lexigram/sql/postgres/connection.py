"""What an async function gets from ``db.run`` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Executable
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.errors import TransactionScopeError
from lexigram.sql.placeholders import numbered
from lexigram.sql.postgres.errors import FOREIGN, translated

# A connection of asyncpg or the pool's stand-in for one; asyncpg has no types to name them by.
Driver: TypeAlias = Any

_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]


class PostgresConnection:
    """One transaction's connection: statements as text with ``?``, or as SQLAlchemy Core."""

    def __init__(self, driver: Driver, address: str) -> None:
        self._driver: Driver | None = driver
        self._address = address

    @property
    def driver(self) -> Driver:
        """The asyncpg connection, for COPY, cursors and the like."""
        if self._driver is None:
            raise TransactionScopeError("the connection was used after its function returned")
        return self._driver

    async def execute(
        self, statement: str | Executable, params: Sequence[Any] | Mapping[str, Any] = ()
    ) -> QueryResult:
        """Positional parameters for text, named ones for SQLAlchemy Core."""
        if isinstance(statement, str):
            return await fetched(self.driver, statement, tuple(params), self._address)
        sql, values = compiled(statement, dict(params))
        return await prepared(self.driver, sql, values, self._address)

    def end(self) -> None:
        """Called when the function has returned."""
        self._driver = None


def compiled(statement: Executable, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A Core statement as PostgreSQL text and the values in their order."""
    made = statement.compile(  # type: ignore[attr-defined]
        dialect=_DIALECT, compile_kwargs={"render_postcompile": True}
    )
    values = made.construct_params(params)
    process = made._bind_processors  # noqa: SLF001 - the public way needs an engine
    names = made.positiontup or []
    return str(made), [
        process[name](values[name]) if name in process else values[name] for name in names
    ]


async def fetched(driver: Driver, sql: str, params: Sequence[Any], address: str) -> QueryResult:
    """A statement with ``?`` placeholders; rows, or how many rows it touched."""
    return await prepared(driver, numbered(sql), params, address)


async def prepared(driver: Driver, sql: str, params: Sequence[Any], address: str) -> QueryResult:
    """The same with ``$1`` placeholders; asyncpg keeps the prepared statement."""
    try:
        # What Connection.fetch does inside, but with the command tag: it says how many rows.
        rows, tag, _ = await driver._execute(  # noqa: SLF001
            sql, params, 0, None, return_status=True
        )
    except FOREIGN as error:
        raise translated(error, address) from error
    if rows:
        return QueryResult(rows=[dict(row) for row in rows], row_count=len(rows))
    return QueryResult(row_count=_touched(tag))


def _touched(tag: bytes | str | None) -> int:
    """``UPDATE 3`` → 3, ``CREATE TABLE`` → 0."""
    text = tag.decode() if isinstance(tag, bytes) else tag or ""
    last = text.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
