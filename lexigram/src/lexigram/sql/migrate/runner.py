"""Bring the tables of a database to the newest revision, back, or say where they are."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.database import Database
from lexigram.sql.errors import MigrationSetupError
from lexigram.sql.migrate.installed import in_order, installed_migrations, select, with_files
from lexigram.sql.migrate.record import Migrations
from lexigram.sql.migrate.versions import (
    Status,
    compare,
    refuse_outdated,
    refuse_unknown,
    versions,
)
from lexigram.sql.placeholders import number_placeholders
from lexigram.sql.statements import MIGRATION_LOCK
from lexigram.sql.steps import run_steps_sync
from lexigram.sql.url import Dialect, is_in_memory, parse_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lexigram.sql.migrate.scripts import Migration, OnMigration, Scripts

# alembic's `op` is one object for the whole process: one migration at a time, whatever thread.
_alembic = threading.Lock()
_ALEMBIC_PAUSE = 0.01  # seconds

# What Database.restructure does around its function, for who runs a script by hand.
SCRIPT_FRAME: Mapping[Dialect, tuple[str, str]] = {
    "sqlite": ("PRAGMA foreign_keys = OFF;\n\nBEGIN IMMEDIATE;", "COMMIT;"),
    "postgresql": (f"BEGIN;\n\n{MIGRATION_LOCK};", "COMMIT;"),
}


async def upgrade(
    database: Database,
    *,
    only: str | None = None,
    migrations: Sequence[Migrations] | None = None,
    tell: OnMigration | None = None,
) -> list[Migration]:
    """Run every pending migration; what was run, in order.

    All of them are one transaction: if one fails, the database is as it was. Processes that
    start at once do it one after the other, and all but the first find nothing left to do.
    ``only`` names one distribution, which is upgraded together with those it requires;
    ``migrations`` stands for the installed ones; ``tell`` is called after each migration, on
    SQLite in the writer's thread. Raises MigrationError, MigrationSetupError,
    DatabaseTooNewError and DatabaseTooOldError.
    """
    wanted = select(await _order_migrations(migrations), only)
    if is_in_memory(parse_url(database.config.url)):
        from lexigram.sql.migrate import fresh  # and with it SQLAlchemy, which is an extra

        database.refuse_inside_transaction("changing tables")
        if fresh.has_metadata(wanted) and await database.run_steps(
            lambda: fresh.create_all(wanted)
        ):
            return []
    states = await _states(database, wanted)
    refuse_unknown(states, database.address)
    if not any(state.pending for state in states):
        return []

    def work(scripts: Scripts, connection: Connection, on_migration: OnMigration) -> None:
        scripts.upgrade(connection, on_migration)

    return await _apply(database, wanted, work, tell)


async def downgrade(
    database: Database,
    target: str,
    *,
    only: str,
    migrations: Sequence[Migrations] | None = None,
    tell: OnMigration | None = None,
) -> list[Migration]:
    """Undo the migrations of one distribution that came after ``target``; what was undone.

    ``target`` is a revision, or ``base`` for none at all: the tables and their rows are gone
    then. One transaction, like ``upgrade``.
    """
    ordered = await _order_migrations(migrations)
    record = next(item for item in select(ordered, only) if item.distribution == only)
    if target != "base":
        _demand_revision(record, target)

    states = await _states(database, (record,))
    if states[0].current in record.bridges:  # goes in 1.1
        refuse_outdated(states, database.address)

    def work(scripts: Scripts, connection: Connection, on_migration: OnMigration) -> None:
        scripts.downgrade(connection, target, on_migration)

    return await _apply(database, (record,), work, tell)


async def status(
    database: Database, *, migrations: Sequence[Migrations] | None = None
) -> tuple[Status, ...]:
    """Where each distribution is, those that are not installed any more too. Changes nothing."""
    return await _states(database, await _order_migrations(migrations))


async def check(database: Database, *, migrations: Sequence[Migrations] | None = None) -> None:
    """Raise DatabaseOutdatedError, -TooNewError or -TooOldError when the tables do not fit."""
    states = await status(database, migrations=migrations)
    refuse_unknown(states, database.address)
    refuse_outdated(states, database.address)


async def history(
    *, only: str | None = None, migrations: Sequence[Migrations] | None = None
) -> list[Migration]:
    """Every migration in the order in which an empty database gets them."""
    wanted = select(await _order_migrations(migrations), only)
    return [item for scripts in await _scripts(wanted) for item in scripts.all()]


async def upgrade_sql(
    dialect: Dialect,
    *,
    only: str | None = None,
    start: str | None = None,
    migrations: Sequence[Migrations] | None = None,
) -> str:
    """The same as ``upgrade`` does, as a script; no database is asked.

    ``only`` leaves out what that distribution requires, and ``start`` is the revision of it that
    the database has already.
    """
    wanted = select(await _order_migrations(migrations), only)
    if only is not None:
        wanted = tuple(item for item in wanted if item.distribution == only)
    if start is not None:
        for item in wanted:
            _demand_revision(item, start, *item.bridges)
    async with _one_at_a_time():
        scripts = await _scripts(wanted, start)
        parts = [await anyio.to_thread.run_sync(item.sql, dialect, start) for item in scripts]
    before, after = SCRIPT_FRAME[dialect]
    return "\n\n".join([before, *filter(None, parts), after])


async def _order_migrations(migrations: Sequence[Migrations] | None) -> tuple[Migrations, ...]:
    if migrations is None and installed_migrations.cache_info().currsize:
        return installed_migrations()

    def find() -> tuple[Migrations, ...]:
        return installed_migrations() if migrations is None else with_files(in_order(migrations))

    return await anyio.to_thread.run_sync(find)


async def _states(database: Database, wanted: Sequence[Migrations]) -> tuple[Status, ...]:
    return compare(wanted, await database.run_steps(lambda: versions(database.dialect)))


async def _apply(
    database: Database,
    wanted: Sequence[Migrations],
    work: Callable[[Scripts, Connection, OnMigration], None],
    tell: OnMigration | None,
) -> list[Migration]:
    origins = {None, *(origin for item in wanted for origin in item.bridges)}
    scripts = {origin: await _scripts(wanted, origin) for origin in origins}
    applied: list[Migration] = []

    def on_migration(item: Migration) -> None:
        applied.append(item)
        if tell is not None:
            tell(item)

    def change(connection: Connection) -> None:
        # Again, under the lock: another process may have been here in between.
        found = run_steps_sync(partial(_answer, connection), versions(database.dialect))
        refuse_unknown(compare(wanted, found), database.address)
        for number, item in enumerate(wanted):
            current = found.get(item.version_table)
            work(
                scripts[current if current in item.bridges else None][number],
                connection,
                on_migration,
            )

    async with _one_at_a_time():
        await database.restructure(change)
    return applied


def _answer(connection: Connection, sql: str, params: Sequence[Any]) -> QueryResult:
    sql = sql if connection.dialect.name == "sqlite" else number_placeholders(sql)
    found = connection.exec_driver_sql(sql, tuple(params))
    return QueryResult(rows=[dict(row) for row in found.mappings()])


def _demand_revision(record: Migrations, revision: str, *origins: str) -> None:
    known = [*origins, *record.files]
    if revision not in known:
        raise MigrationSetupError(
            f"{record.distribution} has no revision {revision!r}",
            hint=f"there are: {', '.join(['base', *known])}",
        )


async def _scripts(wanted: Sequence[Migrations], origin: str | None = None) -> list[Scripts]:
    def load() -> list[Scripts]:
        from lexigram.sql.migrate.scripts import Scripts  # and with it alembic

        return [Scripts.load(item, origin) for item in wanted]

    return await anyio.to_thread.run_sync(load)


@asynccontextmanager
async def _one_at_a_time() -> AsyncIterator[None]:
    while not _alembic.acquire(blocking=False):  # noqa: ASYNC110 - held by other threads too
        await anyio.sleep(_ALEMBIC_PAUSE)
    try:
        yield
    finally:
        _alembic.release()
