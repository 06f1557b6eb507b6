"""Every decoder of the bus gives a message or our own error, whatever it is given, and soon.

2,000 inputs for each, the same in every run; `make chaos` has 10,000. What real brokers make of
such is in ``tests/integration/queue/test_hostile_messages.py`` and ``test_hostile_kinds.py``.
"""

import json
import os
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from pamqp import frame
from pamqp.commands import Basic
from tests import hostile

from lexigram.contracts.queue import BusMessage, DeadLetterEntry, DeliveryGuarantee
from lexigram.contracts.queue.headers import CONTENT_TYPE, UNREADABLE
from lexigram.contracts.queue.limits import MAX_RETRIES, MAX_SECONDS, MAX_TIMESTAMP
from lexigram.queue.backends.azure_servicebus import _wire as servicebus_wire
from lexigram.queue.backends.gcp_pubsub import _wire as pubsub_wire
from lexigram.queue.backends.kafka import _wire as kafka_wire
from lexigram.queue.backends.kafka._control import State
from lexigram.queue.backends.kafka._dead_letters import Index
from lexigram.queue.backends.kafka._partition import MARK, unpack
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.nats import _wire as nats_wire
from lexigram.queue.backends.nats._connection import patient
from lexigram.queue.backends.nats._errors import status_of
from lexigram.queue.backends.nats._topology import Seen
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.rabbitmq import _wire as rabbitmq_wire
from lexigram.queue.backends.rabbitmq._frames import Frames
from lexigram.queue.backends.rabbitmq._topology import Registry
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.backends.redis._member import Member
from lexigram.queue.backends.redis._wire import read_dead_letter
from lexigram.queue.backends.sql import driver as sql
from lexigram.queue.backends.sql import store
from lexigram.queue.backends.sqs import _wire as sqs_wire
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.operations.dlq import _Found
from lexigram.queue.runtime import envelope
from lexigram.queue.runtime.payloads import Payloads

FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
NUMBER = 10_000 if FULL else 2_000


# Decoders: each makes an input and gives what decodes it, and how many bytes that are.


def texts(chance):
    """Headers as a client gives them that makes text of bytes."""
    found = hostile.hostile_headers(chance)
    errors = chance.choice(["replace", "surrogateescape"])
    return {k.decode("utf-8", "replace"): v.decode("utf-8", errors) for k, v in found.items()}


def size_of(headers):
    return sum(len(name) + len(value) for name, value in headers.items())


def from_bytes(prefix):
    def make(chance):
        native = hostile.hostile_headers(chance)
        return size_of(native), lambda: envelope.from_headers(
            native, b"", topic="t", fallback_id="1", prefix=prefix
        )

    return make


def from_dead(chance):
    native = texts(chance)
    return size_of(native), lambda: envelope.from_dead_headers(
        native, b"", topic="t", fallback_id="1"
    )


def on_nats(chance):
    native, body = texts(chance), hostile.hostile_body(chance)
    return size_of(native), lambda: nats_wire.read_message(native, body, "t", "1")


def nats_client(chance):
    block = hostile.nats_block(chance)
    client = patient(require_library("nats.aio.client", extra="nats").Client)()
    client._error_cb = ignore

    def decode():
        native = run(client._process_headers(block)) or {}
        status_of(SimpleNamespace(headers=native, data=b""))
        return nats_wire.read_message(native, b"", "t", "1")

    return len(block), decode


async def ignore(error):
    pass


def run(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


def nats_consumers(chance):
    text = hostile.hostile_body(chance).decode("utf-8", "replace")
    seen = Seen([], set())
    return len(text), lambda: seen.add(text)


def on_redis(chance):
    fields = [part for pair in hostile.hostile_headers(chance).items() for part in pair]
    fields = [*chance.choice([[], [b"body", hostile.hostile_body(chance)]]), *fields]
    driver, member = RedisDriver(), Member("p", "t", "g")
    return sum(map(len, fields)), lambda: driver._delivery(member, b"s", b"1-1", 1, fields).message


def dead_on_redis(chance):
    fields = [part for pair in hostile.hostile_headers(chance).items() for part in pair]
    return sum(map(len, fields)), lambda: read_dead_letter("t", b"7", fields)


def amqp(chance):
    """What the client makes of a frame behind our look at it."""
    properties, body = hostile.amqp_properties(chance), hostile.hostile_body(chance)
    header = b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + properties
    start = b"\2\0\1" + len(header).to_bytes(4, "big")
    parts = [start[:1], start[1:], header + b"\xce"]

    class Stream:
        async def readexactly(self, size):
            assert size == len(parts[0])
            return parts.pop(0)

    frames = Frames(Stream())
    whole = b"".join(run(frames.readexactly(len(part))) for part in list(parts))
    return SimpleNamespace(
        header=frame.unmarshal(whole)[2],
        body=body,
        delivery=Basic.Deliver(exchange="x", routing_key=chance.choice(["t", "", "é"])),
    )


def on_rabbitmq(chance):
    state = chance.getstate()

    def decode():
        chance.setstate(state)
        raw = amqp(chance)
        message = rabbitmq_wire.read_message(raw, "t", "x")
        rabbitmq_wire.delay_left(message, rabbitmq_wire.native_headers(raw))
        rabbitmq_wire.whole(rabbitmq_wire.native_headers(raw).get(rabbitmq_wire.DELIVERIES))
        return message if message.id else None

    return 20_000, decode


def dead_on_rabbitmq(chance):
    raw = amqp(chance)
    deaths = [None, "x", [], [1], [{}], [{"reason": 7, "time": "now"}], {"reason": "expired"}]
    headers = raw.header.properties.headers
    if headers is not None and chance.random() < 0.5:
        headers["x-death"] = chance.choice(deaths)
    return 20_000, lambda: rabbitmq_wire.read_dead_letter(raw, "t", "g", "x")


def rabbitmq_control(chance):
    body = hostile.hostile_body(chance)
    driver = RabbitMQDriver()
    registry = Registry(None, None)

    def decode():
        run(driver._hear(SimpleNamespace(body=body)))
        registry.note(SimpleNamespace(body=body))

    return len(body), decode


class Kafka:
    """One record, as the client of Kafka gives it."""

    def __init__(self, chance):
        self._headers = list(hostile.hostile_headers(chance).items())
        self._key, self._value = hostile.hostile_body(chance), hostile.hostile_body(chance)

    def headers(self):
        return [(name.decode(), value) for name, value in self._headers]  # as in C: it may raise

    def key(self):
        return self._key

    def value(self):
        return self._value

    def topic(self):
        return "t"

    def partition(self):
        return 0

    def offset(self):
        return 7


def on_kafka(chance):
    raw = Kafka(chance)
    return size_of(dict(raw._headers)), lambda: kafka_wire.read_message(raw, "t")[0]


def dead_on_kafka(chance):
    raw = Kafka(chance)
    index = Index(0)

    def decode():
        index.apply(raw)
        return kafka_wire.read_entry(raw, "t")

    return size_of(dict(raw._headers)), decode


def kafka_control(chance):
    raw, state = Kafka(chance), State()
    if chance.random() < 0.7:
        raw._key = json.dumps([chance.choice(["pause", "group", 1]), "t", "g"]).encode()
        marks = chance.choice(
            [{"t": {"0": 5}}, {"t": {"x": 5}}, {"t": {"0": None}}, {"t": 1}, [], 1]
        )
        value = {"marks": marks, "dropped": chance.choice([True, False, 1]), "temporary": True}
        raw._value = chance.choice([json.dumps(value).encode(), raw._value])

    def decode():
        state.apply(raw)
        return [one.marks for one in state.groups.values()]

    return len(raw._key) + len(raw._value), decode


def kafka_commits(chance):
    text = chance.choice(["", MARK]) + hostile.hostile_body(chance).decode("latin-1")
    return len(text), lambda: unpack(5, text)


def sqs_raw(chance):
    attributes = {
        name: {"StringValue": value} if chance.random() < 0.8 else {"BinaryValue": b"\xff"}
        for name, value in texts(chance).items()
    }
    for name in (sqs_wire.PACKED, sqs_wire.DUE, sqs_wire.ENCODING, sqs_wire.BLOB):
        if chance.random() < 0.4:
            text = hostile.hostile_body(chance).decode("utf-8", "replace")
            given = ["base64", "empty", "gzip", '{"path": 1}', '{"path": "a", "sha256": "b"}', text]
            attributes[name] = {"StringValue": chance.choice(given)}
    body = hostile.hostile_body(chance).decode("utf-8", "replace")
    facts = {"ApproximateReceiveCount": "3", "SentTimestamp": "1700000000000"}
    return {
        "MessageId": "m",
        "ReceiptHandle": "h",
        "Body": body,
        "MessageAttributes": attributes,
        "Attributes": facts,
    }


def on_sqs(chance):
    raw = sqs_raw(chance)

    def decode():
        found = sqs_wire.read_received(raw)
        assert found.deliveries(fifo=False) + found.deliveries(fifo=True) > 0
        assert 0 < found.since <= MAX_TIMESTAMP
        return found.message("t", found.payload()), found.content.blob

    return len(json.dumps(raw, default=str)), lambda: decode()[0]


def dead_on_sqs(chance):
    found = sqs_wire.read_received(sqs_raw(chance))
    return 20_000, lambda: found.dead_entry("t", "g", found.payload())


def pubsub_raw(chance):
    attributes = texts(chance)
    for name in (pubsub_wire.DUE, pubsub_wire.LONG, pubsub_wire.SOURCE_COUNT):
        if chance.random() < 0.4:
            text = hostile.hostile_body(chance).decode("utf-8", "replace")[:1000]
            given = [
                "inf",
                "nan",
                '{"a": 1000000000}',
                '{"a": "x"}',
                '{"a": -1}',
                "7",
                "9" * 900,
                text,
            ]
            attributes[name] = chance.choice(given)
    native = SimpleNamespace(
        attributes=attributes,
        data=hostile.hostile_body(chance),
        ordering_key=chance.choice(["", "k"]),
        message_id="m",
        publish_time=SimpleNamespace(seconds=1_700_000_000, nanos=5),
    )
    return SimpleNamespace(message=native, delivery_attempt=2)


def on_pubsub(chance):
    raw = pubsub_raw(chance)

    def decode():
        assert pubsub_wire.count_deliveries(raw) >= 1
        assert 0 < pubsub_wire.turn_of(raw) <= MAX_TIMESTAMP
        return pubsub_wire.read_message(raw.message, "t")

    return size_of(raw.message.attributes), decode


def dead_on_pubsub(chance):
    raw = pubsub_raw(chance)
    return size_of(raw.message.attributes), lambda: pubsub_wire.read_dead_letter(
        raw.message, "t", "g"
    )


def azure_raw(chance):
    odd = [None, True, 2**63, 1e300, float("nan"), b"\xff", "x", {"a": [1]}, [[]], "\ud800"]
    properties = {
        chance.choice([name, name.decode("utf-8", "replace")]): chance.choice([value, *odd])
        for name, value in hostile.hostile_headers(chance).items()
    }
    kind = chance.choice(["data", "value", "sequence"])
    body = [b"a", hostile.hostile_body(chance)] if kind == "data" else chance.choice([*odd, [1]])
    if kind == "sequence":
        body = [body]
    return SimpleNamespace(
        application_properties=chance.choice([None, properties]),
        body_type=SimpleNamespace(value=kind),
        body=body,
        content_type=chance.choice([None, "text/plain", b"\xff"]),
        correlation_id=chance.choice([None, b"\xff", 7]),
        message_id=chance.choice([None, "m", b"\xff", "\0", 7, "x" * 1000]),
        sequence_number=12,
        dead_letter_reason=chance.choice([None, "TTLExpiredException", b"\xff"]),
        dead_letter_error_description=None,
        enqueued_time_utc=None,
    )


def on_azure(chance):
    raw = azure_raw(chance)
    return 20_000, lambda: servicebus_wire.read_message(raw, "t")


def dead_on_azure(chance):
    raw = azure_raw(chance)
    return 20_000, lambda: servicebus_wire.read_dead_letter(raw, "t", "g")


def sql_row(chance):
    """As SQLite may have it: any value in any column."""
    odd = [None, 2**63 - 1, 1e300, -1.5, b"\xff", "x", "", float("inf"), 0, 1, 1_700_000_000.5]
    text = json.dumps(texts(chance))
    stored = [text, "{}", "[]", "null", '{"a": 1}', '{"a"', "[" * 20_000, b"\xff", 7, "\ud800"]
    row = dict.fromkeys(["id", "topic", "sent_at", "ttl", "priority", "retry_count", "max_retries"])
    for name in row:
        row[name] = chance.choice(odd)
    return row | {
        "topic": chance.choice(["t", 7, b"\xff"]),
        "message": 7,
        "guarantee": chance.choice(["at_least_once", "often", 7, None]),
        "headers": chance.choice(stored),
        "envelope": chance.choice([None, None, *stored]),
        "body": chance.choice([b"x", "text", None, 7]),
        "dead": chance.choice([None, *stored, '{"failed_at": 7, "reason": [], "attempts": 1e400}']),
    }


def on_sql(chance):
    row = sql_row(chance)
    return 20_000, lambda: store.message_of(row)


def dead_on_sql(chance):
    row = sql_row(chance)
    return 20_000, lambda: sql._entry(row)


def letters(chance):
    """Dead letters as the one contract that jobs and workers share."""
    headers = {name: text for name, text in texts(chance).items() if text.isprintable()}
    entry = DeadLetterEntry(BusMessage(headers=headers), "x")
    found = _Found(SimpleNamespace(queue=SimpleNamespace(name="q")), "t", "g", entry, 1)
    place = attrs.evolve(found, topic="lexigram.dead-letters", group="added")
    return size_of(headers), lambda: (found.to_dead_letter(), place.to_dead_letter())


@attrs.frozen
class Order:
    number: int
    items: list["Order"]
    names: dict[str, float]


KINDS: list[Any] = [Any, object, bytes, str, int, dict[str, int], list[Order], Order, Order | None]
CONTENTS = ["application/json", "application/msgpack", "text/plain", "image/png", "x", "\0", ""]


def payload(serializer):
    codec = Payloads(serializer)

    def make(chance):
        body, headers = hostile.hostile_body(chance), texts(chance)
        if chance.random() < 0.7:
            headers[CONTENT_TYPE] = chance.choice(CONTENTS)
        message, kind = BusMessage(payload=body, headers=headers), chance.choice(KINDS)
        return len(body) + size_of(headers), lambda: [codec.decode(message, kind)]

    return make


Make = Callable[[random.Random], tuple[int, Callable[[], Any]]]
DECODERS: dict[str, Make] = {
    "headers ce-": from_bytes("ce-"),
    "headers ce_": from_bytes("ce_"),
    "dead headers": from_dead,
    "nats": on_nats,
    "nats client": nats_client,
    "nats consumers": nats_consumers,
    "redis": on_redis,
    "redis dead": dead_on_redis,
    "rabbitmq": on_rabbitmq,
    "rabbitmq dead": dead_on_rabbitmq,
    "rabbitmq control": rabbitmq_control,
    "kafka": on_kafka,
    "kafka dead": dead_on_kafka,
    "kafka control": kafka_control,
    "kafka commits": kafka_commits,
    "sqs": on_sqs,
    "sqs dead": dead_on_sqs,
    "gcp_pubsub": on_pubsub,
    "gcp_pubsub dead": dead_on_pubsub,
    "azure_servicebus": on_azure,
    "azure_servicebus dead": dead_on_azure,
    "sql": on_sql,
    "sql dead": dead_on_sql,
    "letters": letters,
    "json payloads": payload("json"),
    "msgpack payloads": payload("msgpack"),
}


@pytest.mark.chaos
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_gives_a_message_or_our_error_in_time_by_its_length(name):
    chance = random.Random(hostile.SEED)
    prefix = "ce_" if "ce_" in name or "kafka" in name else "ce-"
    for number in range(NUMBER):
        size, decode = DECODERS[name](chance)
        try:
            late = hostile.measure(lambda: check(decode, prefix), size)  # noqa: B023 - called at once
        except Exception as error:
            error.add_note(f"input {number} of seed {hostile.SEED}")
            raise
        assert late == 0.0, f"input {number} of {size} bytes took {late:.2f} s too long"


def check(decode, prefix):
    """Decode; what comes out can be published, retried and set aside again."""
    try:
        found = decode()
    except UndecodableMessageError:
        return
    if isinstance(found, DeadLetterEntry):
        headers = envelope.dead_headers(found, prefix=prefix)
        assert 0 <= found.retry_count <= MAX_RETRIES
        assert 0 <= found.attempts <= MAX_RETRIES
        found = found.message
    elif isinstance(found, BusMessage):
        headers = envelope.to_headers(found, prefix=prefix)
    else:
        return  # not a message: it did not raise
    for name, value in headers.items():
        assert name.encode() is not None
        assert value.encode() is not None
    check_fields(found)
    native = envelope.to_headers(found, prefix=prefix)
    again = envelope.from_headers(native, b"", topic="t", fallback_id="x", prefix=prefix)
    assert (UNREADABLE in again.headers) == (UNREADABLE in found.headers)


def check_fields(message):
    assert message.id
    assert message.topic
    assert isinstance(message.payload, bytes)
    assert 0 <= message.timestamp <= MAX_TIMESTAMP
    assert message.ttl is None or 0 <= message.ttl <= MAX_SECONDS
    assert isinstance(message.priority, int)
    assert -MAX_RETRIES <= message.priority <= MAX_RETRIES
    assert 0 <= message.retry_count <= MAX_RETRIES
    assert 0 <= message.max_retries <= MAX_RETRIES
    assert isinstance(message.delivery_guarantee, DeliveryGuarantee)
    assert 0 <= envelope.delay_of(message) <= MAX_TIMESTAMP
