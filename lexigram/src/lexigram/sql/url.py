"""The address of a database: checked, and shown without its password."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from lexigram.sql.errors import DatabaseUrlError

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

_FORMS = "sqlite:///folder/app.db, sqlite:// (in memory) or postgresql://user:password@host/name"
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRES = ("postgresql", "postgres", "postgresql+asyncpg")


def parsed(text: str) -> URL:
    """The URL with the driver we use for it. Raises DatabaseUrlError."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password: it is neither shown nor kept.
        raise DatabaseUrlError(
            "the setting sql.url is not a database URL", hint=f"write {_FORMS}"
        ) from (error if isinstance(error, ValueError) else None)
    if url.drivername in _SQLITE:
        return _checked_sqlite(url)
    if url.drivername in _POSTGRES:
        return _checked_postgres(url)
    raise DatabaseUrlError(
        f"sql.url names {url.drivername!r}, which is not a supported database",
        details={"driver": url.drivername},
        hint=f"write {_FORMS}",
    )


def dialect_of(url: URL) -> Dialect:
    """Which of the two databases a parsed URL means."""
    return "sqlite" if url.drivername == "sqlite" else "postgresql"


def shown(url: URL) -> str:
    """The URL for people and logs."""
    return url.render_as_string(hide_password=True)


def is_in_memory(url: URL) -> bool:
    """True for a SQLite URL without a file."""
    return url.drivername == "sqlite" and url.database in (None, "", ":memory:")


def file_of(url: URL) -> Path | None:
    """The file of a SQLite URL; None in memory."""
    if is_in_memory(url):
        return None
    return Path(str(url.database)).absolute()


def _checked_sqlite(url: URL) -> URL:
    if url.host:
        raise DatabaseUrlError(
            f"sql.url has {url.host!r} where a SQLite URL has nothing",
            hint="three slashes for a relative path, four for an absolute one: sqlite:///app.db",
        )
    if url.query:
        raise DatabaseUrlError(
            f"sql.url has options a SQLite URL does not take: {', '.join(sorted(url.query))}",
            hint="pragmas are settings of their own (sql.busy_timeout, sql.synchronous)",
        )
    return url.set(drivername="sqlite")


def _checked_postgres(url: URL) -> URL:
    if not url.database:
        raise DatabaseUrlError(
            "sql.url names no database", hint="end it with /name: postgresql://host/name"
        )
    return url.set(drivername="postgresql+asyncpg")
