"""The database of an application: statements, functions and transactions of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

import anyio

from lexigram import clock
from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.leasing.backoff import Backoff
from lexigram.leasing.subscriptions import Subscription
from lexigram.sql import statements
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import TransactionScopeError, is_transient
from lexigram.sql.steps import Steps
from lexigram.sql.url import Dialect, dialect_of, parse_url, show_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lexigram.sql.postgres.backend import PostgresConnection

T = TypeVar("T")

# A restarted server is back within a second or two: 0.05 + 0.1 + 0.2 + … with jitter.
_RETRY = Backoff(first=0.05, cap=1.0)
ROLLBACK_SECONDS = 5.0  # a cancelled task waits this long for its rollback, then it is cut off

# clock_timestamp(), not now(): a transaction may have waited for a lock since it began.
POSTGRES_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now"

# The transactions of a task; its child tasks inherit them, which is how their misuse is noticed.
_open: ContextVar[tuple[Transaction, ...]] = ContextVar("lexigram_sql_transactions", default=())


class Backend(Protocol):
    """What SQLite and PostgreSQL each do in their own way."""

    # Equal for two Database objects whose writers exclude each other.
    resource: str

    async def connect(self) -> None: ...
    async def close(self) -> None: ...
    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult: ...
    async def query(self, sql: str, params: Sequence[Any]) -> QueryResult: ...
    async def run(self, fn: Callable[[Any], Any]) -> Any: ...
    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T: ...
    async def read(self, fn: Callable[[Any], Any]) -> Any: ...
    async def read_steps(self, steps: Callable[[], Steps[T]]) -> T: ...
    async def restructure(self, fn: Callable[[Connection], Any]) -> Any: ...
    def session(self) -> Session: ...
    def listen(self, channel: str) -> AbstractAsyncContextManager[Subscription]: ...
    async def notify(self, channel: str, payload: str) -> None: ...


class Session(Protocol):
    """What a backend keeps open for a transaction."""

    async def begin(self) -> None:
        """Start; nothing is held when it raises."""

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement with ``?`` placeholders."""
        ...

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """Several statements."""
        ...

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """Several statements of a generator."""
        ...

    async def commit(self) -> None:
        """End permanently. Raises when it did not happen or is not certain."""

    async def rollback(self) -> None:
        """End as if nothing had been; never raises for a connection that is gone."""


class Database:
    """SQLite or PostgreSQL, by ``SqlConfig.url``; implements ``DatabaseProviderProtocol``.

    ``await db.run(fn)`` calls a plain function with a SQLAlchemy connection, in one transaction
    and one hop; stores use it. ``async with db.transaction()`` stays open between statements.
    """

    def __init__(self, config: SqlConfig | str) -> None:
        self.config = SqlConfig(url=config) if isinstance(config, str) else config
        self._url = parse_url(self.config.url)
        self.dialect: Dialect = dialect_of(self._url)
        self._backend = _backend(self.dialect, self.config)

    @property
    def address(self) -> str:
        """The URL without its password."""
        return show_url(self._url)

    async def connect(self) -> None:
        """Open the database and ask it something; raises an error that names the cause."""
        await self._backend.connect()

    async def close(self) -> None:
        """Give everything back. Open transactions are rolled back. Twice is once."""
        await self._backend.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    @overload
    async def run(self, fn: Callable[[PostgresConnection], Awaitable[T]]) -> T: ...
    @overload
    async def run(self, fn: Callable[[Connection], T]) -> T: ...
    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """Call ``fn(connection)`` in one transaction and return what it returns.

        SQLite: a plain function, shipped to the writer thread with a SQLAlchemy connection.
        PostgreSQL: an async function with a ``PostgresConnection``. It commits when ``fn``
        returns and rolls back when it raises; inside a transaction of this task it joins that.
        ``fn`` is called again when the work failed for the moment and nothing was committed,
        so it does nothing but SQL.
        """
        if (transaction := self._open_transaction()) is not None:
            return await transaction.run(fn)
        return await self._again(lambda: self._backend.run(fn))

    @overload
    async def read(self, fn: Callable[[PostgresConnection], Awaitable[T]]) -> T: ...
    @overload
    async def read(self, fn: Callable[[Connection], T]) -> T: ...
    async def read(self, fn: Callable[[Any], Any]) -> Any:
        """Like ``run`` for queries only: one snapshot, and no waiting for writers."""
        if (transaction := self._open_transaction()) is not None:
            return await transaction.run(fn)
        return await self._again(lambda: self._backend.read(fn))

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """``run`` for both databases: a generator yields ``(sql, params)``, gets QueryResults.

        Placeholders are ``?``; the value the generator returns is returned.
        """
        if (transaction := self._open_transaction()) is not None:
            return await transaction.run_steps(steps)
        return await self._again(lambda: self._backend.run_steps(steps))

    async def read_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """``run_steps`` for queries only: one snapshot, and no waiting for writers."""
        if (transaction := self._open_transaction()) is not None:
            return await transaction.run_steps(steps)
        return await self._again(lambda: self._backend.read_steps(steps))

    async def restructure(self, fn: Callable[[Connection], T]) -> T:
        """Call a plain ``fn(connection)`` that changes tables, alone among all processes.

        For migrations, the same on both databases: one transaction without time limits, under
        an exclusive lock that others wait for here. SQLite: in the writer thread, foreign keys
        are looked at before the commit instead of at each statement. PostgreSQL: on a
        connection of its own; ``fn`` runs in the event loop and must not block it. It is never
        repeated.
        """
        self.refuse_inside_transaction("changing tables")
        result: T = await self._backend.restructure(fn)
        return result

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of this task; see ``DatabaseProviderProtocol.transaction``.

        It is rolled back after ``max_transaction`` seconds. Use by another task or after its
        end raises TransactionScopeError. It is never repeated: only the caller could do that.
        """
        return TransactionBlock(self._open_transaction, self._fresh)

    @property
    def in_transaction(self) -> bool:
        """True when this task has a transaction open here."""
        return self._open_transaction() is not None

    async def execute(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run one statement; by itself it is its own transaction."""
        if (transaction := self._open_transaction()) is not None:
            return await transaction.execute(sql, params)
        return await self._backend.execute(sql, params)

    async def execute_query(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a query; a lost connection is tried again."""
        if (transaction := self._open_transaction()) is not None:
            return await transaction.execute(sql, params)
        return await self._again(lambda: self._backend.query(sql, params))

    async def execute_insert(self, table: str, data: Mapping[str, Any]) -> QueryResult:
        """Insert one row."""
        return await self.execute(statements.insert(table, tuple(data)), tuple(data.values()))

    async def execute_delete(
        self, table: str, where: str, params: Sequence[Any] = ()
    ) -> QueryResult:
        """Delete the rows that match."""
        return await self.execute(statements.delete(table, where), params)

    def listen(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        """``async with db.listen("jobs") as news: await news.wait()``.

        PostgreSQL: wakes on every NOTIFY, and once after a reconnect, when some may have been
        missed. SQLite: wakes on ``notify`` of this Database object only; poll for others.
        """
        return self._backend.listen(channel)

    async def notify(self, channel: str, payload: str = "") -> None:
        """Wake who listens; not part of any transaction on SQLite."""
        if self.dialect == "postgresql":
            await self.execute("SELECT pg_notify(?, ?)", (channel, payload))
        else:
            await self._backend.notify(channel, payload)

    def refuse_inside_transaction(self, what: str) -> None:
        """Raise TransactionScopeError when this task has a transaction open here."""
        if self.in_transaction:
            raise TransactionScopeError(
                f"{what} cannot be done inside a transaction of this database",
                hint="do it before the block",
            )

    def _open_transaction(self) -> Transaction | None:
        """The open transaction of this task here, or None outside of any."""
        for transaction in _open.get():
            if transaction.database is self:
                transaction.check_usable()
                return transaction
            if transaction.resource == self._backend.resource and not transaction.ended:
                raise TransactionScopeError(
                    "this task holds the writer of the database file in a transaction of another"
                    " Database object and would wait for itself",
                    details={"resource": transaction.resource},
                    hint="use one Database per file",
                )
        return None

    def _fresh(self) -> Transaction:
        return Transaction(self, self._backend.resource, self._backend.session())

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat what failed for the moment; only for work that committed nothing then."""
        for attempt in range(1, self.config.retry_attempts):
            try:
                return await work()
            except DatabaseError as error:
                if not is_transient(error):
                    raise
            await anyio.sleep(_RETRY.delay(attempt))
        return await work()

    def __repr__(self) -> str:
        return f"<Database {self.address}>"


class Transaction:
    """What ``async with db.transaction() as tx`` yields."""

    def __init__(self, database: Database, resource: str, session: Session) -> None:
        self.database = database
        self.resource = resource
        self.ended = False
        self._session = session
        self._owner = asyncio.current_task()

    async def execute(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a statement in this transaction."""
        self.check_usable()
        return await self._session.execute(sql, params)

    async def execute_query(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a query in this transaction: it sees what was written here."""
        return await self.execute(sql, params)

    async def execute_insert(self, table: str, data: Mapping[str, Any]) -> QueryResult:
        """Insert one row."""
        return await self.execute(statements.insert(table, tuple(data)), tuple(data.values()))

    async def execute_delete(
        self, table: str, where: str, params: Sequence[Any] = ()
    ) -> QueryResult:
        """Delete the rows that match."""
        return await self.execute(statements.delete(table, where), params)

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """What ``Database.run`` does, in this transaction."""
        self.check_usable()
        return await self._session.run(fn)

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """What ``Database.run_steps`` does, in this transaction."""
        self.check_usable()
        return await self._session.run_steps(steps)

    def check_usable(self) -> None:
        """Raise TransactionScopeError after the end and in every task but the owner."""
        if self.ended:
            raise TransactionScopeError(
                "the transaction has ended",
                hint="a task started inside a transaction keeps it in its context; start the"
                " task before or after the block",
            )
        if asyncio.current_task() is not self._owner:
            raise TransactionScopeError(
                "the transaction belongs to the task that opened it",
                hint="do the statements in that task, or start this one outside the block",
            )

    async def begin(self) -> None:
        """Called by the block at its start."""
        await self._session.begin()

    async def end(self, *, commit: bool) -> None:
        """Called by the block at its end; cancellation and errors roll back."""
        self.ended = True
        try:
            if commit:
                await self._session.commit()
                return
        except BaseException:
            await self._roll_back()
            raise
        await self._roll_back()

    async def _roll_back(self) -> None:
        with anyio.move_on_after(ROLLBACK_SECONDS, shield=True):
            await self._session.rollback()


class TransactionBlock:
    """``async with``: opens a transaction, or joins the one the task is in."""

    def __init__(
        self, joined: Callable[[], Transaction | None], fresh: Callable[[], Transaction]
    ) -> None:
        self._joined = joined
        self._fresh = fresh
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        if (outer := self._joined()) is not None:
            return outer
        transaction = self._fresh()
        await transaction.begin()
        _open.set((*_open.get(), transaction))
        self._transaction = transaction
        return transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (transaction := self._transaction) is None:
            return  # joined: the outer block decides
        self._transaction = None
        # In this context; copies of it, in child tasks, still know the transaction.
        _open.set(tuple(entry for entry in _open.get() if entry is not transaction))
        await transaction.end(commit=error is None)


def lease_now(dialect: Dialect) -> Steps[float]:
    """Seconds since 1970, asked within ``run_steps`` by ``yield from``.

    PostgreSQL: the server's clock, since its clients are on many machines. SQLite: the clock of
    this machine (``lexigram.clock``), which all users of the file share.
    """
    if dialect == "sqlite":
        return clock.timestamp()
    found = yield POSTGRES_NOW, ()
    return float(found.rows[0]["now"])


def _backend(dialect: Dialect, config: SqlConfig) -> Backend:
    if dialect == "sqlite":
        from lexigram.sql.sqlite.backend import SqliteBackend

        return SqliteBackend(config)
    from lexigram.sql.postgres.backend import PostgresBackend

    return PostgresBackend(config)
