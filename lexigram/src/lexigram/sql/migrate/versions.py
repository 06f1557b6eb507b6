"""Which revisions a database has; asked in two statements and without alembic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from lexigram.sql.errors import DatabaseOutdatedError, DatabaseTooNewError, DatabaseTooOldError
from lexigram.sql.migrate.record import VERSION_TABLE_PREFIX, Migrations
from lexigram.sql.steps import Steps
from lexigram.sql.url import Dialect

# Version tables of all distributions, also of those that were removed. No lock.
FIND_TABLES: Mapping[Dialect, str] = {
    "sqlite": "SELECT name FROM sqlite_schema"
    " WHERE type = 'table' AND substr(name, 1, length(?)) = ? ORDER BY name",
    "postgresql": "SELECT relname::text AS name FROM pg_class"
    " WHERE relkind = 'r' AND pg_table_is_visible(oid)"
    " AND substr(relname::text, 1, length(?::text)) = ?::text ORDER BY relname",
}


@frozen(kw_only=True)
class Status:
    """One distribution in one database."""

    distribution: str
    # None: nothing was migrated yet.
    current: str | None
    # None: not installed, or without migrations.
    head: str | None
    installed: bool
    pending: tuple[str, ...] = ()
    # The database has a revision this installation does not know.
    too_new: bool = False
    # The database has a revision before those that this installation has.
    too_old: bool = False

    @property
    def state(self) -> str:
        """For people, in two words at most."""
        if not self.installed:
            return "not installed"
        if self.too_new:
            return "too new"
        if self.too_old:
            return "too old"
        return "outdated" if self.pending else "up to date"


def versions(dialect: Dialect) -> Steps[dict[str, str | None]]:
    """Version table -> revision, of all version tables there are."""
    names = [row["name"] for row in (yield FIND_TABLES[dialect], (VERSION_TABLE_PREFIX,) * 2).rows]
    if not names:
        return {}
    union = " UNION ALL ".join(
        f"SELECT '{name}' AS name, version_num FROM {name}"  # noqa: S608 - from the catalogue
        for name in names
    )
    found = {row["name"]: row["version_num"] for row in (yield union, ()).rows}
    return {name: found.get(name) for name in names}


def compare(
    migrations: Sequence[Migrations], found: Mapping[str, str | None]
) -> tuple[Status, ...]:
    """Installed distributions in their order, then those of which only the table is left."""
    installed = tuple(_status(item, found.get(item.version_table)) for item in migrations)
    tables = {item.version_table for item in migrations}
    return installed + tuple(
        Status(
            distribution=name.removeprefix(VERSION_TABLE_PREFIX).replace("_", "-"),
            current=revision,
            head=None,
            installed=False,
        )
        for name, revision in found.items()
        if name not in tables
    )


def refuse_unknown(states: Sequence[Status], address: str) -> None:
    """Raise DatabaseTooNewError or DatabaseTooOldError for a revision without a way to the head."""
    for item in states:
        if item.too_new or item.too_old:
            details = {
                "distribution": item.distribution,
                "database": item.current,
                "installed": item.head,
            }
            found = f"{address} has revision {item.current} of {item.distribution}"
            if item.too_new:
                raise DatabaseTooNewError(
                    f"{found}, and this installation knows no more than {item.head or 'none'}",
                    details=details,
                    hint=f"install the newer {item.distribution}, or with it:"
                    f" lexigram db downgrade {item.head or 'base'} --only {item.distribution}",
                )
            raise DatabaseTooOldError(
                f"{found}, which is older than the migrations of this installation",
                details=details,
                hint=f"run lexigram db upgrade with the last {item.distribution} that has revision"
                f" {item.current}, then with this one",
            )


def refuse_outdated(states: Sequence[Status], address: str) -> None:
    """Raise DatabaseOutdatedError when migrations are pending."""
    behind = [item for item in states if item.pending]
    if behind:
        raise DatabaseOutdatedError(
            f"{address} lacks tables or columns of "
            + ", ".join(f"{item.distribution} ({', '.join(item.pending)})" for item in behind),
            details={item.distribution: list(item.pending) for item in behind},
            hint="run: lexigram db upgrade",
        )


def _status(item: Migrations, current: str | None) -> Status:
    chain = list(item.chain(current))
    done = chain.index(current) + 1 if current in chain else 0
    is_known = done > 0 or current is None or current in item.bridges
    is_older = not is_known and str(current) < next(iter(chain), "")
    return Status(
        distribution=item.distribution,
        current=current,
        head=item.head,
        installed=True,
        pending=tuple(chain[done:]) if is_known else (),
        too_new=not is_known and not is_older,
        too_old=is_older,
    )
