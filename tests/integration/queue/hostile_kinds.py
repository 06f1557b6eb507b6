"""What producers send that know no rules, kind by kind, and how each broker's own client sends it."""

import json
import struct
from contextlib import asynccontextmanager
from dataclasses import replace

from attrs import field, frozen
from azure.servicebus import ServiceBusMessage
from tests.doubles.pubsub.places import driver_on as pubsub_driver_on
from tests.doubles.servicebus.places import driver_on as azure_driver_on
from tests.integration.queue import hostile
from tests.integration.queue.rabbitmq_place import clear as rabbitmq_clear
from tests.names import unique_name
from tests.redis_keys import delete_keys

from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.backends.sql import SqlDriver
from lexigram.queue.runtime.envelope import from_headers
from lexigram.sql import Database

HANDLED, UNDECODABLE, EXPIRED, POISON = "handled", "undecodable", "expired", "poison"
JSON, TEXT, MSGPACK = b"application/json", b"text/plain", b"application/msgpack"


@frozen
class Kind:
    """One message of a foreign producer, and what becomes of it."""

    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b'{"a": 1}'
    end: str = HANDLED
    # Where a driver or its broker sees it in another way.
    ends: dict[str, str] = field(factory=dict)

    def on(self, driver):
        return self.ends.get(driver, self.end)


def bad(name, *values, **ends):
    """Values of a header that the bus reads, and cannot."""
    return {
        f"{name}={value[:20]!a}": Kind(((name.encode(), value),), end=UNDECODABLE, ends=ends)
        for value in values
    }


def odd(name, *values, **more):
    """Values of a header that are nothing to the bus."""
    return {f"{name}={value[:20]!a}": Kind(((name.encode(), value),), **more) for value in values}


def body(name, content, data, end=UNDECODABLE, **ends):
    headers = ((b"content-type", content),) if content is not None else ()
    return {f"body {name}": Kind(headers, data, end, ends)}


NOT_NUMBERS = (b"soon", b"nan", b"inf", b"-inf", b"1e300", b"-1", b"9" * 400, b"\xff\xfe")

KINDS = {
    "nothing": Kind((), b""),
    **bad("ce-lextimestamp", *NOT_NUMBERS, b"1_0e400"),
    **bad("ce-lexttl", *NOT_NUMBERS),
    **bad("ce-lexpriority", b"high", b"nan", b"1.5", b"9" * 30),
    **bad("ce-lexguarantee", b"often", b"EXACTLY_ONCE", b"\xff"),
    **bad("ce-lexretries", b"-1", b"many", b"nan", b"4294967296", b"\xff"),
    **bad("ce-lexmaxretries", b"-1", b"0x10", b"nan"),
    **bad("ce-time", b"yesterday", b"9999-99-99T00:00:00Z", b"0001-01-01T00:00:00+00:00"),
    **bad("ce-id", b"\x1b[31m", b"i" * 1_000),
    **bad("ce-lextopic", b"t" * 1_000, b"a\x7f", nats=HANDLED),
    **bad("deliver-at", *NOT_NUMBERS),
    **bad("ce-lexunreadable", b"forged"),
    **odd("ce-id", b"", b"\xff\xfe", b"\xed\xa0\x80", "é✓".encode(), b"*", b"i" * 512),
    **odd("ce-time", b"", b"2026-01-02T03:04:05Z", b"2026-01-02"),
    **odd("ce-lexguarantee", b"exactly_once", b"at_most_once"),
    **odd("ce-lexpriority", b"2147483647", b"-5"),
    **odd("ce-lexretries", b"2147483647", b"1e2"),
    **odd("ce-lexmaxretries", b"0"),
    **odd("deliver-at", b"0", b"1.5"),
    **odd("lex-begun", b"-1/-1", b"x", "²/³".encode(), b"9" * 300 + b"/1"),
    **odd("ordering-key", b"", b"\xff", b"k" * 1_000),
    **odd("fairness-key", b"", b"\xff", b"k" * 1_000),
    **odd("traceparent", b"00-zz", b"\xff", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),
    **odd("reply-to", b"*", b"\x00", b"r" * 1_000),
    **odd("correlation-id", b"\xff", b"c" * 1_000),
    **odd("dead-reason", b"\xff", b"expired"),
    **odd("dead-at", b"never"),
    **odd("letter-facts", b"not JSON"),
    **odd("Status", b"404", b"9" * 5_000, body=b""),
    **odd("Description", b"Consumer Deleted", body=b""),
    **odd("Nats-Sequence", b"abc"),
    **odd("Nats-Subject", b"elsewhere"),
    **odd("Nats-Msg-Id", b"\xff", b"m" * 1_000),
    **odd("lex-not-before", b"nan"),
    **odd("lex-settled", b"inf"),
    **odd("CC", b"elsewhere"),
    **odd("BCC", b"elsewhere"),
    **odd("x-death", b"often"),
    **odd("x-delivery-count", b"many"),
    **odd("x-lex-deliveries", b"many"),
    **bad("x-lex-due", b"soon", b"inf", redis=HANDLED, nats=HANDLED, sql=HANDLED, memory=HANDLED,
          azure_servicebus=HANDLED, gcp_pubsub=HANDLED),
    **odd("content-encoding", b"gzip"),
    **odd("", b"a value without a name"),
    **odd("a name: with\r\nwhat no name has", b"1"),
    "a name of 200 bytes that are not UTF-8": Kind(
        ((b"\xff" * 200, b"1"),), ends={"rabbitmq": UNDECODABLE}
    ),
    "a value with all control characters": Kind(((b"note", bytes(range(32))),)),
    "a value of bytes that are not UTF-8": Kind(((b"note", b"\xff" * 900),)),
    "a header of 60,000 bytes": Kind(
        ((b"note", b"n" * 60_000),), ends={"nats": UNDECODABLE}
    ),
    "a header of 45,000 bytes": Kind(((b"note", b"n" * 45_000),)),
    "a header of 8,000 characters that NATS escapes": Kind(
        ((b"note", "€".encode() * 8_000),), ends={"nats": UNDECODABLE}
    ),
    "headers of 90,000 bytes": Kind(
        tuple((b"note%d" % number, b"n" * 1_000) for number in range(90)),
        end=UNDECODABLE,
        ends={"azure_servicebus": HANDLED},  # sent as many as 64 KiB take
    ),
    "80 headers": Kind(tuple((b"h%d" % number, b"1") for number in range(80))),
    "a header of 42,000 characters and 126,000 bytes": Kind(
        ((b"note", "€".encode() * 42_000),),
        end=UNDECODABLE,
        ends={"azure_servicebus": HANDLED, "gcp_pubsub": HANDLED},  # sent shorter
    ),
    "6,000 headers": Kind(
        tuple((b"h%d" % number, b"1") for number in range(6_000)), end=UNDECODABLE
    ),
    "a content type of 90,000 bytes": Kind(
        ((b"content-type", b"\xff" * 90_000),),
        end=UNDECODABLE,
        ends={"azure_servicebus": HANDLED, "gcp_pubsub": HANDLED},  # sent shorter
    ),
    "two ids": Kind(((b"ce-id", b"first of two"), (b"ce-id", b"second of two"))),
    "two content types": Kind(((b"content-type", JSON), (b"content-type", JSON))),
    "two names that differ in case": Kind(((b"note", b"1"), (b"NOTE", b"2"))),
    "expired long ago": Kind(
        ((b"ce-lextimestamp", b"1.0"), (b"ce-lexttl", b"1000")), end=EXPIRED
    ),
    **body("that is no JSON", JSON, b"{"),
    **body("of JSON without end", JSON, b"[" * 50_000),
    **body("of a number beyond all", JSON, b'{"a": 1e999}'),
    **body("of a lone surrogate", JSON, b'"\\ud800"'),
    **body("of NaN", JSON, b"[NaN]"),
    **body("that is not UTF-8", None, b"\xff\xfe"),
    **body("of text that is not UTF-8", TEXT, b"\xff\xfe"),
    **body("of text in another encoding", b"text/plain; charset=utf-16", "é".encode("utf-16")),
    **body("that is no msgpack", MSGPACK, b"\xc1"),
    **body("of msgpack that says it is long", MSGPACK, b"\xdd\xff\xff\xff\xff"),
    **body("empty, and said to be JSON", JSON, b""),
    **body("of NUL bytes", None, bytes(100)),
    **body("of bytes", b"image/png", bytes(range(256)), HANDLED),
    **body("of a content type nobody knows", b"x/\xff; \x00", b"\xff", HANDLED),
    **body("of large JSON", JSON, json.dumps(["x" * 100_000]).encode(), HANDLED),
    **body("of a type by name", JSON, b'{"$type": "os.system"}'),
}  # fmt: skip
assert len(KINDS) >= 100


# Where they are sent: a driver, and the native way to its topic.


@asynccontextmanager
async def on_redis(where, topic):
    from redis.asyncio import Redis

    url, prefix = f"redis://{where['redis'].address}/0", unique_name()
    driver = RedisDriver(url, prefix=prefix, visibility_timeout=10)
    async with Redis.from_url(url) as client:

        async def send(kind):
            flat = [part for pair in kind.headers for part in pair]
            fields = [b"body", kind.body, *flat]
            await client.execute_command("XADD", f"{prefix}:topic:{topic}", "*", *fields)

        yield driver, send
    await delete_keys(url, f"{prefix}:*")


@asynccontextmanager
async def on_rabbitmq(where, topic):
    driver = RabbitMQDriver(where, exchange=unique_name())
    producer = hostile.RabbitMQProducer(where, driver._names.exchange, topic)

    async def send(kind):
        table = b"".join(_table_field(name, text) for name, text in kind.headers)
        await producer.send(struct.pack(">HI", 1 << 13, len(table)) + table, kind.body)

    async with producer:
        yield driver, send
    await rabbitmq_clear(RabbitMQDriver(where, exchange=driver._names.exchange))


def _table_field(name, text):
    value = b"S" + struct.pack(">I", len(text)) + text
    if name in (b"CC", b"BCC"):  # the broker routes copies by them, and takes lists only
        value = b"A" + struct.pack(">I", len(value)) + value
    return struct.pack("B", len(name)) + name + value


@asynccontextmanager
async def on_nats(where, topic):
    import nats

    address, name = where["nats"].address, unique_name()
    async with hostile.nats_producer(address, f"{name}.{topic}") as producer:

        async def send(kind):
            lines = b"".join(name + b": " + text + b"\r\n" for name, text in kind.headers)
            block = b"NATS/1.0\r\n" + lines[: 2**16 - 20]  # the server refuses more
            await producer.block(block.removesuffix(b"\r\n") + b"\r\n\r\n", kind.body)

        yield NATSDriver(f"nats://{address}", stream=name), send
    client = await nats.connect(f"nats://{address}")
    for one in (name, f"{name}-records", f"{name}-dead"):
        await client.request(f"$JS.API.STREAM.DELETE.{one}")
    await client.close()


@asynccontextmanager
async def on_sql(where, topic):
    url = where
    driver = SqlDriver(url)
    async with Database(url) as database:
        group = "SELECT id FROM lexigram_bus_groups WHERE topic = ?"

        async def send(kind):
            headers = json.dumps(_texts(kind))
            row = (topic, kind.body, headers)
            async with database.transaction():
                found = (await database.execute_query(group, (topic,))).rows[0]["id"]
                seq = (await database.execute_query(ROW, row)).rows[0]["seq"]
                # As after a retry: the row has what the driver reads out of headers.
                await database.execute(hostile.DELIVERY, (found, seq, "", headers))

        yield driver, send


ROW = """
INSERT INTO lexigram_bus_messages (id, topic, body, headers, sent_at, ttl, priority, guarantee,
    retry_count, max_retries, due_at, copies, remaining)
VALUES ('', ?, ?, ?, 0, NULL, 0, 'at_least_once', 0, 3, 0, 1, 1) RETURNING seq"""


@asynccontextmanager
async def on_azure(where, topic):
    """By the links of the driver: the vendor's own client leaves sockets to the collector."""
    driver = azure_driver_on(where, unique_name(), visibility_timeout=10)

    async def send(kind):
        properties, left = {}, 50_000  # the service takes 64 KiB of them
        for name, text in _texts(kind).items():
            left -= len(name) + len(text.encode()) + 8
            if left > 0:
                properties[name] = text
        content = properties.pop("content-type", None)
        message = ServiceBusMessage(
            kind.body, application_properties=properties, content_type=content
        )
        await driver._now().senders.send(driver._place(topic, "default").entity, [message])

    yield driver, send


@asynccontextmanager
async def on_pubsub(where, topic):
    driver = pubsub_driver_on(where, unique_name(), visibility_timeout=10)

    async def send(kind):
        attributes = {
            name.encode()[:256].decode("utf-8", "ignore"): text.encode()[:1024].decode(
                "utf-8", "ignore"
            )
            for name, text in list(_texts(kind).items())[:100]
            if name
        }
        message = {"data": kind.body, "attributes": attributes}
        if not (kind.body or attributes):
            message["attributes"] = {"-": "-"}  # the service refuses an empty one
        entity = driver._place(topic, "default").entity
        await driver._space.into.publish(topic=entity, messages=[message])

    yield driver, send


@asynccontextmanager
async def on_memory(where, topic):
    driver = MemoryDriver()

    async def send(kind):
        # It has no wire: messages as a bridge from another broker gives them to the driver.
        identity = unique_name()
        native = from_headers(dict(kind.headers), kind.body, topic=topic, fallback_id=identity)
        await driver.publish_many([replace(native, topic=topic)])

    yield driver, send


def _texts(kind):
    return {hostile.as_text(name): hostile.as_text(text) for name, text in kind.headers}


PLACES = {
    "redis": on_redis,
    "rabbitmq": on_rabbitmq,
    "nats": on_nats,
    "sql": on_sql,
    "azure_servicebus": on_azure,
    "gcp_pubsub": on_pubsub,
    "memory": on_memory,
}
