"""The one place where PostgreSQL's errors become ours."""

from __future__ import annotations

from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lexigram.contracts.data.sql.database import DatabaseError, UniqueViolationError
from lexigram.sql.errors import (
    ConstraintViolationError,
    DatabaseAccessError,
    DatabaseUnavailableError,
    DiskFullError,
    SerializationConflictError,
    StatementTimeoutError,
)

FOREIGN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
    OSError,
    TimeoutError,
)

_CONFLICTS = {"40001", "40P01"}  # serialization failure, deadlock
_REFUSED = {"28P01", "28000", "3D000", "42501"}  # password, user, database, privilege
_UNREACHABLE = {"57P01", "57P02", "57P03", "53300"}  # shut down, crashed, starting, no slots left


def translate(error: BaseException, address: str) -> DatabaseError:
    """Our error for one of ``FOREIGN``; ``address`` is the URL without its password."""
    error = _root(error)
    state = str(getattr(error, "sqlstate", None) or "")
    facts: dict[str, Any] = {"database": address, "sqlstate": state or None}
    text = str(error) or type(error).__name__
    if state == "23505":
        return UniqueViolationError(f"a row with this key exists already: {text}", details=facts)
    if state.startswith("23"):
        return ConstraintViolationError(text, details=facts)
    if state in _CONFLICTS:
        return SerializationConflictError(text, details=facts, hint="do the transaction again")
    if state in _REFUSED:
        return DatabaseAccessError(
            f"PostgreSQL refuses: {text}",
            details=facts,
            hint="check user, password and database name in sql.url, and their privileges",
        )
    if state == "57014" or isinstance(error, TimeoutError):
        return StatementTimeoutError(
            f"PostgreSQL took too long: {text}",
            details=facts,
            hint="make the statement quicker (an index?), or raise sql.statement_timeout",
        )
    if state == "53100":
        return DiskFullError(text, details=facts, hint="make room on the disk of the server")
    if is_connection_loss(error):
        return DatabaseUnavailableError(
            f"PostgreSQL at {address} cannot be reached: {text}",
            details=facts,
            hint="check host and port in sql.url, and that the server runs",
        )
    return DatabaseError(text, details=facts)


def is_connection_loss(error: BaseException) -> bool:
    """True when the connection is gone or never came about."""
    error = _root(error)
    state = str(getattr(error, "sqlstate", None) or "")
    if state.startswith("08") or state in _UNREACHABLE:
        return True
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return True
    if isinstance(error, asyncpg.InternalClientError):
        return True  # the protocol was cut in the middle of something
    # asyncpg says it in words only: "connection is closed", "…has been released back to the pool"
    text = str(error)
    return isinstance(error, asyncpg.InterfaceError) and ("clos" in text or "released" in text)


def _root(error: BaseException) -> BaseException:
    """SQLAlchemy wraps its adapter's error, which wraps the driver's."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
        return error.__cause__ or error
    return error
