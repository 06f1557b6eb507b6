"""What hostile producers send to Kafka and the clouds: on their doubles, by the vendors' own clients."""

import os
from contextlib import asynccontextmanager

import anyio
import confluent_kafka
import pytest
from azure.servicebus import ServiceBusMessage
from tests.doubles.kafka.places import driver_on as kafka_driver_on
from tests.doubles.kafka.places import place_name
from tests.doubles.kafka.server import kafka_servers
from tests.doubles.pubsub.places import OneLoop, pubsub
from tests.doubles.pubsub.places import clear as pubsub_clear
from tests.doubles.pubsub.places import driver_on as pubsub_driver_on
from tests.doubles.servicebus.places import driver_on as azure_driver_on
from tests.doubles.servicebus.places import servicebus
from tests.doubles.sqs.places import driver_on as sqs_driver_on
from tests.doubles.sqs.places import sqs
from tests.hostile import hostile_body, hostile_headers
from tests.integration.queue.hostile import as_text, survives

from lexigram.contracts.queue import DeadLetterReason
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.backends.gcp_pubsub import _publisher
from lexigram.queue.backends.gcp_pubsub import _wire as pubsub_wire
from lexigram.queue.backends.gcp_pubsub import driver as pubsub_driver
from lexigram.queue.backends.sqs import _wire as sqs_wire
from lexigram.testing import wait_until

__all__ = ["kafka_servers", "pubsub", "servicebus", "sqs"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

OPTIONS = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01), max_deliveries=50)
TOPIC = "hostile"
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
NUMBER = 1_000 if FULL else 30


@asynccontextmanager
async def opened(driver, topic=TOPIC):
    queue = BusQueue(driver, options=OPTIONS)
    await queue.connect()
    try:
        await driver.declare(topic, "default")
        yield queue
    finally:
        await queue.close()


@asynccontextmanager
async def kafka_producer(servers, topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})

    async def send(chance):
        headers = [
            (name.decode("utf-8", "replace"), chance.choice([value, value, None]))
            for name, value in hostile_headers(chance).items()
        ]
        key = chance.choice([None, b"k", b"\xff"])
        producer.produce(topic, hostile_body(chance), key, headers=headers)
        await anyio.to_thread.run_sync(producer.flush)

    yield send


def sqs_producer(driver, topic):
    async def send(chance):
        attributes = {
            name: text
            for name, text in texts(chance, sqs_wire.BLOB, sqs_wire.DUE, sqs_wire.ENCODING).items()
            if sqs_wire._is_nameable(name) and sqs_wire._is_valid(text)
        }
        if chance.random() < 0.3:
            attributes[sqs_wire.PACKED] = chance.choice(["[]", "{", '{"a": [[]]}', "null"])
        body = as_text(hostile_body(chance))
        queue = driver._place(topic, "default").queue
        await driver._space.asking.send_message(
            QueueUrl=driver._space.urls[queue],
            MessageBody=body if sqs_wire._is_valid(body) else "-",
            MessageAttributes={
                name: _sqs_attribute(chance, text) for name, text in list(attributes.items())[:10]
            },
        )

    return send


def _sqs_attribute(chance, text):
    """Of any type SQS has, also where the driver writes text."""
    kind = chance.choice(["String", "String", "String.json", "Number", "Number.float", "Binary"])
    if kind == "Binary":
        return {"DataType": kind, "BinaryValue": chance.choice([b"\xff\xfe", b"\0", text.encode()])}
    if kind.startswith("Number"):
        text = chance.choice(["-1", "1e125", "0", "9" * 38, "1700000000000"])
    return {"DataType": kind, "StringValue": text}


def pubsub_producer(driver, topic):
    async def send(chance):
        attributes = texts(chance, pubsub_wire.DUE, pubsub_wire.LONG)
        fits = {name: text for name, text in attributes.items() if 0 < len(name.encode()) <= 256}
        message = {
            "data": hostile_body(chance) or b"-",
            "attributes": {
                name: text.encode()[:1000].decode("utf-8", "ignore") for name, text in fits.items()
            },
        }
        entity = driver._place(topic, "default").entity
        await driver._space.into.publish(topic=entity, messages=[message])

    return send


def azure_producer(driver, topic):
    """By the links of the driver: the vendor's own client leaves sockets to the collector."""

    async def send(chance):
        odd = [True, 2**31 - 1, 1.5]  # the sender makes text of bytes
        properties = {
            name: chance.choice([text, text, *odd]) for name, text in texts(chance).items()
        }
        message = ServiceBusMessage(
            hostile_body(chance),
            message_id=chance.choice([None, "mine", "\x7f", "x" * 128]),
            application_properties=properties,
        )
        await driver._now().senders.send(driver._place(topic, "default").entity, [message])

    return send


def texts(chance, *marks):
    """Hostile headers as text; ``marks`` are those of a driver, each of them or not."""
    found = {as_text(name): as_text(value) for name, value in hostile_headers(chance).items()}
    for name in marks:
        if chance.random() < 0.3:
            found[name] = chance.choice(
                ["inf", "nan", "soon", '{"a": 1000000000}', "gzip", "base64"]
            )
    return found


async def test_hostile_records_on_kafka(kafka_servers):
    name = place_name()
    topic = f"hostile.{name}"
    async with (
        opened(kafka_driver_on(kafka_servers, name), topic) as queue,
        kafka_producer(kafka_servers, topic) as send,
    ):
        await survives(queue, send, 10 * NUMBER, topic=topic)


async def test_hostile_messages_on_sqs(sqs):
    async with opened(sqs_driver_on(sqs, place_name())) as queue:
        await survives(queue, sqs_producer(queue.driver, TOPIC), NUMBER)


async def test_hostile_messages_on_azure_servicebus(servicebus):
    async with opened(azure_driver_on(servicebus, place_name())) as queue:
        await survives(queue, azure_producer(queue.driver, TOPIC), NUMBER)


class TestPubSub(OneLoop):
    async def test_hostile_messages_on_pubsub(self, pubsub):
        driver = pubsub_driver_on(pubsub, place_name())
        async with opened(driver) as queue:
            await survives(queue, pubsub_producer(driver, TOPIC), NUMBER)
        await pubsub_clear(driver)

    async def test_a_foreign_message_as_large_as_the_service_takes_can_be_set_aside(
        self, pubsub, monkeypatch
    ):
        """A retry and a dead letter add attributes, for which it leaves no room."""
        for module in (pubsub_wire, _publisher, pubsub_driver):  # 10 MB are slow, and no other
            monkeypatch.setattr(module, "MOST_BYTES", 500_000)
        failed = []

        async def fail(message):
            failed.append(message.retry_count)
            raise ValueError("no")

        driver = pubsub_driver_on(pubsub, place_name(), visibility_timeout=10)
        body = b"x" * (pubsub_wire.MOST_BYTES - 200)
        async with opened(driver) as queue:
            entity = driver._place(TOPIC, "default").entity
            message = {"data": body, "attributes": {"tenant": "7", "content-type": "image/png"}}
            await driver._space.into.publish(topic=entity, messages=[message])
            await queue.subscribe(TOPIC, fail)
            await wait_until(lambda: driver.count_dead(TOPIC, "default"))
            (entry,) = await driver.list_dead(TOPIC, "default")
            assert await driver.redrive(TOPIC, "default") == 1
            await wait_until(lambda: driver.count_dead(TOPIC, "default"))
            (again,) = await driver.list_dead(TOPIC, "default")
        assert failed == [0]
        assert again.reason is DeadLetterReason.UNDECODABLE  # what is left of it is not handled
        assert (entry.message.headers["tenant"], entry.error) == ("7", "ValueError: no")
        assert body.startswith(entry.message.payload)
        assert len(entry.message.payload) > 0.95 * len(body)
        await pubsub_clear(driver)
