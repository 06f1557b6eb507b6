"""The database as a module: ``SqlModule.configure(...)`` once at the root of an application."""

from __future__ import annotations

from lexigram.contracts.data.locks import ResourceLockProtocol
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.di import DynamicModule, Module, module
from lexigram.sql.config import SqlConfig
from lexigram.sql.database import Database
from lexigram.sql.di.provider import SqlProvider
from lexigram.sql.locks import SqlResourceLocks

_EXPORTS = [
    SqlConfig,
    Database,
    DatabaseProviderProtocol,
    SqlResourceLocks,
    ResourceLockProtocol,
]


@module(providers=[SqlProvider], exports=_EXPORTS, is_global=True)
class SqlModule(Module):
    """Binds ``Database``; the bare class reads section ``sql``."""

    @classmethod
    def configure(cls, config: SqlConfig | None = None) -> DynamicModule:
        """The database of an explicit configuration, or of section ``sql`` when None."""
        return DynamicModule(
            module=cls, providers=[SqlProvider(config)], exports=_EXPORTS, is_global=True
        )

    @classmethod
    def stub(cls, config: SqlConfig | None = None) -> DynamicModule:
        """A database for tests: SQLite in memory, no file or variable is read."""
        return cls.configure(SqlConfig(url="sqlite://") if config is None else config)
