"""The same jobs on procrastinate, pgqueuer, arq, taskiq and dramatiq, each as its documentation has it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tasks.ours import IDLE_SECONDS, LIMIT_SECONDS

clock = time.perf_counter_ns
_SETTLE_SECONDS = 0.5  # for a worker that has no "I am listening" to wait for


class Peer:
    """What a peer must be able to do; ``latency`` where it makes sense. Nothing waits for ever."""

    def __init__(self) -> None:
        self.done = 0
        self._started: asyncio.Future[int] | None = None

    def note(self) -> None:
        """Called by the job, first of all."""
        self.done += 1
        if self._started is not None and not self._started.done():
            self._started.set_result(clock())

    async def work(self, count: int) -> int:
        self.done, self._started = 0, None
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._enqueue(count)
            start = clock()
            await self._drain(count)
            spent = clock() - start
        assert self.done == count, (type(self).__name__, self.done, count)
        return spent

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """An idle worker, for ``latency``."""
        runner = asyncio.create_task(self._serve())
        await asyncio.sleep(_SETTLE_SECONDS)
        yield
        await self._end(runner)

    async def latency(self, _: int) -> int:
        await asyncio.sleep(IDLE_SECONDS)
        self._started = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(LIMIT_SECONDS):
            start = clock()
            await self._enqueue(1)
            return await self._started - start

    async def _end(self, runner: asyncio.Task[Any]) -> None:
        runner.cancel()
        await asyncio.wait({runner}, timeout=5)

    async def _enqueue(self, count: int) -> None: ...
    async def _drain(self, count: int) -> None: ...
    async def _serve(self) -> None: ...


class Procrastinate(Peer):
    """Its own concurrency; LISTEN/NOTIFY on; jobs are kept, as ours are."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self.app = app

        @app.task(queue="q", name="noop")
        async def noop(number: int) -> None:
            self.note()

        self.noop = noop

    async def _enqueue(self, count: int) -> None:
        if count == 1:
            await self.noop.defer_async(number=0)
            return
        for first in range(0, count, 1000):
            rows = [{"number": n} for n in range(first, min(count, first + 1000))]
            await self.noop.batch_defer_async(*rows)

    async def _drain(self, count: int) -> None:
        await self.app.run_worker_async(
            queues=["q"], concurrency=30, wait=False, install_signal_handlers=False
        )

    async def _serve(self) -> None:
        await self.app.run_worker_async(queues=["q"], concurrency=5, install_signal_handlers=False)


@asynccontextmanager
async def procrastinate(url: str) -> AsyncIterator[Procrastinate]:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=30))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield Procrastinate(app)


class PgQueuer(Peer):
    """Batches of 100."""

    def __init__(self, driver: Any, queries: Any) -> None:
        super().__init__()
        self._driver = driver
        self._queries = queries

    def _made(self) -> Any:
        from pgqueuer import PgQueuer as Runner

        runner = Runner(self._driver)

        @runner.entrypoint("noop")
        async def noop(job: Any) -> None:
            self.note()

        return runner

    async def _enqueue(self, count: int) -> None:
        for first in range(0, count, 1000):
            numbers = range(first, min(count, first + 1000))
            payloads = [str(n).encode() for n in numbers]
            await self._queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    async def _drain(self, count: int) -> None:
        from pgqueuer.types import QueueExecutionMode

        await self._made().run(
            batch_size=100, dequeue_timeout=timedelta(seconds=1), mode=QueueExecutionMode.drain
        )

    async def _serve(self) -> None:
        await self._made().run(batch_size=10, dequeue_timeout=timedelta(seconds=30))


@asynccontextmanager
async def pgqueuer(url: str) -> AsyncIterator[PgQueuer]:
    import asyncpg
    from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Queries

    pool = await asyncpg.create_pool(url, min_size=4, max_size=10)
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    yield PgQueuer(AsyncpgPoolDriver(pool), queries)
    await connection.close()
    pool.terminate()


class Arq(Peer):
    """A hundred jobs at a time; no results kept, which is its fastest."""

    def __init__(self, pool: Any, settings: Any, name: str) -> None:
        super().__init__()
        self._pool = pool
        self._settings = settings
        self._name = name

    async def _enqueue(self, count: int) -> None:
        for _ in range(count):
            await self._pool.enqueue_job("noop", _queue_name=self._name)

    async def _drain(self, count: int) -> None:
        from arq.worker import Worker, func

        async def noop(_: Any) -> None:
            self.note()

        worker = Worker(
            functions=[func(noop, name="noop", keep_result=0)],
            redis_settings=self._settings,
            queue_name=self._name,
            burst=True,
            max_jobs=100,
            poll_delay=0.0,
            handle_signals=False,
        )
        await worker.async_run()
        await worker.close()


@asynccontextmanager
async def arq(url: str) -> AsyncIterator[Arq]:
    from arq import create_pool
    from arq.connections import RedisSettings

    settings = RedisSettings.from_dsn(url)
    pool = await create_pool(settings)
    yield Arq(pool, settings, f"lexbench:{secrets.token_hex(4)}")
    await pool.aclose()


class TaskiqRedis(Peer):
    """A list in Redis without acknowledgements, which is its fastest.

    A new list for every round: the reader of an earlier one may still take a message and lose it.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._broker: Any = None
        self._reached = asyncio.Event()
        self._wanted = 0

    async def _enqueue(self, count: int) -> None:
        from taskiq_redis import ListQueueBroker

        async def noop() -> None:
            self.note()
            if self.done == self._wanted:
                self._reached.set()

        self._broker = ListQueueBroker(self._url, queue_name=f"lexbench:{secrets.token_hex(4)}")
        self._broker.is_worker_process = True
        await self._broker.startup()
        task = self._broker.register_task(noop, task_name="noop")
        for _ in range(count):
            await task.kiq()

    async def _drain(self, count: int) -> None:
        from taskiq.receiver import Receiver

        self._wanted, self._reached = count, asyncio.Event()
        receiver = Receiver(self._broker, max_async_tasks=100, run_startup=False)
        runner = asyncio.create_task(receiver.listen(asyncio.Event()))
        await self._reached.wait()
        self._runner = runner

    async def work(self, count: int) -> int:
        spent = await super().work(count)
        await self._end(self._runner)
        await self._broker.shutdown()
        return spent


@asynccontextmanager
async def taskiq_redis(url: str) -> AsyncIterator[TaskiqRedis]:
    logging.getLogger("taskiq").setLevel(logging.ERROR)
    yield TaskiqRedis(url)


class TaskiqMemory(Peer):
    """Its in-memory broker calls the task as soon as it is sent."""

    def __init__(self, broker: Any) -> None:
        super().__init__()
        self._broker = broker

        async def noop() -> None:
            self.note()

        self._task = broker.register_task(noop, task_name="noop")

    async def work(self, count: int) -> int:
        self.done = 0
        start = clock()
        for _ in range(count):
            await self._task.kiq()
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._broker.wait_all()
        assert self.done == count
        return clock() - start


@asynccontextmanager
async def taskiq_memory() -> AsyncIterator[TaskiqMemory]:
    from taskiq import InMemoryBroker

    logging.getLogger("taskiq").setLevel(logging.ERROR)
    broker = InMemoryBroker()
    await broker.startup()
    yield TaskiqMemory(broker)
    await broker.shutdown()


class Dramatiq(Peer):
    """Eight threads, its default; a plain function, as its documentation has it."""

    def __init__(self, broker: Any) -> None:
        super().__init__()
        from dramatiq import actor

        self._broker = broker
        self._worker: Any = None

        @actor(broker=broker, queue_name="q")
        def noop(number: int) -> None:
            self.done += 1

        self._noop = noop

    async def _enqueue(self, count: int) -> None:
        if self._worker is not None:
            await asyncio.to_thread(self._worker.pause)  # not in what is measured
        for number in range(count):
            self._noop.send(number)

    async def _drain(self, count: int) -> None:
        if self._worker is None:
            from dramatiq import Worker

            self._worker = Worker(self._broker, worker_threads=8, worker_timeout=100)
            self._worker.start()
        else:
            self._worker.resume()
        while self.done < count:
            await asyncio.sleep(0.002)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()


@asynccontextmanager
async def dramatiq(url: str) -> AsyncIterator[Dramatiq]:
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=url, namespace=f"lex-bench-{secrets.token_hex(4)}")
    peer = Dramatiq(broker)
    try:
        yield peer
    finally:
        await asyncio.to_thread(peer.close)
        broker.flush_all()
        broker.close()
