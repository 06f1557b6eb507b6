"""A SQLite connection as its thread sees it: statements, limits, begin, commit, rollback."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from inspect import iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import (
    ConstraintViolationError,
    StatementTimeoutError,
    TransactionScopeError,
    TransactionTimeoutError,
)
from lexigram.sql.sqlite import opening
from lexigram.sql.sqlite.errors import FOREIGN, translate
from lexigram.sql.sqlite.files import OpenFiles
from lexigram.sql.steps import Many, Steps, run_steps_sync

if TYPE_CHECKING:
    from lexigram.sql.sqlite.thread import Job

T = TypeVar("T")

_STEPS = 5_000  # of SQLite's virtual machine between two looks at the clock: well under 1 ms


_STORED = {str, int, float, bytes, bool, type(None)}  # nearly all values: asked first


class JobCancelled(Exception):
    """The task that waits for this work was cancelled; it never sees this."""


class Handle:
    """Used by one thread only."""

    def __init__(self) -> None:
        self.job: Job[Any] | None = None
        # Monotonic time at which the transaction must be over; None outside a transaction.
        self.deadline: float | None = None
        self._statement_ends = 0.0
        self._raw: sqlite3.Connection | None = None
        self._connection: Connection | None = None
        self._engine: Engine | None = None
        self._config = SqlConfig(url="sqlite://")
        self._place = ":memory:"
        self._files: OpenFiles | None = None  # None in memory

    def open(self, file: Path | None, config: SqlConfig, *, reader: bool) -> None:
        """Open the connection and read from it: a file that is no database says so here."""
        self._config, self._place = config, str(file or ":memory:")
        try:
            self._raw = raw = opening.open_connection(file, config, reader=reader)
            raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            raw.set_progress_handler(self._must_stop, _STEPS)
            self._engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
            self._connection = self._engine.connect()
            self._files = None if file is None else OpenFiles(file)
        except FOREIGN as error:
            self._fail(error)

    def close(self) -> None:
        """Roll back what is open and close; the thread may end then."""
        self.rollback()
        if self._connection is not None:
            self._connection.close()  # closes the raw connection too: there is no pool
        if self._engine is not None:
            self._engine.dispose()
        if self._raw is not None:
            self._raw.close()  # a second time is nothing; the first time after a failed open
        self._raw = self._connection = self._engine = None

    def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement with ``?`` placeholders, straight to the driver."""
        raw = self._opened
        self._start_clock()
        try:
            if isinstance(params, Many):
                return QueryResult(row_count=max(raw.executemany(sql, params).rowcount, 0))
            cursor = raw.execute(sql, [_plain(value) for value in params])
            if cursor.description is None:
                return QueryResult(row_count=max(cursor.rowcount, 0))
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        except FOREIGN as error:
            self._fail(error)
        return QueryResult(rows=rows, row_count=len(rows))

    def execute_alone(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement that is its own transaction."""
        self._check_files()
        result = self.execute(sql, params)
        if self._opened.in_transaction:
            self.rollback()
            raise TransactionScopeError(
                "a statement began a transaction", hint="use `async with db.transaction()`"
            )
        return result

    def apply(self, fn: Callable[[Connection], T]) -> T:
        """Call a function with the connection; it may not end the transaction itself."""
        if (connection := self._connection) is None:
            raise _build_closed_error()
        self._start_clock()
        try:
            with connection.begin() as bookkeeping:
                result = fn(connection)
                if iscoroutine(result):
                    result.close()
                    raise DatabaseError(
                        "on SQLite the function given to run() is a plain one",
                        hint="write `def fn(connection)`, or use run_steps() for both databases",
                    )
                if not bookkeeping.is_active:
                    raise _build_ended_by_function_error()
        except FOREIGN as error:
            self._fail(error)
        return result

    def walk(self, steps: Callable[[], Steps[T]]) -> T:
        """Do the steps of a generator; they may not end the transaction either."""
        result = run_steps_sync(self.execute, steps())
        if not self.in_transaction:
            raise _build_ended_by_function_error()
        return result

    def transact(self, fn: Callable[[Connection], T], job: Job[Any], begin: str) -> T:
        """One transaction around a function."""
        return self._transact(lambda: self.apply(fn), job, begin)

    def transact_steps(self, steps: Callable[[], Steps[T]], job: Job[Any], begin: str) -> T:
        """One transaction around a generator, for all stores.

        Straight to the driver: in the thread it takes 1.7x the time of hand-written sqlite3 for
        one row; through SQLAlchemy it was 2.8x.
        """
        return self._transact(lambda: self.walk(steps), job, begin)

    def _transact(self, work: Callable[[], T], job: Job[Any], begin: str) -> T:
        self.begin(begin)
        try:
            result = work()
            if job.cancelled:
                raise JobCancelled
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return result

    def restructure(self, fn: Callable[[Connection], T], job: Job[Any]) -> T:
        """One transaction for changes of tables: no time limit, foreign keys judged at its end.

        Replacing a table that others refer to drops it, and with foreign keys on that would
        delete their rows. The pragma is ignored inside a transaction, so it comes before.
        """

        def change(connection: Connection) -> T:
            self.deadline, self._statement_ends = None, math.inf
            result = fn(connection)
            _refuse_orphans(connection)
            return result

        self._opened.execute("PRAGMA foreign_keys = OFF")
        try:
            return self.transact(change, job, "BEGIN IMMEDIATE")
        finally:
            self._opened.execute("PRAGMA foreign_keys = ON")

    def begin(self, statement: str = "BEGIN IMMEDIATE") -> None:
        """IMMEDIATE: two deferred transactions may both read and then both want to write."""
        self._start_clock()
        try:
            self._opened.execute(statement)
        except FOREIGN as error:
            self._fail(error)
        self.deadline = time.monotonic() + self._config.max_transaction

    def commit(self) -> None:
        """Raises when the transaction is gone: SQLite itself rolls back on a full disk."""
        if not self._opened.in_transaction:
            raise DatabaseError("the transaction was rolled back by an error in it")
        self._check_files()  # last: what is written after it is lost with the file
        self._start_clock()
        try:
            self._opened.execute("COMMIT")
        except FOREIGN as error:
            self._fail(error)
        self.deadline = None

    def rollback(self) -> None:
        """Nothing when there is no transaction."""
        self.deadline = None
        if self._raw is not None and self._raw.in_transaction:
            self._raw.set_progress_handler(None, 0)  # a cancelled job still rolls back
            self._raw.execute("ROLLBACK")
            self._raw.set_progress_handler(self._must_stop, _STEPS)

    @property
    def in_transaction(self) -> bool:
        """True between begin and the end, however it came."""
        return self._raw is not None and self._raw.in_transaction

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._raw is None:
            raise _build_closed_error()
        return self._raw

    def _check_files(self) -> None:
        if self._files is not None:
            self._files.check()

    def _start_clock(self) -> None:
        ends = time.monotonic() + self._config.statement_timeout
        self._statement_ends = ends if self.deadline is None else min(ends, self.deadline)

    def _must_stop(self) -> bool:
        return (self.job is not None and self.job.cancelled) or (
            time.monotonic() > self._statement_ends
        )

    def _fail(self, error: BaseException) -> NoReturn:
        """Raise our error for a foreign one."""
        if not _is_interrupt(error):
            raise translate(error, self._place) from error
        if self.job is not None and self.job.cancelled:
            raise JobCancelled from error
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise too_long(self._config) from error
        raise StatementTimeoutError(
            f"a statement ran for more than {self._config.statement_timeout:g} s",
            hint="make it quicker (an index?), or raise sql.statement_timeout",
        ) from error


def too_long(config: SqlConfig) -> TransactionTimeoutError:
    """The error for a transaction that reached its limit."""
    return TransactionTimeoutError(
        f"the transaction was open for more than {config.max_transaction:g} s and was rolled back",
        hint="do slow things before or after it, or raise sql.max_transaction",
    )


def _build_ended_by_function_error() -> TransactionScopeError:
    return TransactionScopeError(
        "the function ended its transaction itself", hint="return to commit, raise to roll back"
    )


def _refuse_orphans(connection: Connection) -> None:
    orphan = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if orphan is not None:
        raise ConstraintViolationError(
            f"a row of {orphan[0]} would refer to a row of {orphan[2]} that is not there",
            details={"table": orphan[0], "row": orphan[1], "refers_to": orphan[2]},
            hint="nothing was changed: the migration must keep or remove both",
        )


def _build_closed_error() -> DatabaseError:
    return DatabaseError("the database is not open", hint="use it between connect() and close()")


def _is_interrupt(error: BaseException) -> bool:
    origin = getattr(error, "orig", None) or error
    return getattr(origin, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def _plain(value: Any) -> Any:
    """What SQLite stores: it has no dates, UUIDs or decimals of its own."""
    if type(value) in _STORED:
        return value
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    return value
