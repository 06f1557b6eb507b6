"""Bring the tables of a database to the newest revision, back, or say where they are."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from sqlalchemy import Connection

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.database import Database
from lexigram.sql.errors import MigrationSetupError
from lexigram.sql.migrate import fresh
from lexigram.sql.migrate.installed import chosen, in_order, installed_migrations, with_files
from lexigram.sql.migrate.record import Migrations
from lexigram.sql.migrate.versions import Status, compared, refuse_newer, refuse_outdated, versions
from lexigram.sql.placeholders import numbered
from lexigram.sql.statements import MIGRATION_LOCK
from lexigram.sql.steps import walked
from lexigram.sql.url import Dialect, is_in_memory, parsed

if TYPE_CHECKING:
    from lexigram.sql.migrate.scripts import Migration, Scripts, Told

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
    tell: Told | None = None,
) -> list[Migration]:
    """Run every pending migration; what was run, in order.

    All of them are one transaction: if one fails, the database is as it was. Processes that
    start at once do it one after the other, and all but the first find nothing left to do.
    ``only`` names one distribution, which is upgraded together with those it requires;
    ``migrations`` stands for the installed ones; ``tell`` is called after each migration, on
    SQLite in the writer's thread. Raises MigrationError, MigrationSetupError and
    DatabaseTooNewError.
    """
    wanted = chosen(await _ordered(migrations), only)
    if is_in_memory(parsed(database.config.url)) and fresh.has_metadata(wanted):
        database.refuse_inside_transaction("changing tables")
        if await database.run_steps(lambda: fresh.create_all(wanted)):
            return []
    states = await _states(database, wanted)
    refuse_newer(states, database.address)
    if not any(state.pending for state in states):
        return []

    def work(connection: Connection, scripts: Sequence[Scripts], told: Told) -> None:
        for item in scripts:
            item.upgrade(connection, told)

    return await _restructured(database, wanted, work, tell)


async def downgrade(
    database: Database,
    target: str,
    *,
    only: str,
    migrations: Sequence[Migrations] | None = None,
    tell: Told | None = None,
) -> list[Migration]:
    """Undo the migrations of one distribution that came after ``target``; what was undone.

    ``target`` is a revision, or ``base`` for none at all: the tables and their rows are gone
    then. One transaction, like ``upgrade``.
    """
    ordered = await _ordered(migrations)
    record = next(item for item in chosen(ordered, only) if item.distribution == only)
    if target != "base":
        _demand_revision(record, target)

    def work(connection: Connection, scripts: Sequence[Scripts], told: Told) -> None:
        for item in scripts:
            item.downgrade(connection, target, told)

    return await _restructured(database, (record,), work, tell)


async def status(
    database: Database, *, migrations: Sequence[Migrations] | None = None
) -> tuple[Status, ...]:
    """Where each distribution is, those that are not installed any more too. Changes nothing."""
    return await _states(database, await _ordered(migrations))


async def check(database: Database, *, migrations: Sequence[Migrations] | None = None) -> None:
    """Raise DatabaseOutdatedError or DatabaseTooNewError when the tables do not fit the code."""
    states = await status(database, migrations=migrations)
    refuse_newer(states, database.address)
    refuse_outdated(states, database.address)


async def history(
    *, only: str | None = None, migrations: Sequence[Migrations] | None = None
) -> list[Migration]:
    """Every migration in the order in which an empty database gets them."""
    wanted = chosen(await _ordered(migrations), only)
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
    wanted = chosen(await _ordered(migrations), only)
    if only is not None:
        wanted = tuple(item for item in wanted if item.distribution == only)
    if start is not None:
        for item in wanted:
            _demand_revision(item, start)
    async with _one_at_a_time():
        scripts = await _scripts(wanted)
        parts = [await anyio.to_thread.run_sync(item.sql, dialect, start) for item in scripts]
    before, after = SCRIPT_FRAME[dialect]
    return "\n\n".join([before, *filter(None, parts), after])


async def _ordered(migrations: Sequence[Migrations] | None) -> tuple[Migrations, ...]:
    if migrations is None and installed_migrations.cache_info().currsize:
        return installed_migrations()

    def found() -> tuple[Migrations, ...]:
        return installed_migrations() if migrations is None else with_files(in_order(migrations))

    return await anyio.to_thread.run_sync(found)


async def _states(database: Database, wanted: Sequence[Migrations]) -> tuple[Status, ...]:
    return compared(wanted, await database.run_steps(lambda: versions(database.dialect)))


async def _restructured(
    database: Database,
    wanted: Sequence[Migrations],
    work: Callable[[Connection, Sequence[Scripts], Told], None],
    tell: Told | None,
) -> list[Migration]:
    scripts = await _scripts(wanted)
    applied: list[Migration] = []

    def told(item: Migration) -> None:
        applied.append(item)
        if tell is not None:
            tell(item)

    def change(connection: Connection) -> None:
        # Again, under the lock: another process may have been here in between.
        found = walked(partial(_answer, connection), versions(database.dialect))
        refuse_newer(compared(wanted, found), database.address)
        work(connection, scripts, told)

    async with _one_at_a_time():
        await database.restructure(change)
    return applied


def _answer(connection: Connection, sql: str, params: Sequence[Any]) -> QueryResult:
    sql = sql if connection.dialect.name == "sqlite" else numbered(sql)
    found = connection.exec_driver_sql(sql, tuple(params))
    return QueryResult(rows=[dict(row) for row in found.mappings()])


def _demand_revision(record: Migrations, revision: str) -> None:
    if revision not in record.files:
        raise MigrationSetupError(
            f"{record.distribution} has no revision {revision!r}",
            hint=f"there are: {', '.join(['base', *record.files])}",
        )


async def _scripts(wanted: Sequence[Migrations]) -> list[Scripts]:
    def loaded() -> list[Scripts]:
        from lexigram.sql.migrate.scripts import Scripts  # and with it alembic

        return [Scripts.load(item) for item in wanted]

    return await anyio.to_thread.run_sync(loaded)


@asynccontextmanager
async def _one_at_a_time() -> AsyncIterator[None]:
    while not _alembic.acquire(blocking=False):  # noqa: ASYNC110 - held by other threads too
        await anyio.sleep(_ALEMBIC_PAUSE)
    try:
        yield
    finally:
        _alembic.release()
