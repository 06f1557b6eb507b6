"""NATS JetStream: messages a second and idle latency, beside raw nats-py and FastStream."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bus.contest import BATCH, OURS, PAYLOAD, Contestant, idle_latency, ours
from harness import Case, Plan, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions
from lexigram.queue.backends.nats import NATSQueue

NATS = os.environ.get("LEX_BENCH_NATS", "nats://127.0.0.1:4222")
MESSAGES = 2_000
RAW, FASTSTREAM = "raw nats-py, batched", "FastStream"
SHARE_OF_RAW = 0.8  # targets.md


async def sections(plan: Plan) -> AsyncIterator[Section]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        made = {
            RAW: await enter(_raw()),
            OURS: await enter(_ours()),
            FASTSTREAM: await enter(_faststream()),
        }
        yield await _throughput(plan, made)
        yield await idle_latency(plan, "NATS", made, pause=0.01)  # also on a busy machine


async def _throughput(plan: Plan, made: dict[str, Any]) -> Section:
    cases = [Case(who, one.flow, MESSAGES) for who, one in made.items()]
    targets = {OURS: Target(1 / SHARE_OF_RAW, RAW)}
    work = Work("publish, handle, acknowledge one message", "µs", RAW, cases, targets)
    await measure([work], plan, rounds=plan.few(9))
    return Section(
        "NATS JetStream",
        "JSON of 256 bytes, a handler that does nothing, at least once, interest retention, "
        f"files, one process, {BATCH} messages at a time. Raw: publish_async, fetch, ack; the "
        f"limit of nats-py itself. Target: {SHARE_OF_RAW} of raw.",
        [work],
    )


@asynccontextmanager
async def _stream() -> AsyncIterator[str]:
    import nats
    from nats.js.errors import NotFoundError

    name = f"bench-{secrets.token_hex(4)}"
    yield name
    client = await nats.connect(NATS)
    for kind in ("", "-records", "-dead"):
        try:
            await client.jetstream().delete_stream(name + kind)
        except NotFoundError:
            continue  # only ours has three
    await client.close()


@asynccontextmanager
async def _raw() -> AsyncIterator[Contestant]:
    """What nats-py can do: batches both ways, JSON both ways, acknowledged."""
    import nats
    import orjson
    from nats.js.api import ConsumerConfig, RetentionPolicy

    async with _stream() as stream:
        out, into = await nats.connect(NATS), await nats.connect(NATS)
        sender, receiver = out.jetstream(), into.jetstream()
        await sender.add_stream(
            name=stream, subjects=[f"{stream}.>"], retention=RetentionPolicy.INTEREST
        )
        subject = f"{stream}.t"
        pulled = await receiver.pull_subscribe(
            subject, durable="g", stream=stream, config=ConsumerConfig(max_ack_pending=-1)
        )

        class Raw(Contestant):
            async def publish(self, number: int) -> None:
                sent = [
                    await sender.publish_async(subject, orjson.dumps(PAYLOAD))
                    for _ in range(number)
                ]
                await asyncio.gather(*sent)

        raw = Raw()

        async def consume() -> None:
            while True:
                try:
                    found = await pulled.fetch(BATCH, timeout=1)
                except TimeoutError:  # of nats or of asyncio, by the way it took
                    continue
                for one in found:
                    orjson.loads(one.data)
                    raw.count()
                for one in found:
                    await one.ack()

        task = asyncio.create_task(consume())
        yield raw
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await out.close()
        await into.close()


@asynccontextmanager
async def _ours() -> AsyncIterator[Contestant]:
    options = BusOptions(prefetch=BATCH)
    async with _stream() as stream, NATSQueue(NATS, stream, options=options) as queue:
        yield await ours(queue)


@asynccontextmanager
async def _faststream() -> AsyncIterator[Contestant]:
    import logging

    from faststream.nats import JStream, NatsBroker, PullSub

    async with _stream() as name:
        broker = NatsBroker(NATS, logger=None, log_level=logging.CRITICAL)
        stream = JStream(name, subjects=[f"{name}.>"])

        class FastStream(Contestant):
            async def publish(self, number: int) -> None:
                await asyncio.gather(
                    *(broker.publish(PAYLOAD, f"{name}.t", stream=name) for _ in range(number))
                )

        made = FastStream()

        @broker.subscriber(
            f"{name}.t", stream=stream, durable="g", pull_sub=PullSub(batch_size=BATCH)
        )
        async def handle(body: dict[str, Any]) -> None:
            made.count()

        await broker.start()
        yield made
        await broker.stop()
