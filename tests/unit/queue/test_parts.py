"""Smaller parts: dead letters in memory, batches, drivers and their table."""

import dataclasses
import importlib
import re
from importlib.metadata import entry_points, metadata
from pathlib import Path

import anyio.lowlevel
import pytest

from lexigram.contracts.queue import BusMessage, Capability, QueueFullError, limits
from lexigram.queue import (
    BatchedPublisher,
    DeadLetterQueue,
    InMemoryQueue,
    MessagePipeline,
    config,
)
from lexigram.queue.backends.kafka import KafkaQueue
from lexigram.queue.backends.memory import MemoryBroker
from lexigram.queue.backends.sqs import SQSQueue
from lexigram.queue.core.pipeline import MiddlewareBase
from lexigram.queue.runtime.payloads import with_payload
from lexigram.serialization import SerializationError

pytestmark = pytest.mark.anyio

TABLE = Path(__file__).parents[3] / "docs/reference/queue-drivers.md"


def test_all_is_what_the_package_offers():
    queue = importlib.import_module("lexigram.queue")
    assert [name for name in queue.__all__ if not hasattr(queue, name)] == []


def test_the_package_offers_the_queue_of_every_backend():
    queue = importlib.import_module("lexigram.queue")
    backends = importlib.import_module("lexigram.queue.backends")
    assert set(backends.__all__) <= set(queue.__all__)


@pytest.mark.parametrize("extra", ["redis", "rabbitmq", "nats", "azure", "kafka", "sqs", "gcp"])
def test_every_extra_an_error_names_exists(extra):
    assert extra in (metadata("lexigram-queue").get_all("Provides-Extra") or [])


def driver_capabilities():
    """Column by driver, as the reviewed page has it."""
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in TABLE.read_text().splitlines()
        if re.match(r"\| (capability|`)", line)
    ]
    names = [name.strip("`") for name in rows[0][1:]]
    return {
        name: frozenset(
            Capability(row[0].strip("`")) for row in rows[1:] if row[column + 1].startswith("yes")
        )
        for column, name in enumerate(names)
    }


def test_the_page_of_the_drivers_has_the_bounds_of_a_message():
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", TABLE.read_text(), re.MULTILINE))
    known = {
        "topic": limits.MAX_NAME_BYTES,
        "group, ordering_key, fairness_key": limits.MAX_NAME_BYTES,
        "id": limits.MAX_ID_BYTES,
        "priority": limits.MAX_PRIORITY,
        "max_retries": limits.MAX_RETRIES,
        "delay, ttl": limits.MAX_SECONDS,
        "timestamp, header deliver-at": limits.MAX_TIMESTAMP,
        "headers": limits.MAX_HEADER_NAME_BYTES,
    }
    for field, most in known.items():
        assert re.search(rf"to {most}\b", rows[field]), field
    assert f"at most {limits.MAX_HEADERS};" in rows["headers"]
    assert f"together {limits.MAX_HEADERS_BYTES} bytes" in rows["headers"]


def test_the_page_of_the_drivers_says_what_the_code_declares():
    reviewed = driver_capabilities()
    installed = {point.name: point for point in entry_points(group="lexigram.queue.drivers")}
    assert set(reviewed) == set(installed)
    for name, point in installed.items():
        backend = importlib.import_module(point.module)
        assert reviewed[name] == backend.CAPABILITIES, name


async def test_the_oldest_dead_letter_goes_first_and_is_counted():
    letters = DeadLetterQueue(max_size=2)
    for number in range(3):
        await letters.push(BusMessage(payload=number, retry_count=number), ValueError("boom"))
    assert (letters.size, letters.evicted) == (2, 1)
    entries = await letters.drain()
    assert [entry.message.payload for entry in entries] == [1, 2]
    assert [entry.retry_count for entry in entries] == [1, 2]
    assert entries[0].error == "ValueError: boom"
    assert letters.size == 0


def test_a_dead_letter_queue_holds_something():
    assert DeadLetterQueue().max_size == 1000
    with pytest.raises(ValueError, match="at least 1"):
        DeadLetterQueue(max_size=0)


async def test_a_flush_keeps_and_raises_what_was_not_confirmed():
    queue = InMemoryQueue(broker=MemoryBroker(max_backlog=2))
    await queue.connect()
    publisher = BatchedPublisher(queue)
    for number in range(3):
        publisher.stage("t", BusMessage(id=str(number), payload=number))
    publisher.stage("other", BusMessage(id="fine", payload=0))
    with pytest.raises(QueueFullError):
        await publisher.flush()
    assert [one.message.id for one in publisher.pending] == ["2"]
    await queue.driver.declare("t", "g")
    held = await queue.driver.receive("t", "g", limit=2, wait=1)
    await queue.driver.ack_many(held)
    await publisher.flush()
    assert publisher.pending == []
    publisher.stage("t", BusMessage())
    publisher.clear()
    assert publisher.pending == []
    await queue.close()


async def test_a_flush_that_cannot_encode_a_payload_keeps_the_messages_beside_it():
    """They were taken for published, and were in no queue."""
    async with InMemoryQueue() as queue:
        publisher = BatchedPublisher(queue)
        publisher.stage("t", BusMessage(id="good", payload=1))
        publisher.stage("t", BusMessage(id="bad", payload={"a": object()}))
        with pytest.raises(SerializationError):
            await publisher.flush()
        assert [one.message.id for one in publisher.pending] == ["good", "bad"]


async def test_a_flush_that_is_cancelled_keeps_what_was_not_confirmed(monkeypatch):
    async with InMemoryQueue() as queue:
        publisher = BatchedPublisher(queue)
        publisher.stage("t", BusMessage(id="m"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            monkeypatch.setattr(queue, "publish_many", lambda *_: anyio.lowlevel.checkpoint())
            await publisher.flush()
        assert [one.message.id for one in publisher.pending] == ["m"]


async def test_a_pipeline_can_be_run_by_hand():
    seen = []

    class Note(MiddlewareBase):
        async def process(self, message, next_handler):
            seen.append("before")
            answer = await next_handler(message)
            seen.append("after")
            return answer

    async def handle(message):
        seen.append(message.payload)
        return "done"

    pipeline = MessagePipeline()
    pipeline.add(Note())
    assert await pipeline.execute(BusMessage(payload=1), handle) == "done"
    assert seen == ["before", 1, "after"]


def test_a_quick_copy_is_a_message_like_any_other():
    original = BusMessage(payload=1, headers={"a": "b"}, topic="t", ttl=2.0, priority=3)
    copy = with_payload(original, 2, {}, "u")
    assert copy == dataclasses.replace(original, payload=2, headers={}, topic="u")
    assert type(copy) is BusMessage
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.payload = 3
    assert [item.name for item in dataclasses.fields(BusMessage)] == list(BusMessage.__slots__)


def test_settings_given_by_name_come_before_those_of_the_configuration():
    own = config.KafkaDriverConfig(client_id="a", group_id="b", auto_offset_reset="earliest")
    queue = KafkaQueue("h:1", group_id="c", config=own)
    found = queue.driver._config
    assert (found.bootstrap_servers, found.client_id, found.group_id) == ("h:1", "a", "c")
    assert found.auto_offset_reset == "earliest"
    assert KafkaQueue().driver._config == config.KafkaDriverConfig()
    assert SQSQueue(config=config.SQSDriverConfig(visibility_timeout=7)).driver._lease == 7
    assert SQSQueue(visibility_timeout=9).driver._lease == 9
