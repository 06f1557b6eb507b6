"""What can go wrong with a database, one class per cure."""

from __future__ import annotations

from typing import cast

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.data.sql.database import DatabaseError, UniqueViolationError

__all__ = [
    "CommitUncertainError",
    "ConstraintViolationError",
    "DatabaseAccessError",
    "DatabaseError",
    "DatabaseFileLostError",
    "DatabaseLockedError",
    "DatabaseOutdatedError",
    "DatabaseTooNewError",
    "DatabaseTooOldError",
    "DatabaseUnavailableError",
    "DatabaseUrlError",
    "DiskFullError",
    "DriverMissingError",
    "MigrationError",
    "MigrationSetupError",
    "SerializationConflictError",
    "StatementTimeoutError",
    "TransactionScopeError",
    "TransactionTimeoutError",
    "UniqueViolationError",
    "is_file_lost",
    "is_transient",
]


class TransactionScopeError(DatabaseError):
    """A transaction was used by another task, after its end, or would have to wait for itself."""

    code = "LEX_ERR_DB_102"
    is_retryable = False


class TransactionTimeoutError(DatabaseError, TimeoutError):
    """The transaction was open for longer than ``max_transaction`` and was rolled back."""

    code = "LEX_ERR_DB_103"


class StatementTimeoutError(DatabaseError, TimeoutError):
    """A statement ran for longer than ``statement_timeout`` and was stopped."""

    code = "LEX_ERR_DB_104"


class DatabaseUnavailableError(DatabaseError):
    """The server cannot be reached, or the connection was lost before anything was committed."""

    code = "LEX_ERR_DB_105"


class DatabaseLockedError(DatabaseError):
    """Another process kept the database file locked for longer than ``busy_timeout``."""

    code = "LEX_ERR_DB_106"


class DatabaseAccessError(DatabaseError):
    """The database refused: a wrong password or name, or a file or folder without permission."""

    code = "LEX_ERR_DB_107"


class DiskFullError(DatabaseError):
    """There is no room left for the database; nothing was written."""

    code = "LEX_ERR_DB_108"


class DriverMissingError(ConfigurationError):
    """The package that talks to this kind of database is not installed."""

    code = "LEX_ERR_DB_109"


class SerializationConflictError(DatabaseError):
    """Two transactions could not both succeed; this one was rolled back and may be repeated."""

    code = "LEX_ERR_DB_110"


class DatabaseUrlError(ConfigurationError):
    """The address of the database is not one."""

    code = "LEX_ERR_DB_111"


class ConstraintViolationError(DatabaseError):
    """A row breaks a rule of its table (foreign key, NOT NULL, CHECK); nothing was written."""

    code = "LEX_ERR_DB_112"


class CommitUncertainError(DatabaseError):
    """The connection was lost while the server committed: nobody knows whether it happened."""

    code = "LEX_ERR_DB_113"


class DatabaseFileLostError(DatabaseError):
    """The file of an open SQLite database was deleted, replaced or cannot be reached any more."""

    code = "LEX_ERR_DB_114"


class MigrationError(DatabaseError):
    """A migration failed; all migrations of this run were rolled back."""

    code = "LEX_ERR_DB_120"


class MigrationSetupError(ConfigurationError):
    """An installed distribution offers migrations that cannot be used."""

    code = "LEX_ERR_DB_121"


class DatabaseTooNewError(DatabaseError):
    """The database has a revision that this installation does not know."""

    code = "LEX_ERR_DB_122"


class DatabaseOutdatedError(DatabaseError):
    """Migrations are pending, and nobody said that they may be run at the start."""

    code = "LEX_ERR_DB_123"


class DatabaseTooOldError(DatabaseError):
    """The database has a revision from before the migrations of this installation."""

    code = "LEX_ERR_DB_124"


_TRANSIENT = (DatabaseUnavailableError, DatabaseLockedError, SerializationConflictError)


def is_transient(error: BaseException) -> bool:
    """True when nothing was committed and the same work may well succeed a moment later."""
    return isinstance(error, _TRANSIENT)


def is_file_lost(error: BaseException) -> bool:
    """True when the error, or what caused it, is a DatabaseFileLostError: trying again is useless.

    Of a group, one is enough: tasks side by side lose the file at the same moment.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(is_file_lost, group.exceptions))
    if isinstance(error, DatabaseFileLostError) or error.__cause__ is None:
        return isinstance(error, DatabaseFileLostError)
    return is_file_lost(error.__cause__)
