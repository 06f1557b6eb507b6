"""The address of a database: checked, and shown without its password."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from lexigram.sql.errors import DatabaseUrlError, DriverMissingError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

_FORMS = "sqlite:///folder/app.db, sqlite:// (in memory) or postgresql://user:password@host/name"
_MAX_PORT = 65535
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRES = ("postgresql", "postgres", "postgresql+asyncpg")


def parse_url(text: str) -> URL:
    """The URL with the driver we use for it. Raises DatabaseUrlError and DriverMissingError."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError as missing:
        raise DriverMissingError(
            f"a database needs the package {missing.name}, which is not installed",
            hint='pip install "lexigram[sql]"',
        ) from missing
    try:
        url = make_url(text)
        _check_text(url)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password: it is neither shown nor kept.
        raise DatabaseUrlError(
            "the setting sql.url is not a database URL", hint=f"write {_FORMS}"
        ) from (error if isinstance(error, ValueError) else None)
    if url.drivername in _SQLITE:
        return _check_sqlite(url)
    if url.drivername in _POSTGRES:
        return _check_postgres(url)
    raise DatabaseUrlError(
        f"sql.url names {url.drivername!r}, which is not a supported database",
        details={"driver": url.drivername},
        hint=f"write {_FORMS}",
    )


def dialect_of(url: URL) -> Dialect:
    """Which of the two databases a parsed URL means."""
    return "sqlite" if url.drivername == "sqlite" else "postgresql"


def show_url(url: URL) -> str:
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


def _check_text(url: URL) -> None:
    """Raise ValueError for what no driver can send or open: surrogates, NUL, endless host names."""
    try:
        text = url.render_as_string(hide_password=False)
        text.encode()
        for host in (url.host or "localhost").split(","):
            host.encode("idna")
    except UnicodeError:  # which quotes the URL, and with it the password
        raise ValueError("the URL holds what is no text, or no name of a host") from None
    if "\0" in text or "%00" in text:
        raise ValueError("the URL holds a NUL character")


def _check_sqlite(url: URL) -> URL:
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
    if not is_in_memory(url) and not Path(str(url.database)).name:
        raise DatabaseUrlError(
            f"sql.url names the folder {url.database!r}, not a file",
            hint="end it with a file name: sqlite:////folder/app.db",
        )
    return url.set(drivername="sqlite")


def _check_postgres(url: URL) -> URL:
    if not url.database:
        raise DatabaseUrlError(
            "sql.url names no database", hint="end it with /name: postgresql://host/name"
        )
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise DatabaseUrlError(
            f"sql.url has the port {url.port}, which does not exist",
            details={"port": url.port},
            hint=f"ports are numbers from 1 to {_MAX_PORT}; PostgreSQL's own is 5432",
        )
    return url.set(drivername="postgresql+asyncpg")
