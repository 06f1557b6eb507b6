"""Statements of SQLAlchemy Core as text for asyncpg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnDefault, Executable
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.sql.compiler import Compiled, ExpandedState, SQLCompiler

_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]


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
