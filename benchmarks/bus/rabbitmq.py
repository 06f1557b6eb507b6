"""RabbitMQ: messages a second and idle latency, beside raw aio-pika, FastStream and taskiq."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from harness import Case, Facts, Plan, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions
from lexigram.queue.backends.rabbitmq import RabbitMQQueue

PEERS = ("aio-pika", "faststream", "taskiq", "taskiq-aio-pika")
RABBITMQ = os.environ.get("LEX_BENCH_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/")

BATCH = 100
MESSAGES = 1_000
PAYLOAD = {"id": 12345, "name": "Ada Lovelace", "tags": ["a", "b", "c"], "text": "x" * 180}
RAW, OURS, FASTSTREAM, TASKIQ = "raw aio-pika", "lexigram", "FastStream", "taskiq"
SHARE_OF_RAW = 0.85  # targets.md
IDLE_MS = 0.4  # above raw


async def sections(plan: Plan) -> AsyncIterator[Section | Facts]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        made = {
            RAW: await enter(_raw()),
            OURS: await enter(_ours()),
            FASTSTREAM: await enter(_faststream()),
            TASKIQ: await enter(_taskiq()),
        }
        yield await _throughput(plan, made)
        yield await _latency(plan, made)


async def _throughput(plan: Plan, made: dict[str, Any]) -> Section:
    cases = [Case(who, one.flow, MESSAGES) for who, one in made.items()]
    work = Work(
        "publish, handle, acknowledge one message",
        "µs",
        RAW,
        cases,
        {OURS: Target(1 / SHARE_OF_RAW, RAW)},
    )
    await measure([work], plan, rounds=plan.few(15))
    return Section(
        "RabbitMQ",
        f"JSON of 256 bytes, persistent, confirmed, a handler that does nothing, one process, "
        f"{BATCH} messages at a time, prefetch {BATCH}. Target: {SHARE_OF_RAW} of raw.",
        [work],
    )


async def _latency(plan: Plan, made: dict[str, Any]) -> Section:
    async def once(one: Any, loops: int) -> int:
        spent = 0
        for _ in range(loops):
            await asyncio.sleep(0.002)  # idle again
            spent += await one.one()
        return spent

    cases = [Case(who, lambda loops, one=one: once(one, loops), 20) for who, one in made.items()]
    work = Work("publish to handler, idle", "ms", RAW, cases)
    await measure([work], plan, rounds=plan.few(21))
    raw = work.case(RAW)
    assert raw is not None
    work.targets = {OURS: Target(raw.median / 1e6 + IDLE_MS)}
    return Section("RabbitMQ, idle latency", f"Target: at most {IDLE_MS} ms more than raw.", [work])


class _Contestant:
    """Counts what is handled; ``send`` is the contestant's own way to publish one message."""

    def __init__(self) -> None:
        self.handled, self.wanted = 0, 0
        self.done: asyncio.Future[int] | None = None

    def count(self) -> None:
        self.handled += 1
        if self.handled >= self.wanted and self.done is not None and not self.done.done():
            self.done.set_result(time.perf_counter_ns())

    async def send(self) -> None:
        raise NotImplementedError

    async def publish(self, number: int) -> None:
        await asyncio.gather(*(self.send() for _ in range(number)))

    async def flow(self, loops: int) -> int:
        self.handled, self.wanted = 0, loops
        self.done = asyncio.get_running_loop().create_future()
        start = time.perf_counter_ns()
        for _ in range(0, loops, BATCH):
            await self.publish(BATCH)
        return await self.done - start

    async def one(self) -> int:
        self.handled, self.wanted = 0, 1
        self.done = asyncio.get_running_loop().create_future()
        start = time.perf_counter_ns()
        await self.send()
        return await self.done - start


@asynccontextmanager
async def _raw() -> AsyncIterator[_Contestant]:
    """What aio-pika can do: many publishes on their way at once, JSON both ways."""
    import aio_pika
    import orjson

    name = f"lex-bench-{secrets.token_hex(4)}"
    connection = await aio_pika.connect(RABBITMQ)
    out, into = await connection.channel(), await connection.channel()
    await into.set_qos(prefetch_count=BATCH)
    exchange = await out.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
    queue = await into.declare_queue(name, durable=True)
    await queue.bind(name, "t")

    class Raw(_Contestant):
        async def send(self) -> None:
            message = aio_pika.Message(
                orjson.dumps(PAYLOAD), delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            )
            await exchange.publish(message, "t")

    raw = Raw()

    async def handle(message: Any) -> None:
        orjson.loads(message.body)
        raw.count()
        await message.ack()

    await queue.consume(handle)
    yield raw
    await queue.delete(if_unused=False, if_empty=False)
    await exchange.delete()
    await connection.close()


@asynccontextmanager
async def _ours() -> AsyncIterator[_Contestant]:
    exchange = f"lex-bench-{secrets.token_hex(4)}"
    options = BusOptions(prefetch=BATCH)
    async with RabbitMQQueue(RABBITMQ, exchange, options=options) as queue:

        class Ours(_Contestant):
            async def send(self) -> None:
                await queue.publish("t", BusMessage(payload=PAYLOAD))

            async def publish(self, number: int) -> None:
                await queue.publish_many("t", [BusMessage(payload=PAYLOAD) for _ in range(number)])

        ours = Ours()

        async def handle(message: BusMessage) -> None:
            ours.count()

        await queue.subscribe("t", handle)
        yield ours
        for subscription in queue.subscriptions:
            await subscription.stop()
        await queue.driver.drop("t", "default")
    await _delete(exchange, f"{exchange}//registry", f"{exchange}//control")


@asynccontextmanager
async def _faststream() -> AsyncIterator[_Contestant]:
    from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

    broker = RabbitBroker(
        RABBITMQ,
        logger=None,
        log_level=logging.CRITICAL,
        default_channel=Channel(prefetch_count=BATCH),
    )
    name = f"lex-bench-{secrets.token_hex(4)}"

    class FastStream(_Contestant):
        async def send(self) -> None:
            await broker.publish(PAYLOAD, name, persist=True)

    made = FastStream()

    @broker.subscriber(RabbitQueue(name, durable=True))
    async def handle(body: dict[str, Any]) -> None:
        made.count()

    await broker.start()
    yield made
    await broker.stop()
    await _delete(name)


@asynccontextmanager
async def _taskiq() -> AsyncIterator[_Contestant]:
    from taskiq.receiver import Receiver
    from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

    name = f"lex-bench-{secrets.token_hex(4)}"
    queues = [Queue(name=f"{name}{part}") for part in ("", ".dead_letter", ".delay")]
    broker = AioPikaBroker(
        RABBITMQ,
        qos=BATCH,
        exchange=Exchange(name=name),
        task_queues=queues[:1],
        dead_letter_queue=queues[1],
        delay_queue=queues[2],
    )
    broker.is_worker_process = True

    class Taskiq(_Contestant):
        async def send(self) -> None:
            await handle.kiq(PAYLOAD)

    made = Taskiq()

    @broker.task(task_name="handle")
    async def handle(body: dict[str, Any]) -> None:
        made.count()

    await broker.startup()
    stop = asyncio.Event()
    task = asyncio.create_task(Receiver(broker, run_startup=False).listen(stop))
    yield made
    stop.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await broker.shutdown()
    await _delete(*(queue.name for queue in queues))


async def _delete(*names: str) -> None:
    import aio_pika

    connection = await aio_pika.connect(RABBITMQ)
    channel = await connection.channel()
    for name in names:
        await channel.queue_delete(name)
        await channel.exchange_delete(name)
    await connection.close()
