"""PostgreSQL behind ``Database``: one pool, single statements without BEGIN and COMMIT."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

import anyio
from sqlalchemy import Connection, Executable

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.leasing.backoff import Backoff
from lexigram.leasing.subscriptions import Subscription, Subscriptions
from lexigram.observability import get_logger
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import (
    CommitUncertainError,
    DatabaseUnavailableError,
    DriverMissingError,
    StatementTimeoutError,
    TransactionScopeError,
    TransactionTimeoutError,
)
from lexigram.sql.placeholders import number_placeholders
from lexigram.sql.steps import Many, Steps
from lexigram.sql.url import parse_url, show_url

try:
    from asyncpg import connect  # type: ignore[import-untyped]

    from lexigram.sql.postgres._compile import compile_statement
    from lexigram.sql.postgres.errors import FOREIGN, is_connection_loss, translate
except ModuleNotFoundError as missing:
    if missing.name != "asyncpg":
        raise
    raise DriverMissingError(
        "PostgreSQL needs the package asyncpg, which is not installed",
        hint='pip install "lexigram[postgres]"',
    ) from missing

logger = get_logger(__name__)

T = TypeVar("T")

# A connection of asyncpg, which has no types to name it by.
Driver: TypeAlias = Any

_GRACE = 2.0  # seconds between the server's own limit for a statement and ours
_RECONNECT = Backoff(first=0.05, cap=1.0)
_CLOSING = 5.0  # seconds for a connection to say goodbye


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
        result: T = await self.run(lambda connection: connection.run_steps(steps()))
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
        result: T = await self.read(lambda connection: connection.run_steps(steps()))
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
        result = await _fetch(driver, sql, params, self.address)
        if driver.is_in_transaction():
            raise TransactionScopeError(
                "a statement began a transaction", hint="use `async with db.transaction()`"
            )
        return result

    async def acquire_connection(self) -> tuple[Pool, Driver]:
        """A live connection of the pool; the pool itself replaces those a restart left dead."""
        pool = self._pool
        if pool is None:
            raise DatabaseError(
                "the database is not open", hint="use it between connect() and close()"
            )
        try:
            return pool, await pool.acquire(self._config.connect_timeout)
        except FOREIGN as error:
            raise self._unreachable(error) from error

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
                return await _fetch(driver, sql, params, self._backend.address)

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
        result: T = await self.run(lambda connection: connection.run_steps(steps()))
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


class PostgresConnection:
    """One transaction's connection: statements as text with ``?``, or as SQLAlchemy Core."""

    def __init__(self, driver: Driver, address: str) -> None:
        self._driver: Driver | None = driver
        self._address = address

    @property
    def driver(self) -> Driver:
        """The asyncpg connection, for COPY, cursors and the like."""
        if self._driver is None:
            raise TransactionScopeError("the connection was used after its function returned")
        return self._driver

    async def execute(
        self, statement: str | Executable, params: Sequence[Any] | Mapping[str, Any] = ()
    ) -> QueryResult:
        """Positional parameters for text, named ones for SQLAlchemy Core."""
        if isinstance(statement, str) and isinstance(params, Many):
            return await _execute_many(self.driver, statement, params, self._address)
        if isinstance(statement, str):
            return await _fetch(self.driver, statement, tuple(params), self._address)
        if not isinstance(params, Mapping) and params:
            raise DatabaseError(
                "a SQLAlchemy statement takes one set of parameters, by name",
                hint='write execute(statement, {"name": value})',
            )
        sql, values = compile_statement(statement, dict(params))
        return await _fetch_prepared(self.driver, sql, values, self._address)

    async def run_steps(self, steps: Steps[T]) -> T:
        """The statements of a generator, one after the other."""
        answer: QueryResult | None = None
        while True:
            try:
                sql, params = next(steps) if answer is None else steps.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = await self.execute(sql, params)

    def end(self) -> None:
        """Called when the function has returned."""
        self._driver = None


class Pool:
    """At most ``size`` connections; dead ones are replaced when they are asked for."""

    def __init__(self, connect: Callable[[], Awaitable[Driver]], size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Driver] = []
        self._used: set[Driver] = set()
        self._closed = False

    async def acquire(self, timeout: float) -> Driver:
        """A live connection; TimeoutError when all are in use for that long."""
        if self._slots.locked():
            async with asyncio.timeout(timeout):
                await self._slots.acquire()
        else:
            await self._slots.acquire()
        try:
            driver = self._live() or await self._connect()
        except BaseException:
            self._slots.release()
            raise
        self._used.add(driver)
        return driver

    def release(self, driver: Driver) -> None:
        """Take it back; one that is in a transaction still is cut, which rolls back."""
        if driver not in self._used:
            return
        self._used.discard(driver)
        if not driver.is_closed():
            if self._closed or driver.is_in_transaction():
                driver.terminate()
            else:
                self._idle.append(driver)
        self._slots.release()

    async def close(self) -> None:
        """Close idle connections and cut those in use."""
        self._closed = True
        for driver in list(self._used):
            driver.terminate()
        while self._idle:
            driver = self._idle.pop()
            with anyio.move_on_after(_CLOSING):
                await driver.close()
                continue
            driver.terminate()

    def _live(self) -> Driver | None:
        while self._idle:
            driver = self._idle.pop()
            if not driver.is_closed():
                return driver
        return None


class Listener:
    """One connection for all channels of a Database object, opened for the first listener."""

    def __init__(self, dsn: str, connect_timeout: float) -> None:
        self._dsn = dsn
        self._options: dict[str, Any] = {"timeout": connect_timeout}
        self._subscriptions = Subscriptions()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        # Channels the server has confirmed on the connection in use.
        self._heard: set[str] = set()
        self._confirmed = anyio.Event()

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Subscription]:
        """Subscribe; the block starts once the server has confirmed it."""
        with self._subscriptions.open(channel) as subscription:
            self._start()
            self._changed.set()
            while channel not in self._heard:
                await self._confirmed.wait()
            try:
                yield subscription
            finally:
                self._changed.set()

    async def close(self) -> None:
        """Drop the connection; listeners hear nothing any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _start(self) -> None:
        if self._task is None:
            # An empty context: the task must not inherit the transaction of its first listener.
            self._task = asyncio.get_running_loop().create_task(
                self._stay_connected(), name="lexigram-sql-listener", context=contextvars.Context()
            )

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            try:
                connection = await connect(self._dsn, **self._options)
                failures = 0
                await self._serve(connection)
            except FOREIGN as error:
                failures += 1
                logger.warning("listener lost its connection", error=str(error), failures=failures)
            self._heard.clear()
            await asyncio.sleep(_RECONNECT.delay(failures))

    async def _serve(self, connection: Driver) -> None:
        """Until the connection breaks."""
        connection.add_termination_listener(lambda _: self._changed.set())
        try:
            while not connection.is_closed():
                self._changed.clear()
                await self._adjust(connection)
                await self._changed.wait()
        finally:
            connection.terminate()

    async def _adjust(self, connection: Driver) -> None:
        wanted = self._subscriptions.channels
        fresh = wanted - self._heard
        for channel in fresh:
            await connection.add_listener(channel, self._on_notify)
            self._heard.add(channel)
            # Whatever was sent before this moment was missed: let everybody look once.
            self._subscriptions.tell(channel, "")
        for channel in self._heard - wanted:
            await connection.remove_listener(channel, self._on_notify)
            self._heard.discard(channel)
        confirmed, self._confirmed = self._confirmed, anyio.Event()
        confirmed.set()

    def _on_notify(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self._subscriptions.tell(channel, str(payload))


async def _fetch(driver: Driver, sql: str, params: Sequence[Any], address: str) -> QueryResult:
    """A statement with ``?`` placeholders; rows, or how many rows it touched."""
    return await _fetch_prepared(driver, number_placeholders(sql), params, address)


async def _execute_many(driver: Driver, sql: str, many: Many, address: str) -> QueryResult:
    """The statement for each item, in one round trip."""
    try:
        await driver.executemany(number_placeholders(sql), many)
    except FOREIGN as error:
        raise translate(error, address) from error
    return QueryResult(row_count=len(many))


async def _fetch_prepared(
    driver: Driver, sql: str, params: Sequence[Any], address: str
) -> QueryResult:
    """The same with ``$1`` placeholders; asyncpg keeps the prepared statement."""
    try:
        # What Connection.fetch does inside, but with the command tag, which says how many rows
        # were touched. In public, fetch() drops the tag and execute() the rows; a prepared
        # statement has both, but leaves it to us to prepare again after a change of the schema.
        rows, tag, _ = await driver._execute(  # noqa: SLF001
            sql, params, 0, None, return_status=True
        )
    except FOREIGN as error:
        raise translate(error, address) from error
    if rows:
        return QueryResult(rows=[dict(row) for row in rows], row_count=len(rows))
    # ``UPDATE 3`` says 3, ``CREATE TABLE`` nothing.
    text = tag.decode() if isinstance(tag, bytes) else tag or ""
    last = text.rpartition(" ")[2]
    return QueryResult(row_count=int(last) if last.isdigit() else 0)


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
