"""The one place where SQLite's errors become ours."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lexigram.contracts.data.sql.database import DatabaseError, UniqueViolationError
from lexigram.sql.errors import (
    ConstraintViolationError,
    DatabaseAccessError,
    DatabaseLockedError,
    DiskFullError,
)

FOREIGN = (sqlite3.Error, sqlite3.Warning, SQLAlchemyError)

_UNIQUE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
}


def translate(error: BaseException, place: str) -> DatabaseError:
    """Our error for one of ``FOREIGN``; ``place`` is the file, or ``:memory:``."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    code = getattr(error, "sqlite_errorcode", None)
    facts = {"database": place, "sqlite": getattr(error, "sqlite_errorname", None)}
    if code in _UNIQUE:
        return UniqueViolationError(f"a row with this key exists already: {error}", details=facts)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index of the WAL cannot grow: says no more
        code = sqlite3.SQLITE_FULL
    match (code or 0) & 0xFF:  # the upper bits say more than a cure needs
        case sqlite3.SQLITE_CONSTRAINT:
            return ConstraintViolationError(str(error), details=facts)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return DatabaseLockedError(
                f"another process keeps {place} locked",
                details=facts,
                hint="let it finish its transaction, or raise sql.busy_timeout",
            )
        case sqlite3.SQLITE_FULL:
            return DiskFullError(
                f"there is no room left for {place}", details=facts, hint="make room on the disk"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return DatabaseAccessError(
                f"{place} cannot be opened for writing: {error}",
                details=facts,
                hint="SQLite writes beside the file too: the folder must exist and be writable",
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return DatabaseError(
                f"{place} is not a sound SQLite database: {error}",
                details=facts,
                hint="check the path, or restore a backup",
            )
    return DatabaseError(str(error), details=facts)
