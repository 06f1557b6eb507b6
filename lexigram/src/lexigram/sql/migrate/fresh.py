"""A new database in memory gets all tables at once: the same as by migrations, without alembic.

Every test of an application makes one. Importing alembic alone takes longer than the whole start;
a test proves that both ways give the same tables and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import MetaData, create_engine, event

from lexigram.sql.errors import MigrationSetupError
from lexigram.sql.migrate.record import Migrations
from lexigram.sql.steps import Step, Steps

# As alembic writes it.
_VERSION_TABLE = (
    "CREATE TABLE {0} (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT {0}_pkc PRIMARY KEY (version_num))"
)


def has_metadata(migrations: Sequence[Migrations]) -> bool:
    """True when all tables can be made without migrations."""
    return all(item.metadata for item in migrations)


def create_all(migrations: Sequence[Migrations]) -> Steps[bool]:
    """Make all tables in a SQLite database and note the newest revisions.

    False, and nothing is done, when there is any table already: then each migration does its part.
    """
    if (yield "SELECT 1 FROM sqlite_schema LIMIT 1", ()).rows:
        return False
    for step in _statements(tuple(migrations)):  # noqa: UP028 - each answer is sent back
        yield step
    return True


def metadata_of(item: Migrations) -> list[MetaData]:
    """The objects that ``item.metadata`` names."""
    return [_object(item, path) for path in item.metadata]


@cache  # SQLAlchemy takes several times as long to write the statements as SQLite to do them
def _statements(migrations: tuple[Migrations, ...]) -> list[Step]:
    """What SQLAlchemy sends when it makes the tables, seen on a database made for looking."""
    seen: list[Step] = []

    def note(_c: object, _cursor: object, sql: str, params: Any, _x: object, _many: bool) -> None:
        seen.append((sql, params))

    engine = create_engine("sqlite://")
    try:
        event.listen(engine, "before_cursor_execute", note)
        with engine.begin() as connection:
            for item in migrations:
                for metadata in metadata_of(item):
                    metadata.create_all(connection, checkfirst=False)
    finally:
        engine.dispose()
    for item in migrations:
        if item.head is not None:
            seen.append((_VERSION_TABLE.format(item.version_table), ()))
            seen.append((f"INSERT INTO {item.version_table} VALUES (?)", (item.head,)))  # noqa: S608 - a name from code
    return seen


def _object(item: Migrations, path: str) -> MetaData:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise MigrationSetupError(
            f"{path!r}, named as metadata by {item.distribution}, cannot be loaded: {error}",
            hint="write it as module:name",
        ) from error
    if isinstance(found, MetaData):
        return found
    raise MigrationSetupError(
        f"{path!r}, named as metadata by {item.distribution}, is no sqlalchemy.MetaData",
        hint="write it as module:name of a MetaData object",
    )
