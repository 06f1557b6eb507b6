"""What a database consists of, to compare two of them in a test."""

from __future__ import annotations

from typing import Any

from lexigram.observability.errors import MissingLibraryError
from lexigram.sql.database import Database

try:
    from sqlalchemy import Connection, Inspector, inspect
except ImportError as error:
    raise MissingLibraryError("a database", "sql") from error


async def snapshot(database: Database) -> dict[str, Any]:
    """Tables with columns, types, keys, constraints, indexes and rows; views with their text.

    Two databases of one kind are equal when their snapshots are. All rows are read: meant for
    new databases. Nothing is changed.
    """
    return await database.restructure(_describe)


def _describe(connection: Connection) -> dict[str, Any]:
    inspector = inspect(connection)
    tables = {name: _table(connection, inspector, name) for name in inspector.get_table_names()}
    views = {
        name: " ".join((inspector.get_view_definition(name) or "").split())
        for name in inspector.get_view_names()
    }
    return {"tables": tables, "views": views}


def _table(connection: Connection, inspector: Inspector, name: str) -> dict[str, Any]:
    rows = connection.exec_driver_sql(f'SELECT * FROM "{name}"').mappings()  # noqa: S608 - from the catalogue
    return {
        # By name: a column that came by a later migration stands last, and nobody minds.
        "columns": {column["name"]: _plain(column) for column in inspector.get_columns(name)},
        "primary_key": _plain(inspector.get_pk_constraint(name)),
        "foreign_keys": _sort(inspector.get_foreign_keys(name)),
        "unique": _sort(inspector.get_unique_constraints(name)),
        "checks": _sort(inspector.get_check_constraints(name)),
        "indexes": _sort(inspector.get_indexes(name)),
        "rows": sorted(repr(sorted(row.items())) for row in rows),
    }


def _sort(items: list[Any]) -> list[Any]:
    return sorted((_plain(item) for item in items), key=repr)


def _plain(value: Any) -> Any:
    """Types and expressions as their text: they do not compare."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
