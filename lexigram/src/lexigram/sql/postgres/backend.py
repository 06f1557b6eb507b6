"""PostgreSQL behind ``Database``: one pool, single statements without BEGIN and COMMIT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from inspect import isawaitable
from typing import Any, TypeVar

import anyio
from sqlalchemy import Connection

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.leasing.subscriptions import Subscription
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import (
    CommitUncertainError,
    DatabaseUnavailableError,
    DriverMissingError,
    StatementTimeoutError,
    TransactionScopeError,
    TransactionTimeoutError,
)
from lexigram.sql.steps import Steps, run_steps_async
from lexigram.sql.url import parse_url, show_url

try:
    from asyncpg import connect  # type: ignore[import-untyped]

    from lexigram.sql.postgres.connection import Driver, PostgresConnection, fetch
    from lexigram.sql.postgres.errors import FOREIGN, is_connection_loss, translate
    from lexigram.sql.postgres.listener import Listener
    from lexigram.sql.postgres.pool import Pool
except ModuleNotFoundError as missing:
    if missing.name != "asyncpg":
        raise
    raise DriverMissingError(
        "PostgreSQL needs the package asyncpg, which is not installed",
        hint='pip install "lexigram[postgres]"',
    ) from missing

T = TypeVar("T")

_GRACE = 2.0  # seconds between the server's own limit for a statement and ours


class PostgresBackend:
    """A pool whose connections are given back clean: our own ROLLBACK ended what was open."""

    def __init__(self, config: SqlConfig) -> None:
        self._config = config
        url = parse_url(config.url)
        self.address = show_url(url)
        self.resource = f"postgresql {id(self)}"  # two pools never wait for each other's writer
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._pool: Pool | None = None
        self._listener = Listener(self._dsn, config.connect_timeout)

    async def connect(self) -> None:
        """Make the pool and its first connection."""
        if self._pool is not None:
            return
        pool = Pool(self._connect, self._config.pool_size)
        try:
            pool.release(await pool.acquire(self._config.connect_timeout))
        except FOREIGN as error:
            raise self._unreachable(error) from error
        self._pool = pool

    async def close(self) -> None:
        """Close the listener and all connections, those in use too."""
        await self._listener.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement: no BEGIN, no COMMIT, straight to the driver."""
        pool, driver = await self.acquire_connection()
        try:
            return await self._alone(driver, sql, params)
        except DatabaseError as error:
            if _is_answered(error):
                raise
            raise _uncertain("a statement that commits by itself") from error
        finally:
            pool.release(driver)

    async def query(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """The same for what changes nothing, so a lost answer is a lost connection only."""
        pool, driver = await self.acquire_connection()
        try:
            return await self._alone(driver, sql, params)
        finally:
            pool.release(driver)

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """One transaction around an async function."""
        session = self.session()
        await session.begin()
        try:
            result = await session.run(fn)
            await session.commit()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.rollback()
            raise
        return result

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """One transaction around a generator."""
        result: T = await self.run(lambda connection: run_steps_async(connection, steps()))
        return result

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        """One read-only snapshot."""
        session = self.session("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await session.begin()
        try:
            return await session.run(fn)
        finally:
            with anyio.CancelScope(shield=True):
                await session.rollback()

    async def read_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """One read-only snapshot around a generator."""
        result: T = await self.read(lambda connection: run_steps_async(connection, steps()))
        return result

    async def restructure(self, fn: Callable[[Connection], Any]) -> Any:
        """One transaction of a plain function, on a connection made for it."""
        # SQLAlchemy's engine is needed for this alone.
        from lexigram.sql.postgres.restructure import restructure

        try:
            return await restructure(self._dsn, self._config.connect_timeout, fn)
        except FOREIGN as error:
            raise self._unreachable(error) from error

    def session(self, begin: str = "BEGIN") -> PostgresSession:
        """A transaction, not begun yet."""
        return PostgresSession(self, self._config, begin)

    def listen(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        """A subscription that wakes on every NOTIFY on the channel."""
        return self._listener.listen(channel)

    async def notify(self, channel: str, payload: str) -> None:
        """Wake listeners of all processes."""
        await self.execute("SELECT pg_notify(?, ?)", (channel, payload))

    async def _alone(self, driver: Driver, sql: str, params: Sequence[Any]) -> QueryResult:
        result = await fetch(driver, sql, params, self.address)
        if driver.is_in_transaction():
            raise TransactionScopeError(
                "a statement began a transaction", hint="use `async with db.transaction()`"
            )
        return result

    async def acquire_connection(self) -> tuple[Pool, Driver]:
        """A live connection of the pool; the pool itself replaces those a restart left dead."""
        pool = self._opened
        try:
            return pool, await pool.acquire(self._config.connect_timeout)
        except FOREIGN as error:
            raise self._unreachable(error) from error

    @property
    def _opened(self) -> Pool:
        if self._pool is None:
            raise DatabaseError(
                "the database is not open", hint="use it between connect() and close()"
            )
        return self._pool

    def _unreachable(self, error: BaseException) -> DatabaseError:
        """A time-out here is about reaching the server, not about a statement."""
        if isinstance(error, TimeoutError):
            return DatabaseUnavailableError(
                f"PostgreSQL at {self.address} gave no connection in"
                f" {self._config.connect_timeout:g} s",
                hint="check host and port in sql.url and that the server runs; or the pool is"
                " used up: raise sql.pool_size, keep transactions short",
            )
        return translate(error, self.address)

    async def _connect(self) -> Driver:
        config = self._config
        options: dict[str, Any] = {
            "timeout": config.connect_timeout,
            "command_timeout": config.statement_timeout + _GRACE,
        }
        return await connect(
            self._dsn,
            server_settings={
                "statement_timeout": str(max(1, int(config.statement_timeout * 1000))),
                "default_transaction_isolation": config.isolation.value,
                "application_name": "lexigram",
            },
            **options,
        )


class PostgresSession:
    """One connection of the pool, for one transaction."""

    def __init__(self, backend: PostgresBackend, config: SqlConfig, begin: str) -> None:
        self._backend = backend
        self._config = config
        self._begin = begin
        self._pool: Pool | None = None
        self._driver: Driver | None = None
        # Time of the event loop at which the transaction must be over, and who sees to it.
        self._deadline = 0.0
        self._limit: asyncio.TimerHandle | None = None
        self._busy = False
        self._expired = False

    async def begin(self) -> None:
        """Take a connection and BEGIN."""
        self._pool, driver = await self._backend.acquire_connection()
        self._driver = driver
        try:
            await driver.execute(self._begin)
        except FOREIGN as error:
            await self._quietly_rolled_back()
            raise translate(error, self._backend.address) from error
        except BaseException:
            await self._quietly_rolled_back()
            raise
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._config.max_transaction
        self._limit = loop.call_at(self._deadline, self._expire)

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement in the transaction."""
        driver = self._require_driver()
        with self._translation():
            async with asyncio.timeout_at(self._deadline):
                return await fetch(driver, sql, params, self._backend.address)

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """An async function with the connection; errors of the driver become ours."""
        connection = PostgresConnection(self._require_driver(), self._backend.address)
        try:
            with self._translation():
                async with asyncio.timeout_at(self._deadline):
                    return await _awaitable(fn(connection))
        finally:
            connection.end()

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """A generator, one statement after the other."""
        result: T = await self.run(lambda connection: run_steps_async(connection, steps()))
        return result

    async def commit(self) -> None:
        """COMMIT; a connection lost here leaves the outcome unknown, and the error says so."""
        driver, answer = self._require_driver(), ""
        try:
            # A cancellation waits for the answer of COMMIT, so that the outcome is known.
            with anyio.CancelScope(shield=True):
                answer = await driver.execute("COMMIT")
        except FOREIGN as error:
            if not is_connection_loss(error) and not isinstance(error, TimeoutError):
                raise translate(error, self._backend.address) from error
            raise _uncertain("COMMIT") from error
        await self._give_back()
        if answer == "ROLLBACK":
            raise DatabaseError(
                "the transaction was rolled back by an error in it",
                hint="let the first error end the block",
            )

    async def rollback(self) -> None:
        """ROLLBACK, or cut the connection: both undo everything."""
        try:
            if self._driver is not None and not self._driver.is_closed():
                await self._driver.execute("ROLLBACK")
        except FOREIGN:
            self.cut()
        except BaseException:
            self.cut()
            raise
        finally:
            await self._give_back()

    async def _quietly_rolled_back(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.rollback()

    def _require_driver(self) -> Driver:
        self._check_expiry()
        assert self._driver is not None  # Transaction.check_usable comes before
        return self._driver

    def _check_expiry(self) -> None:
        if self._expired:
            raise TransactionTimeoutError(
                f"the transaction was open for more than {self._config.max_transaction:g} s"
                " and was rolled back",
                hint="do slow things before or after it, or raise sql.max_transaction",
            )

    @contextmanager
    def _translation(self) -> Iterator[None]:
        """Around a statement: its time limit and errors become ours."""
        self._busy = True
        try:
            yield
        except (DatabaseError, *FOREIGN) as error:
            self._check_expiry()
            if isinstance(error, DatabaseError):
                raise
            raise translate(error, self._backend.address) from error
        finally:
            self._busy = False

    def _expire(self) -> None:
        self._expired = True
        if not self._busy:  # else the statement's own limit stops it, at the server too
            self.cut()

    def cut(self) -> None:
        """The server rolls back and lets go of all locks."""
        if self._driver is not None:
            self._driver.terminate()

    async def _give_back(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        driver, self._driver = self._driver, None
        if driver is not None and self._pool is not None:
            self._pool.release(driver)


def _is_answered(error: DatabaseError) -> bool:
    """False when the statement was sent and the server's verdict on it never came."""
    if isinstance(error, StatementTimeoutError):
        return error.details["sqlstate"] is not None  # stopped by the server, else given up by us
    return not isinstance(error, DatabaseUnavailableError)


def _uncertain(moment: str) -> CommitUncertainError:
    return CommitUncertainError(
        f"the connection was lost during {moment}; it may or may not have happened",
        hint="look whether the change is there before doing it again",
    )


async def _awaitable(work: Any) -> Any:
    if isawaitable(work):
        return await work
    raise DatabaseError(
        "on PostgreSQL the function given to run() is async",
        hint="write `async def fn(connection)`, or use run_steps() for both databases",
    )
