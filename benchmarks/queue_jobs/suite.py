"""Jobs over the bus: a job beside a message on the same driver, and beside its peers."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from harness import Case, Facts, Plan, Section, Target, Work, measure
from tasks import peers
from tasks.suite import _database, _drop_left_behind

from lexigram.contracts.queue import BusMessage, QueueDriverProtocol
from lexigram.queue import BusOptions, BusQueue
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.tasks import BusTaskQueue, RedisJobs
from lexigram.tasks import PoolSettings, TaskWorker
from lexigram.tasks.store_memory import MemoryStore

TITLE = "Jobs over the bus"
PEERS = (
    "taskiq",
    "taskiq-redis",
    "arq",
    "dramatiq",
    "procrastinate",
    "redis",
    "hiredis",
    "nats-py",
    "aio-pika",
)
REDIS = os.environ.get("LEX_BENCH_REDIS", "redis://127.0.0.1:6379/0")
NATS = os.environ.get("LEX_BENCH_NATS", "nats://127.0.0.1:4222")
RABBITMQ = os.environ.get("LEX_BENCH_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/")

BATCH = 100
JOBS = 3_000
FEW = 300  # for those that take milliseconds a job
SETTLED = (
    0.05  # seconds after the last handler in which its acknowledgement, or its end, is written
)
SHARE = 0.6  # of the messages a second that the bus has on the same driver
PAYLOAD = {"id": 12345, "name": "Ada Lovelace", "tags": ["a", "b", "c"], "text": "x" * 180}
MESSAGE, JOB = "a message of the bus", "a job"


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    prefix = f"lex-bench-{secrets.token_hex(4)}"
    drivers: dict[str, Callable[[], QueueDriverProtocol]] = {
        "memory": MemoryDriver,
        "redis": lambda: RedisDriver(REDIS, prefix=prefix),
        "rabbitmq": lambda: RabbitMQDriver(RABBITMQ, exchange=prefix),
        "nats": lambda: NATSDriver(NATS, stream=prefix),
    }
    for name, make in drivers.items():
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            bus, jobs = await enter(_bus(make())), await enter(_jobs(make(), name, prefix))
            cases = [Case(MESSAGE, bus.flow, JOBS), Case(JOB, jobs.flow, JOBS)]
            work = Work(f"on {name}", "µs", MESSAGE, cases, {JOB: Target(1 / SHARE, MESSAGE)})
            cost = [Case(MESSAGE, bus.cost, JOBS), Case(JOB, jobs.cost, JOBS)]
            spent = Work(f"on {name}, processor time of the process", "µs", MESSAGE, cost)
            await measure([work, spent], plan, rounds=plan.few(9))
            state = "memory" if name == "memory" else "Redis"
            note = (
                f"JSON of 256 bytes, a handler that does nothing, {BATCH} at a time, one process; the "
                f"state of the jobs in {state}. A job is kept with its end. Target: {SHARE} of the bus. "
                "Processor time is that of this process alone: what other programs do disturbs it less."
            )
            yield Section(f"Jobs over {name}", note, [work, spent])
    yield await _beside_peers(plan, drivers["redis"], prefix)


async def _beside_peers(
    plan: Plan, make: Callable[[], QueueDriverProtocol], prefix: str
) -> Section:
    await _drop_left_behind()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        ours = await enter(_jobs(make(), "redis", f"{prefix}-2"))
        made: dict[str, Any] = {
            "taskiq (Redis list)": await enter(peers.taskiq_redis(REDIS)),
            "arq (Redis)": await enter(peers.arq(REDIS)),
            "dramatiq (Redis)": await enter(peers.dramatiq(REDIS)),
            "procrastinate": await enter(peers.procrastinate(await enter(_database()))),
        }
        cases = [Case("lexigram over redis", ours.flow, JOBS)]
        cases += [Case(name, peer.work, FEW) for name, peer in made.items()]
        work = Work("a no-op job", "µs", "taskiq (Redis list)", cases)
        await measure([work], plan, rounds=plan.few(5))
    note = (
        "Ours is measured from the first enqueue on, 100 at a time; of the peers only the working off "
        "counts. arq and taskiq keep no result, and taskiq's list loses the jobs of a killed worker."
    )
    return Section("Jobs over Redis, beside the peers", note, [work])


class _Contestant:
    """Counts what is handled; ``send`` is the contestant's own."""

    def __init__(self, send: Callable[[int], Any]) -> None:
        self._send = send
        self._left = 0
        self._done: asyncio.Future[int] | None = None

    def count(self) -> None:
        self._left -= 1
        if not self._left and self._done is not None:
            self._done.set_result(time.perf_counter_ns())

    async def flow(self, loops: int) -> int:
        self._left = -(-loops // BATCH) * BATCH
        self._done = asyncio.get_running_loop().create_future()
        start = time.perf_counter_ns()
        for _ in range(0, loops, BATCH):
            await self._send(BATCH)
        async with asyncio.timeout(60):
            return await self._done - start

    async def cost(self, loops: int) -> int:
        """The same in processor time of this process, ends that are still written included."""
        start = time.process_time_ns()
        await self.flow(loops)
        await asyncio.sleep(SETTLED)
        return time.process_time_ns() - start


@asynccontextmanager
async def _bus(driver: QueueDriverProtocol) -> AsyncIterator[_Contestant]:
    options = BusOptions(prefetch=BATCH, concurrency=BATCH)
    async with BusQueue(driver, options=options) as queue:

        async def send(number: int) -> None:
            await queue.publish_many("t", [BusMessage(payload=PAYLOAD) for _ in range(number)])

        made = _Contestant(send)

        async def handle(_: BusMessage) -> None:
            made.count()

        await queue.subscribe("t", handle)
        yield made
        await driver.drop("t", "default")


@asynccontextmanager
async def _jobs(driver: QueueDriverProtocol, name: str, prefix: str) -> AsyncIterator[_Contestant]:
    await driver.connect()
    redis = None if name == "memory" else RedisJobs(REDIS, prefix=f"{prefix}:{name}:{{jobs}}")
    queue = BusTaskQueue(driver, redis or MemoryStore())

    async def send(number: int) -> None:
        await queue.enqueue_many([{"name": "noop", "kwargs": PAYLOAD}] * number)

    made = _Contestant(send)

    async def noop(**_: Any) -> None:
        made.count()

    settings = PoolSettings(concurrency=BATCH, prefetch=BATCH)
    worker = TaskWorker("bench", queue, {"noop": noop}, settings)
    await worker.start()
    yield made
    await worker.stop()
    await queue.purge(0)
    for topic, group in await driver.groups():
        await driver.drop(topic, group)
    await driver.close()
    if redis is not None:
        await redis.aclose()
