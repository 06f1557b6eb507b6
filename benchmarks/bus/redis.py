"""Redis Streams: messages a second and idle latency, beside raw redis-py, FastStream and taskiq."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bus.contest import (
    BATCH,
    FAIRNESS,
    OURS,
    PAYLOAD,
    Contestant,
    fairness_row,
    idle_latency,
    ours,
    ten_behind,
)
from harness import Case, Facts, Plan, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions
from lexigram.queue.backends.redis import RedisQueue, lane_of

PEERS = ("redis", "hiredis", "faststream", "taskiq", "taskiq-redis")
REDIS = os.environ.get("LEX_BENCH_REDIS", "redis://127.0.0.1:6379/0")

MESSAGES = 5_000
TOGETHER = 10  # publishes of a peer without batches; more are no quicker
FEW = 1_000  # for those that take half a millisecond a message
RAW, FASTSTREAM, TASKIQ = "raw redis-py, pipelined", "FastStream", "taskiq"
SHARE_OF_RAW = 0.45  # targets.md
TIMES_FASTSTREAM = 8


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
        yield await idle_latency(plan, "Redis", made)
    yield await _fairness(plan)


async def _throughput(plan: Plan, made: dict[str, Any]) -> Section:
    cases = [
        Case(who, one.flow, MESSAGES if who in (RAW, OURS) else FEW) for who, one in made.items()
    ]
    work = Work(
        "publish, handle, acknowledge one message",
        "µs",
        RAW,
        cases,
        {OURS: Target(1 / SHARE_OF_RAW, RAW)},
    )
    second = Work("the same, by FastStream", "µs", FASTSTREAM, cases)
    await measure([work], plan, rounds=plan.few(9))
    second.targets = {OURS: Target(1 / TIMES_FASTSTREAM, FASTSTREAM)}
    return Section(
        "Redis Streams",
        f"JSON of 256 bytes, a handler that does nothing, at least once, one process, {BATCH} "
        f"messages at a time. Target: {SHARE_OF_RAW} of raw, {TIMES_FASTSTREAM} times FastStream.",
        [work, second],
    )


async def _fairness(plan: Plan) -> Facts:
    """Ten messages of a tenant, alone and behind 10,000 of another."""
    flooding = "flood"
    late = next(f"late{n}" for n in range(99) if lane_of(f"late{n}") != lane_of(flooding))

    async def ten(flood: str | None) -> float:
        options = BusOptions(drain_timeout=0.0)
        async with _emptied() as prefix, RedisQueue(REDIS, prefix=prefix, options=options) as queue:
            return await ten_behind(queue, late, flood)

    ratios = []
    for _ in range(3 if plan.quick else 7):
        alone = await ten(None)
        ratios.append(await ten(flooding) / alone)
    return Facts(
        "Redis, fairness",
        FAIRNESS,
        ["work", "median", "worst", "target", ""],
        [fairness_row("ten behind 10,000", ratios)],
    )


@asynccontextmanager
async def _emptied() -> AsyncIterator[str]:
    from redis.asyncio import Redis

    prefix = f"lex-bench-{secrets.token_hex(4)}"
    try:
        yield prefix
    finally:
        client = Redis.from_url(REDIS)
        async for key in client.scan_iter(f"{prefix}*", count=1000):
            await client.delete(key)
        await client.aclose()


@asynccontextmanager
async def _raw() -> AsyncIterator[Contestant]:
    """What redis-py can do: batches both ways, JSON both ways, acknowledged and removed."""
    import orjson
    from redis.asyncio import Redis

    async with _emptied() as prefix:
        out, into = Redis.from_url(REDIS), Redis.from_url(REDIS)
        stream = f"{prefix}:raw"
        await out.xgroup_create(stream, "g", mkstream=True)

        class Raw(Contestant):
            async def publish(self, number: int) -> None:
                async with out.pipeline(transaction=False) as batch:
                    for _ in range(number):
                        batch.xadd(stream, {"body": orjson.dumps(PAYLOAD)})
                    await batch.execute()

        raw = Raw()

        async def consume() -> None:
            while True:
                found = await into.xreadgroup("g", "c", {stream: ">"}, count=BATCH, block=1000)
                entries = (
                    (found.get(stream.encode()) or [[]])[0]
                    if isinstance(found, dict)
                    else (found[0][1] if found else [])
                )
                for _, fields in entries:
                    orjson.loads(fields[b"body"])
                    raw.count()
                if entries:
                    ids = [entry for entry, _ in entries]
                    async with into.pipeline(transaction=False) as batch:
                        batch.xack(stream, "g", *ids)
                        batch.xdel(stream, *ids)
                        await batch.execute()

        task = asyncio.create_task(consume())
        yield raw
        while not task.done():  # redis-py loses a cancellation now and then
            task.cancel()
            await asyncio.sleep(0.01)
        await out.aclose()
        await into.aclose()


@asynccontextmanager
async def _ours() -> AsyncIterator[Contestant]:
    options = BusOptions(prefetch=BATCH)
    async with _emptied() as prefix, RedisQueue(REDIS, prefix=prefix, options=options) as queue:
        yield await ours(queue)


@asynccontextmanager
async def _faststream() -> AsyncIterator[Contestant]:
    import logging

    from faststream.redis import RedisBroker, StreamSub

    async with _emptied() as prefix:
        broker = RedisBroker(REDIS, logger=None, log_level=logging.CRITICAL)
        stream = f"{prefix}:faststream"

        class FastStream(Contestant):
            async def publish(self, number: int) -> None:
                for _ in range(0, number, TOGETHER):
                    some = min(number, TOGETHER)
                    await asyncio.gather(
                        *(broker.publish(PAYLOAD, stream=stream) for _ in range(some))
                    )

        made = FastStream()

        @broker.subscriber(
            stream=StreamSub(
                stream, group="g", consumer="c", max_records=BATCH, polling_interval=100
            )
        )
        async def handle(body: dict[str, Any]) -> None:
            made.count()

        await broker.start()
        yield made
        await broker.stop()


@asynccontextmanager
async def _taskiq() -> AsyncIterator[Contestant]:
    from taskiq.receiver import Receiver
    from taskiq_redis import RedisStreamBroker

    async with _emptied() as prefix:
        broker = RedisStreamBroker(REDIS, queue_name=f"{prefix}:taskiq")
        broker.is_worker_process = True

        class Taskiq(Contestant):
            async def publish(self, number: int) -> None:
                for _ in range(0, number, TOGETHER):
                    some = min(number, TOGETHER)
                    await asyncio.gather(*(handle.kiq(PAYLOAD) for _ in range(some)))

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
