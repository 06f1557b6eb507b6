"""What an async function gets from ``db.run`` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnDefault, Executable
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.sql.compiler import Compiled, ExpandedState, SQLCompiler

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.sql.errors import TransactionScopeError
from lexigram.sql.placeholders import number_placeholders
from lexigram.sql.postgres.errors import FOREIGN, translate
from lexigram.sql.steps import Many

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
        if isinstance(statement, str) and isinstance(params, Many):
            return await execute_many(self.driver, statement, params, self._address)
        if isinstance(statement, str):
            return await fetch(self.driver, statement, tuple(params), self._address)
        if not isinstance(params, Mapping) and params:
            raise DatabaseError(
                "a SQLAlchemy statement takes one set of parameters, by name",
                hint='write execute(statement, {"name": value})',
            )
        sql, values = compile_statement(statement, dict(params))
        return await fetch_prepared(self.driver, sql, values, self._address)

    def end(self) -> None:
        """Called when the function has returned."""
        self._driver = None


def compile_statement(statement: Executable, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A Core statement as PostgreSQL text and the values in their order."""
    columns = {"column_keys": list(params)} if params else {}  # those an INSERT is to name
    made: Compiled = statement.compile(dialect=_DIALECT, **columns)  # type: ignore[attr-defined]
    if not isinstance(made, SQLCompiler):  # CREATE TABLE and the like: no values
        return str(made), []
    state = made.construct_expanded_state({**_defaults(made), **params})
    return state.statement, [_bind(made, state, name) for name in state.positiontup or ()]


def _defaults(made: SQLCompiler) -> dict[str, Any]:
    """Values of columns whose default is made by Python; nobody else would ask for them here."""
    wanted = [(column, column.default) for column in made.insert_prefetch]
    wanted += [(column, column.onupdate) for column in made.update_prefetch]
    return {
        column.key: default.arg(None) if default.is_callable else default.arg
        for column, default in wanted
        if isinstance(default, ColumnDefault)
    }


def _bind(made: SQLCompiler, state: ExpandedState, name: str) -> Any:
    """A value as its column type hands it to the driver."""
    value, process = state.parameters[name], state.processors.get(name)
    if process is None and name in made.binds:
        process = made.binds[name].type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
    return value if process is None else process(value)


async def fetch(driver: Driver, sql: str, params: Sequence[Any], address: str) -> QueryResult:
    """A statement with ``?`` placeholders; rows, or how many rows it touched."""
    return await fetch_prepared(driver, number_placeholders(sql), params, address)


async def execute_many(driver: Driver, sql: str, many: Many, address: str) -> QueryResult:
    """The statement for each item, in one round trip."""
    try:
        await driver.executemany(number_placeholders(sql), many)
    except FOREIGN as error:
        raise translate(error, address) from error
    return QueryResult(row_count=len(many))


async def fetch_prepared(
    driver: Driver, sql: str, params: Sequence[Any], address: str
) -> QueryResult:
    """The same with ``$1`` placeholders; asyncpg keeps the prepared statement."""
    try:
        # What Connection.fetch does inside, but with the command tag, which says how many rows
        # were touched. In public, fetch() drops the tag and execute() the rows; a prepared
        # statement has both, but leaves it to us to prepare again after a change of the schema.
        rows, tag, _ = await driver._execute(  # noqa: SLF001
            sql, params, 0, None, return_status=True
        )
    except FOREIGN as error:
        raise translate(error, address) from error
    if rows:
        return QueryResult(rows=[dict(row) for row in rows], row_count=len(rows))
    return QueryResult(row_count=_row_count(tag))


def _row_count(tag: bytes | str | None) -> int:
    """``UPDATE 3`` → 3, ``CREATE TABLE`` → 0."""
    text = tag.decode() if isinstance(tag, bytes) else tag or ""
    last = text.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
