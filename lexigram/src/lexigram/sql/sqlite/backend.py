"""SQLite behind ``Database``: writes go to one thread, reads to others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, BinaryIO, TypeVar

import anyio.to_thread
from sqlalchemy import Connection

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.leasing.subscriptions import Subscription, Subscriptions
from lexigram.sql.config import SqlConfig
from lexigram.sql.errors import DatabaseAccessError
from lexigram.sql.sqlite import opening
from lexigram.sql.sqlite.errors import FOREIGN, translate
from lexigram.sql.sqlite.handle import Handle, too_long
from lexigram.sql.sqlite.thread import Job, Worker
from lexigram.sql.steps import Steps
from lexigram.sql.url import file_of, parse_url

T = TypeVar("T")

_LOCK_PAUSE = 0.05  # poll interval for the migration lock of another process, in seconds

_memories = count(1)


class SqliteBackend:
    """One writer; as many readers as configured, or the writer itself for a database in memory."""

    def __init__(self, config: SqlConfig) -> None:
        self._config = config
        self._file = file_of(parse_url(config.url))
        self.resource = str(self._file or f"memory {next(_memories)}")
        self._writer: Worker | None = None
        self._readers: list[Worker] = []
        self._turn = count()
        self._sessions: set[SqliteSession] = set()
        self._subscriptions = Subscriptions()

    async def connect(self) -> None:
        """Prepare the file and open all connections."""
        if self._writer is not None:
            return
        if self._file is not None:
            await anyio.to_thread.run_sync(self._prepare)
        try:
            self._writer = await self._start_worker("lexigram-sql-writer", reader=False)
            for number in range(self._config.readers if self._file else 0):
                name = f"lexigram-sql-reader-{number}"
                self._readers.append(await self._start_worker(name, reader=True))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End sessions, then readers, then the writer, whose close checkpoints the WAL."""
        for session in list(self._sessions):
            session.abandon()
        readers, self._readers = self._readers, []
        writer, self._writer = self._writer, None
        for worker in [*readers, *([writer] if writer else [])]:
            await worker.close()

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement on the writer."""
        return await self.writer.call(lambda handle, _: handle.execute_alone(sql, params))

    async def query(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One query on a reader."""
        return await self._reader.call(lambda handle, _: handle.execute_alone(sql, params))

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """One transaction on the writer: one hop."""
        return await self.writer.call(
            lambda handle, job: handle.transact(fn, job, "BEGIN IMMEDIATE")
        )

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """One transaction on the writer, without SQLAlchemy in between."""
        return await self.writer.call(
            lambda handle, job: handle.transact_steps(steps, job, "BEGIN IMMEDIATE")
        )

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """One snapshot on a reader: one hop."""
        return await self._reader.call(lambda handle, job: handle.transact(fn, job, "BEGIN"))

    async def read_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """One snapshot on a reader, without SQLAlchemy in between."""
        return await self._reader.call(
            lambda handle, job: handle.transact_steps(steps, job, "BEGIN")
        )

    async def restructure(self, fn: Callable[[Connection], T]) -> T:
        """One transaction on the writer, under a lock file; a database in memory needs none."""
        lock = None if self._file is None else await self._lock_file(self._file)
        try:
            return await self.writer.call(lambda handle, job: handle.restructure(fn, job))
        finally:
            if lock is not None:
                lock.close()

    def session(self) -> SqliteSession:
        """An interactive transaction, not begun yet."""
        return SqliteSession(self.writer, self._config, self._sessions)

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Subscription]:
        """A subscription that wakes on ``notify`` of this object."""
        with self._subscriptions.open(channel) as subscription:
            yield subscription

    async def notify(self, channel: str, payload: str) -> None:
        """Wake listeners of this object."""
        self._subscriptions.tell(channel, payload)

    @property
    def writer(self) -> Worker:
        """The thread that writes."""
        if self._writer is None:
            raise DatabaseError(
                "the database is not open", hint="use it between connect() and close()"
            )
        return self._writer

    @property
    def _reader(self) -> Worker:
        if not self._readers:
            return self.writer
        return self._readers[next(self._turn) % len(self._readers)]

    def _prepare(self) -> None:
        assert self._file is not None
        try:
            opening.prepare(self._file, self._config)
        except FOREIGN as error:
            raise translate(error, str(self._file)) from error
        except OSError as error:
            raise _unwritable(self._file, error) from error

    async def _lock_file(self, file: Path) -> BinaryIO:
        """Ask again and again: a wait in the system call could not be cancelled."""
        while True:
            try:
                lock = await anyio.to_thread.run_sync(opening.take_lock, file)
            except OSError as error:
                raise _unwritable(file, error) from error
            if lock is not None:
                return lock
            await anyio.sleep(_LOCK_PAUSE)

    async def _start_worker(self, name: str, *, reader: bool) -> Worker:
        worker = Worker(name)
        worker.start()
        try:
            await worker.call(
                lambda handle, _: handle.open(self._file, self._config, reader=reader)
            )
        except BaseException:
            await worker.close()
            raise
        return worker


class SqliteSession:
    """Keeps the writer thread for one transaction: it serves nobody else until the end."""

    def __init__(self, writer: Worker, config: SqlConfig, open_ones: set[SqliteSession]) -> None:
        self._writer = writer
        self._config = config
        self._open_ones = open_ones
        self._commands: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._over = False
        self._expired = False

    async def begin(self) -> None:
        """Wait for the writer and keep it."""
        started = Job[None](lambda handle, _: handle.begin())
        occupation = Job[None](lambda handle, _: self._serve(handle, started))
        self._writer.enqueue(occupation)
        try:
            await started.outcome()
        except BaseException:
            self._commands.put(None)  # begun or not, the thread goes on
            raise
        self._open_ones.add(self)

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One hop to the thread that waits for us."""
        return await self._do(lambda handle, _: handle.execute(sql, params))

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """One hop, several statements."""
        return await self._do(lambda handle, _: handle.apply(fn))

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """One hop, several statements."""
        return await self._do(lambda handle, _: handle.walk(steps))

    async def commit(self) -> None:
        """Commit and let the writer go."""
        await self._do(lambda handle, _: handle.commit())
        self.abandon()

    async def rollback(self) -> None:
        """Let the writer go; it rolls back what was not committed."""
        self.abandon()

    def abandon(self) -> None:
        """Tell the thread that no more commands come."""
        self._open_ones.discard(self)
        self._commands.put(None)

    async def _do(self, work: Callable[[Handle, Job[T]], T]) -> T:
        job = Job(work)
        self._commands.put(job)
        if self._over:
            job.fail(self._build_ended_error())  # the thread may have left before it saw the job
        return await job.outcome()

    def _serve(self, handle: Handle, started: Job[None]) -> None:
        """In the thread: begin, then commands until the end, the limit, or an error's rollback."""
        started.perform(handle)
        try:
            while handle.in_transaction and (job := self._next(handle)) is not None:
                job.perform(handle)
        finally:
            self._over = True
            handle.rollback()
            self._refuse_the_rest()

    def _next(self, handle: Handle) -> Job[Any] | None:
        left = (handle.deadline or 0.0) - monotonic()
        try:
            if left > 0:
                return self._commands.get(timeout=left)
        except Empty:
            pass  # the limit, as below
        self._expired = True
        return None

    def _refuse_the_rest(self) -> None:
        while not self._commands.empty():
            if (job := self._commands.get()) is not None:
                job.fail(self._build_ended_error())

    def _build_ended_error(self) -> DatabaseError:
        if self._expired:
            return too_long(self._config)
        return DatabaseError(
            "the transaction was rolled back by an error in it, or the database was closed",
            hint="let the first error end the block",
        )


def _unwritable(file: Path, error: OSError) -> DatabaseAccessError:
    return DatabaseAccessError(
        f"{file} cannot be opened for writing: {error.strerror}",
        details={"database": str(file)},
        hint="SQLite writes beside the file too: the folder must exist and be writable",
    )
