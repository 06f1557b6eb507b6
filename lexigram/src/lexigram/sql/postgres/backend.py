"""PostgreSQL behind ``Database``: one pool, single statements without BEGIN and COMMIT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import (
    CommitUncertainError,
    DatabaseUnavailableError,
    DriverMissingError,
    TransactionTimeoutError,
)
from lexigram.sql.subscriptions import Subscription
from lexigram.sql.url import parsed, shown

if TYPE_CHECKING:
    import asyncpg  # type: ignore[import-untyped]

try:
    from asyncpg import InterfaceError, create_pool

    from lexigram.sql.postgres.connection import Driver, PostgresConnection, fetched
    from lexigram.sql.postgres.errors import FOREIGN, is_connection_loss, translated
    from lexigram.sql.postgres.listener import Listener
except ModuleNotFoundError as missing:
    if missing.name != "asyncpg":
        raise
    raise DriverMissingError(
        "PostgreSQL needs the package asyncpg, which is not installed",
        hint='pip install "lexigram[postgres]"',
    ) from missing

_CLOSING = 5.0  # seconds for statements that still run when the database is closed
_GRACE = 2.0  # seconds between the server's own limit for a statement and ours


class PostgresBackend:
    """A pool whose connections are given back clean: our own ROLLBACK ended what was open."""

    def __init__(self, config: SqlConfig) -> None:
        self._config = config
        url = parsed(config.url)
        self.address = shown(url)
        self.resource = f"postgresql {id(self)}"  # two pools never wait for each other's writer
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._pool: asyncpg.Pool | None = None
        self.sessions: set[PostgresSession] = set()
        self._listener = Listener(self._dsn, config.connect_timeout)

    async def connect(self) -> None:
        """Make the pool and its first connection."""
        if self._pool is not None:
            return
        pool = self._made_pool()
        try:
            await pool
        except FOREIGN as error:
            pool.terminate()
            raise self._unreachable(error) from error
        except ValueError as error:
            raise translated(error, self.address) from error
        self._pool = pool

    async def close(self) -> None:
        """Close the listener and all connections, those in use too."""
        await self._listener.close()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for session in list(self.sessions):
            session.cut()  # the pool waits for them, and they may wait for ever
        with anyio.move_on_after(_CLOSING):
            await pool.close()
            return
        pool.terminate()

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement: no BEGIN, no COMMIT, straight to the driver."""
        async with self._connection() as driver:
            return await fetched(driver, sql, params, self.address)

    query = execute

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

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        """One read-only snapshot."""
        session = self.session("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await session.begin()
        try:
            return await session.run(fn)
        finally:
            with anyio.CancelScope(shield=True):
                await session.rollback()

    def session(self, begin: str = "BEGIN") -> PostgresSession:
        """A transaction, not begun yet."""
        return PostgresSession(self, self._config, begin)

    def listen(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        """Told of every NOTIFY on the channel."""
        return self._listener.listen(channel)

    async def notify(self, channel: str, payload: str) -> None:
        """Wake listeners of all processes."""
        await self.execute("SELECT pg_notify(?, ?)", (channel, payload))

    async def taken(self) -> tuple[asyncpg.Pool, Driver]:
        """A live connection of the pool; the pool itself replaces those a restart left dead."""
        pool = self._opened
        try:
            return pool, await pool.acquire(timeout=self._config.connect_timeout)
        except FOREIGN as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Driver]:
        pool, driver = await self.taken()
        try:
            yield driver
        finally:
            await pool.release(driver)

    @property
    def _opened(self) -> asyncpg.Pool:
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
        return translated(error, self.address)

    def _made_pool(self) -> asyncpg.Pool:
        config = self._config
        return create_pool(
            self._dsn,
            min_size=1,
            max_size=config.pool_size,
            timeout=config.connect_timeout,
            command_timeout=config.statement_timeout + _GRACE,
            reset=_nothing,
            server_settings={
                "statement_timeout": str(max(1, int(config.statement_timeout * 1000))),
                "default_transaction_isolation": config.isolation.value,
                "application_name": "lexigram",
            },
        )


class PostgresSession:
    """One connection of the pool, for one transaction."""

    def __init__(self, backend: PostgresBackend, config: SqlConfig, begin: str) -> None:
        self._backend = backend
        self._config = config
        self._begin = begin
        self._pool: asyncpg.Pool | None = None
        self._driver: Driver | None = None
        # Time of the event loop at which the transaction must be over, and who sees to it.
        self._deadline = 0.0
        self._limit: asyncio.TimerHandle | None = None
        self._busy = False
        self._expired = False

    async def begin(self) -> None:
        """Take a connection and BEGIN."""
        self._pool, driver = await self._backend.taken()
        self._driver = driver
        self._backend.sessions.add(self)
        try:
            await driver.execute(self._begin)
        except FOREIGN as error:
            await self._quietly_rolled_back()
            raise translated(error, self._backend.address) from error
        except BaseException:
            await self._quietly_rolled_back()
            raise
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._config.max_transaction
        self._limit = loop.call_at(self._deadline, self._expire)

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement in the transaction."""
        driver = self._held()
        with self._translation():
            async with asyncio.timeout_at(self._deadline):
                return await fetched(driver, sql, params, self._backend.address)

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """An async function with the connection; errors of the driver become ours."""
        connection = PostgresConnection(self._held(), self._backend.address)
        try:
            with self._translation():
                async with asyncio.timeout_at(self._deadline):
                    return await _awaitable(fn(connection))
        finally:
            connection.end()

    async def commit(self) -> None:
        """COMMIT; a connection lost here leaves the outcome unknown, and the error says so."""
        driver, answer = self._held(), ""
        try:
            # A cancellation waits for the answer of COMMIT, so that the outcome is known.
            with anyio.CancelScope(shield=True):
                answer = await driver.execute("COMMIT")
        except FOREIGN as error:
            if not is_connection_loss(error) and not isinstance(error, TimeoutError):
                raise translated(error, self._backend.address) from error
            raise CommitUncertainError(
                "the connection was lost during COMMIT; it may or may not have happened",
                hint="look whether the change is there before doing it again",
            ) from error
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

    def _held(self) -> Driver:
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
            raise translated(error, self._backend.address) from error
        finally:
            self._busy = False

    def _expire(self) -> None:
        self._expired = True
        if not self._busy:  # else the statement's own limit stops it, at the server too
            self.cut()

    def cut(self) -> None:
        """The server rolls back and lets go of all locks."""
        if self._driver is not None:
            with suppress(InterfaceError):  # cut before: the pool has taken it back
                self._driver.terminate()

    async def _give_back(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._backend.sessions.discard(self)
        driver, self._driver = self._driver, None
        if driver is not None and self._pool is not None:
            await self._pool.release(driver)


async def _awaitable(work: Any) -> Any:
    if isawaitable(work):
        return await work
    raise DatabaseError(
        "on PostgreSQL the function given to run() is async",
        hint="write `async def fn(connection)`, or use run_steps() for both databases",
    )


async def _nothing(_: Driver) -> None:
    """The pool's own reset is a round trip; transactions here always end with COMMIT or ROLLBACK."""
