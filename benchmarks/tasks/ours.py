"""Lexigram's queues as contestants: memory, SQLite, PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.tasks import InMemoryTaskQueue, PoolSettings, SqlTaskQueue, TaskQueue, TaskWorker

clock = time.perf_counter_ns
LIMIT_SECONDS = 60.0  # against a hang only
IDLE_SECONDS = 0.003  # before every job whose start is measured


class Ours:
    """One queue; jobs are enqueued before the clock starts."""

    def __init__(self, queue: TaskQueue, *, concurrency: int = 100) -> None:
        self.queue = queue
        self._started: asyncio.Future[int] | None = None
        self._left = 0
        self._done = anyio.Event()
        handlers = {"noop": self._noop, "stamp": self._stamp}
        settings = PoolSettings(concurrency=concurrency, prefetch=concurrency)
        self.worker = TaskWorker("bench", queue, handlers, settings)

    async def _noop(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _stamp(self) -> None:
        assert self._started is not None
        self._started.set_result(clock())

    async def enqueue(self, count: int) -> int:
        """Nanoseconds to enqueue."""
        start = clock()
        await self.queue.enqueue_many([{"name": "noop"}] * count)
        return clock() - start

    async def work(self, count: int) -> int:
        """Nanoseconds until all are done and written."""
        self._left, self._done = count, anyio.Event()
        await self.enqueue(count)
        start = clock()
        await self.worker.start()
        with anyio.fail_after(LIMIT_SECONDS):
            await self._done.wait()
        await self.worker.stop()  # waits for the last reports
        spent = clock() - start
        assert await self.queue.get_task_count() == 0
        return spent

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """An idle worker, for ``latency``."""
        await self.worker.start()
        yield
        await self.worker.stop()

    async def latency(self, _: int) -> int:
        """Nanoseconds from the call of ``enqueue`` to the first line of the handler."""
        await anyio.sleep(IDLE_SECONDS)
        self._started = asyncio.get_running_loop().create_future()
        start = clock()
        await self.queue.enqueue({"name": "stamp"})
        with anyio.fail_after(LIMIT_SECONDS):
            return await self._started - start


def memory() -> Ours:
    """In this process."""
    return Ours(InMemoryTaskQueue())


@asynccontextmanager
async def on_database(url: str, *, concurrency: int = 100) -> AsyncIterator[Ours]:
    """In a new database."""
    async with Database(url) as database:
        await upgrade(database)
        yield Ours(SqlTaskQueue(database), concurrency=concurrency)
