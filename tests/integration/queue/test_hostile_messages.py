"""Whatever others send on the native protocol: it is handled or set aside as undecodable.

No receive fails, no connection is lost, no message comes for ever. ``make chaos`` sends 10,000 to
each broker; the decoders alone are in ``tests/unit/queue/test_hostile_headers.py``.
"""

import os
import struct

import nats
import pytest
from tests.integration.queue import hostile
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name
from tests.redis_keys import delete_keys

from lexigram.contracts.queue import BusMessage, DeadLetterReason, MessageTooLargeError
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.backends.sql import SqlDriver
from lexigram.queue.operations.control import BusControl
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

# A message that comes again would be retried: here, that is a failure of the test.
OPTIONS = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01), max_deliveries=50)
TOPIC = "hostile"
NUMBER = 10_000 if int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50 else 60


@pytest.fixture
async def nats_queue(services):
    name, address = unique_name(), services["nats"].address
    queue = BusQueue(NATSDriver(f"nats://{address}", stream=name), options=OPTIONS)
    await queue.connect()
    yield queue
    await queue.close()
    client = await nats.connect(f"nats://{address}")
    for one in (name, f"{name}-records", f"{name}-dead"):
        await client.request(f"$JS.API.STREAM.DELETE.{one}")
    await client.close()


@pytest.mark.service("nats")
@pytest.mark.chaos
async def test_hostile_messages_on_nats(nats_queue, services):
    subject = f"{nats_queue.driver.stream}.{TOPIC}"
    async with hostile.nats_producer(services["nats"].address, subject) as send:
        await hostile.survives(nats_queue, send, NUMBER)


@pytest.mark.service("nats")
@pytest.mark.parametrize(
    "block",
    [
        b"X",
        b"NATS/1.0",
        b"NATS/1.0 \xff\xff\r\n\r\n",
        b"NATS/1.0\r\ndeliver-at: soon\r\n\r\n",
    ],
)
async def test_a_block_of_headers_that_is_none_is_a_dead_letter_and_seen_by_a_peek(
    nats_queue, services, block
):
    """The first three end the reader of the client library, which says nothing about it."""
    await nats_queue.driver.declare(TOPIC, "default")
    subject = f"{nats_queue.driver.stream}.{TOPIC}"
    async with hostile.nats_producer(services["nats"].address, subject) as send:
        await send.block(block, b"1")
        control = BusControl({"nats": nats_queue})
        (seen,) = await control.peek(TOPIC, "default")
        assert seen.payload == 1
        _, (letter,) = await hostile.survives(nats_queue, send, 0, sent=1)
    assert letter.reason is DeadLetterReason.UNDECODABLE
    assert "headers that cannot be read" in letter.error


@pytest.mark.service("nats")
@pytest.mark.parametrize("status", [b"404", b"503", b"abc", b"9" * 5_000])
async def test_a_message_with_a_header_status_and_no_body_is_a_message(
    nats_queue, services, status
):
    await nats_queue.driver.declare(TOPIC, "default")
    subject = f"{nats_queue.driver.stream}.{TOPIC}"
    async with hostile.nats_producer(services["nats"].address, subject) as send:
        await send.block(b"NATS/1.0\r\nStatus: " + status + b"\r\n\r\n")
        (seen,) = await nats_queue.driver.peek(TOPIC, "default")
        assert seen.payload == b""
        handled, letters = await hostile.survives(nats_queue, send, 0, sent=1)
    assert (len(handled), letters) == (2, [])


@pytest.mark.service("nats")
async def test_a_foreign_message_as_large_as_the_server_takes_can_be_set_aside(
    nats_queue, services
):
    """A dead letter adds headers, for which it leaves no room: it would come again for ever."""
    subject = f"{nats_queue.driver.stream}.{TOPIC}"
    block = (
        b"NATS/1.0\r\ncontent-type: image/png\r\ntenant: 7\r\nnote: " + b"n" * 5_000 + b"\r\n\r\n"
    )
    body = b"x" * (1024 * 1024 - len(block))
    failed = []

    async def fail(message):
        failed.append(message.retry_count)
        raise ValueError("no")

    await nats_queue.driver.declare(TOPIC, "default")
    async with hostile.nats_producer(services["nats"].address, subject) as send:
        await send.block(block, body)
    await nats_queue.subscribe(TOPIC, fail)
    await wait_until(lambda: nats_queue.driver.count_dead(TOPIC, "default"))
    (entry,) = await nats_queue.driver.list_dead(TOPIC, "default")
    assert failed == [0, 1, 2, 3]
    assert entry.message.headers["tenant"] == "7"
    assert body.startswith(entry.message.payload)


@pytest.mark.service("nats")
async def test_headers_that_a_stream_would_not_take_are_refused_at_publish(nats_queue):
    """The server answers with an error, which looked like the loss of the connection."""
    with pytest.raises(MessageTooLargeError, match="bytes of headers"):
        await nats_queue.publish(TOPIC, BusMessage(headers={"note": "語" * 9_000}))
    await nats_queue.publish(TOPIC, BusMessage(headers={"note": "語" * 5_000}))


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


@pytest.fixture
async def rabbitmq_queue(vhost):
    name = unique_name()
    queue = BusQueue(RabbitMQDriver(vhost, exchange=name), options=OPTIONS)
    await queue.connect()
    await queue.driver.declare(TOPIC, "default")
    yield queue
    await queue.close()
    await clear(RabbitMQDriver(vhost, exchange=name))


@pytest.mark.service("rabbitmq")
@pytest.mark.chaos
async def test_hostile_messages_on_rabbitmq(rabbitmq_queue, vhost):
    exchange = rabbitmq_queue.driver._names.exchange
    async with hostile.RabbitMQProducer(vhost, exchange, TOPIC) as send:
        await hostile.survives(rabbitmq_queue, send, NUMBER)


@pytest.mark.service("redis")
@pytest.mark.chaos
async def test_hostile_messages_on_redis(services):
    url, prefix = f"redis://{services['redis'].address}/0", unique_name()
    queue = BusQueue(RedisDriver(url, prefix=prefix), options=OPTIONS)
    await queue.connect()
    await queue.driver.declare(TOPIC, "default")
    try:
        async with hostile.redis_producer(url, f"{prefix}:topic:{TOPIC}") as send:
            await hostile.survives(queue, send, NUMBER)
    finally:
        await queue.driver.drop(TOPIC, "default")
        await queue.close()
        await delete_keys(url, f"{prefix}:*")


@pytest.mark.service("rabbitmq")
@pytest.mark.parametrize(
    "properties",
    [
        struct.pack(">HQ", 1 << 6, 1_700_000_000_000_000_000),  # a time in nanoseconds
        struct.pack(">HB", 1 << 7, 2) + b"\xff\xfe",  # an id that is not UTF-8
        struct.pack(">HIB", 1 << 13, 9, 1)
        + b"\xffS\0\0\0\x02\xff\xff",  # a name of a header neither
    ],
    ids=["time", "id", "name"],
)
async def test_properties_the_client_cannot_decode_end_no_connection(
    rabbitmq_queue, vhost, properties
):
    exchange = rabbitmq_queue.driver._names.exchange
    async with hostile.RabbitMQProducer(vhost, exchange, TOPIC) as producer:
        await producer.send(properties, b"[1]")
        _, (letter,) = await hostile.survives(rabbitmq_queue, producer, 0, sent=1)
    assert letter.reason is DeadLetterReason.UNDECODABLE
    assert letter.message.payload == [1]
    assert "all properties and headers" in letter.error


@pytest.mark.service("rabbitmq")
@pytest.mark.parametrize("body", [b"", b"x", b"1", b"[[]]", b'["t", "g", 1, {}]', b"[" * 100_000])
async def test_foreign_messages_in_the_queues_of_the_driver_are_passed_over(
    rabbitmq_queue, vhost, body
):
    names = rabbitmq_queue.driver._names
    for exchange, key in ((names.control, ""), ("", names.registry)):
        async with hostile.RabbitMQProducer(vhost, exchange, key) as producer:
            await producer.send(b"\0\0", body)
    driver = rabbitmq_queue.driver
    assert list(await driver.groups()) == [(TOPIC, "default")]
    await driver.set_paused(TOPIC, "default", True)
    assert await driver.is_paused(TOPIC, "default")
    await driver.set_paused(TOPIC, "default", False)
    async with hostile.RabbitMQProducer(vhost, names.exchange, TOPIC) as producer:
        await hostile.survives(rabbitmq_queue, producer, 0)


@pytest.mark.chaos
async def test_hostile_rows_in_the_tables(database, database_url):
    queue = BusQueue(SqlDriver(database_url), options=OPTIONS)
    await queue.connect()
    await queue.driver.declare(TOPIC, "default")
    try:
        await hostile.survives(queue, hostile.sql_producer(database, TOPIC), NUMBER)
    finally:
        await queue.close()
