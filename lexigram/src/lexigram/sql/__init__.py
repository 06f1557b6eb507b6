"""SQLite and PostgreSQL with two doors: ``db.run(fn)`` and ``async with db.transaction()``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.leasing.subscriptions import Subscription
    from lexigram.sql.config import Isolation, Migrate, SqlConfig, Synchronous
    from lexigram.sql.database import Database, Transaction
    from lexigram.sql.di.provider import SqlProvider
    from lexigram.sql.errors import (
        CommitUncertainError,
        ConstraintViolationError,
        DatabaseAccessError,
        DatabaseError,
        DatabaseFileLostError,
        DatabaseLockedError,
        DatabaseOutdatedError,
        DatabaseTooNewError,
        DatabaseTooOldError,
        DatabaseUnavailableError,
        DatabaseUrlError,
        DiskFullError,
        DriverMissingError,
        MigrationError,
        MigrationSetupError,
        SerializationConflictError,
        StatementTimeoutError,
        TransactionScopeError,
        TransactionTimeoutError,
        UniqueViolationError,
        is_file_lost,
        is_transient,
    )
    from lexigram.sql.module import SqlModule
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.sql.config": ["Isolation", "Migrate", "SqlConfig", "Synchronous"],
            "lexigram.sql.database": ["Database", "Transaction"],
            "lexigram.sql.di.provider": ["SqlProvider"],
            "lexigram.sql.errors": [
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
            ],
            "lexigram.sql.module": ["SqlModule"],
            "lexigram.leasing.subscriptions": ["Subscription"],
        },
    )

__all__ = [
    "CommitUncertainError",
    "ConstraintViolationError",
    "Database",
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
    "Isolation",
    "Migrate",
    "MigrationError",
    "MigrationSetupError",
    "SerializationConflictError",
    "SqlConfig",
    "SqlModule",
    "SqlProvider",
    "StatementTimeoutError",
    "Subscription",
    "Synchronous",
    "Transaction",
    "TransactionScopeError",
    "TransactionTimeoutError",
    "UniqueViolationError",
    "is_file_lost",
    "is_transient",
]
