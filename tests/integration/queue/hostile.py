"""Messages of producers that know no rules, on the native protocol of each broker."""

import asyncio
import json
import random
import struct
from contextlib import asynccontextmanager

import aiormq
import anyio
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import marshal
from tests.hostile import SEED, amqp_properties, hostile_body, hostile_headers, nats_block

from lexigram.contracts.queue import BusMessage, Capability, DeadLetterReason
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.testing import wait_until


async def survives(queue, send, number, *, sent=0, topic="hostile", seed=SEED):
    """Every hostile message is handled or set aside, a good one behind them is handled.

    ``send(chance)`` publishes one of them with the broker's own means; ``sent`` are there already.
    """
    handled, chance = [], random.Random(seed)

    async def handle(message):
        handled.append(message.id)

    await queue.subscribe(topic, handle)
    (subscription,) = queue.subscriptions
    losses = []
    queue.set_metrics(_Losses(losses))
    for _ in range(number):
        await send(chance)
    await queue.publish(topic, BusMessage(id="good", payload=1))

    async def are_all_done():
        if "good" not in handled or subscription.in_flight:
            return False
        # Not by counting what was handled: some have the same id, and are one dead letter.
        driver = queue.driver
        return not queue.can(Capability.DEPTH) or await driver.depth(topic, "default") == 0

    await wait_until(are_all_done, timeout=60 + number / 2)
    assert not losses, losses
    assert not subscription.restarted, subscription.restarted
    letters = await DeadLetters(queue).list(limit=number + sent)
    assert {entry.reason for entry in letters} <= {
        DeadLetterReason.UNDECODABLE,
        DeadLetterReason.EXPIRED,
        DeadLetterReason.POISON,
    }
    return handled, letters


class _Losses:
    """Metrics that remember what must not happen."""

    def __init__(self, losses):
        self._losses = losses

    def increment(self, name, value=1.0, tags=None):
        if name.endswith((".restarted", ".unsettled", ".lease_lost", ".retried")):
            self._losses.append(name)

    def gauge(self, name, value, tags=None):
        pass

    def histogram(self, name, value, tags=None):
        pass


# NATS.


@asynccontextmanager
async def nats_producer(address, subject):
    """Sends any block of headers, which the client libraries would refuse."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')

    async def send(chance):
        await send_block(nats_block(chance), hostile_body(chance))

    async def send_block(block, body=b""):
        sizes = f"{len(block)} {len(block) + len(body)}"
        writer.write(f"HPUB {subject} {sizes}\r\n".encode() + block + body + b"\r\nPING\r\n")
        answer = await reader.readline()
        while answer != b"PONG\r\n":
            assert not answer.startswith(b"-ERR"), answer
            if answer == b"PING\r\n":
                writer.write(b"PONG\r\n")
            answer = await reader.readline()

    send.block = send_block
    try:
        yield send
    finally:
        writer.close()


# RabbitMQ.


class RabbitMQProducer:
    """Sends properties as bytes: what the client's own encoder would refuse."""

    def __init__(self, url, exchange, key):
        self._url, self._place = url, {"exchange": exchange, "routing_key": key}
        self._connection = self._channel = None

    async def __aenter__(self):
        self._connection = await aiormq.connect(self._url)
        self._channel = await self._connection.channel()
        return self

    async def __aexit__(self, *_):
        await self._connection.close()

    async def __call__(self, chance):
        """Send one that the broker takes: some end the connection of who sends them."""
        while True:
            try:
                return await self.send(amqp_properties(chance), hostile_body(chance))
            except (aiormq.exceptions.AMQPError, asyncio.CancelledError):
                await self.__aexit__()
                await self.__aenter__()

    async def send(self, properties, body=b""):
        channel = self._channel
        header = struct.pack(">HHQ", 60, 0, len(body)) + properties
        parts = [
            marshal(Basic.Publish(**self._place), channel.number),
            struct.pack(">BHI", 2, channel.number, len(header)) + header + b"\xce",
        ]
        if body:
            parts.append(marshal(ContentBody(body), channel.number))
        channel.delivery_tag += 1
        confirm = channel.confirmations[channel.delivery_tag] = channel.create_future()
        await channel.write_queue.put(ChannelFrame(payload=b"".join(parts), should_close=False))
        with anyio.fail_after(60):
            await confirm


# Redis.


@asynccontextmanager
async def redis_producer(url, stream):
    from redis.asyncio import Redis

    client = Redis.from_url(url)

    async def send(chance):
        fields = list(hostile_headers(chance).items())
        if chance.random() < 0.8:
            fields.insert(chance.randint(0, len(fields)), (b"body", hostile_body(chance)))
        flat = [part for pair in fields or [(b"", b"")] for part in pair]
        await client.execute_command("XADD", stream, "*", *flat)

    try:
        yield send
    finally:
        await client.aclose()


# The database of the sql driver.


def sql_producer(database, topic):
    """Writes rows past the driver, as a program may that has learned its tables."""

    async def send(chance):
        headers = {as_text(name): as_text(value) for name, value in hostile_headers(chance).items()}
        text = json.dumps(headers).replace("\\u0000", "")
        odd = [text, "{}", "[]", "null", '{"a": 1}', '{"a"', "[" * 5_000, '{"a": "\\ud800"}']
        times = [1.7e9, 0.0, -1.0, 1e300, float("inf")]  # SQLite makes NULL of what is no number
        row = (
            chance.choice(["", "mine", "x" * 2_000, "line\nbreak"]),
            topic,
            hostile_body(chance),
            chance.choice(odd),
            chance.choice(times),
            chance.choice([None, 1e9, -1.0, 1e300]),
            chance.choice([0, 5, 2**31 - 1, -(2**31)]),
            chance.choice(["at_least_once", "exactly_once", "often", ""]),
            chance.choice([0, 3, -1, 2**31 - 1]),
            chance.choice([3, 0, -1]),
        )
        async with database.transaction():
            group = (await database.execute_query(GROUP, (topic,))).rows[0]["id"]
            seq = (await database.execute_query(ROW, row)).rows[0]["seq"]
            envelope = chance.choice([None, None, *odd])
            await database.execute(DELIVERY, (group, seq, row[0], envelope))

    return send


GROUP = "SELECT id FROM lexigram_bus_groups WHERE topic = ?"
ROW = """
INSERT INTO lexigram_bus_messages (id, topic, body, headers, sent_at, ttl, priority, guarantee,
    retry_count, max_retries, due_at, copies, remaining)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1, 1) RETURNING seq"""
DELIVERY = """
INSERT INTO lexigram_bus_deliveries (group_id, message, id, state, due_at, queued_at, rank, envelope)
VALUES (?, ?, ?, 'ready', 0, 0, 0, ?)"""


def asas_text(value):
    return value.decode("utf-8", "replace").replace("\0", "")


def as_text(value):
    """Bytes as a client makes text of them; without NUL, which most services refuse."""
    return value.decode("utf-8", "replace").replace("\0", "")
