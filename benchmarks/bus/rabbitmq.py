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

from bus.contest import BATCH, OURS, PAYLOAD, Contestant, idle_latency, ours
from harness import Case, Facts, Plan, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions
from lexigram.queue.backends.rabbitmq import RabbitMQQueue

PEERS = ("aio-pika", "faststream", "taskiq", "taskiq-aio-pika")
RABBITMQ = os.environ.get("LEX_BENCH_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/")

MESSAGES = 1_000
RAW, FASTSTREAM, TASKIQ = "raw aio-pika", "FastStream", "taskiq"
SHARE_OF_RAW = 0.85  # targets.md


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
        yield await idle_latency(plan, "RabbitMQ", made)


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


@asynccontextmanager
async def _raw() -> AsyncIterator[Contestant]:
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

    class Raw(Contestant):
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
async def _ours() -> AsyncIterator[Contestant]:
    exchange = f"lex-bench-{secrets.token_hex(4)}"
    options = BusOptions(prefetch=BATCH)
    async with RabbitMQQueue(RABBITMQ, exchange, options=options) as queue:
        yield await ours(queue)
        for subscription in queue.subscriptions:
            await subscription.stop()
        await queue.driver.drop("t", "default")
    await _delete(exchange, f"{exchange}//registry", f"{exchange}//control")


@asynccontextmanager
async def _faststream() -> AsyncIterator[Contestant]:
    from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

    broker = RabbitBroker(
        RABBITMQ,
        logger=None,
        log_level=logging.CRITICAL,
        default_channel=Channel(prefetch_count=BATCH),
    )
    name = f"lex-bench-{secrets.token_hex(4)}"

    class FastStream(Contestant):
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
async def _taskiq() -> AsyncIterator[Contestant]:
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

    class Taskiq(Contestant):
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
