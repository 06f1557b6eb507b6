"""Registers the database with the container, opens it, closes it and reports on it."""

from __future__ import annotations

from time import perf_counter

import anyio

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.locks import ResourceLockProtocol
from lexigram.contracts.data.sql.database import DatabaseError, DatabaseProviderProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.sql.config import Migrate, SqlConfig
from lexigram.sql.database import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.migrate import check, upgrade


class SqlProvider(Provider):
    """Binds ``Database``, its protocol and its locks; an explicit config wins over ``sql``."""

    name = "sql"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = "sql"
    config_model = SqlConfig

    config: SqlConfig

    def __init__(self, config: SqlConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._database: Database | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the database; it is opened in ``boot``."""
        self._database = database = Database(self.config)
        container.singleton(SqlConfig, self.config)
        container.singleton(Database, database)
        container.singleton(DatabaseProviderProtocol, database)
        locks = SqlResourceLocks(database)
        container.singleton(SqlResourceLocks, locks)
        container.singleton(ResourceLockProtocol, locks)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Open the database; its tables are upgraded or checked, as ``sql.migrate`` says."""
        assert self._database is not None
        await self._database.connect()
        try:
            if _upgrades_itself(self.config, self._database):
                await upgrade(self._database)
            else:
                await check(self._database)
        except BaseException:  # who failed to boot is not shut down
            with anyio.CancelScope(shield=True):
                await self._database.close()
            raise

    async def shutdown(self) -> None:
        """Close the database."""
        if self._database is not None:
            await self._database.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the database answers a query in time."""
        assert self._database is not None
        started = perf_counter()
        problem = f"no answer within {timeout:g} s"
        with anyio.move_on_after(timeout):
            try:
                await self._database.execute_query("SELECT 1")
            except DatabaseError as error:
                problem = error.message
            else:
                problem = ""
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
            message=problem or "the database answers",
            error=problem or None,
            duration_ms=(perf_counter() - started) * 1000,
            details={"database": self._database.address},
        )


def _upgrades_itself(config: SqlConfig, database: Database) -> bool:
    if config.migrate is Migrate.AUTO:
        return database.dialect == "sqlite"
    return config.migrate is Migrate.ALWAYS
