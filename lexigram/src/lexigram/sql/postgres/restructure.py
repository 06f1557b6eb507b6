"""A plain function with a SQLAlchemy connection, in one exclusive transaction of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from asyncpg import connect  # type: ignore[import-untyped]
from sqlalchemy import Connection, NullPool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from lexigram.sql.statements import MIGRATION_LOCK

T = TypeVar("T")

_SETTINGS = {
    "application_name": "lexigram migrations",
    "statement_timeout": "0",  # a migration takes as long as it takes, and so does its turn
    # The versions are read after the wait for the lock: they must be those of now.
    "default_transaction_isolation": "read committed",
}


async def restructure(dsn: str, connect_timeout: float, fn: Callable[[Connection], T]) -> T:
    """What ``fn`` returns; asyncpg's own errors come out."""
    made: list[Any] = []

    async def connect_driver() -> Any:
        options: dict[str, Any] = {"timeout": connect_timeout}  # said to be an int, which it is not
        made.append(await connect(dsn, server_settings=_SETTINGS, **options))
        return made[-1]

    def change(connection: Connection) -> T:
        connection.exec_driver_sql(MIGRATION_LOCK)
        return fn(connection)

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=connect_driver, poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(change)
    except DBAPIError as error:
        raise _driver_error(error) from error
    finally:
        await engine.dispose()
        for driver in made:
            driver.terminate()  # nothing when it is closed; a cancelled task leaves it open


def _driver_error(error: DBAPIError) -> BaseException:
    """SQLAlchemy wraps its adapter's error, which was raised from the driver's."""
    return (error.orig.__cause__ if error.orig else None) or error
