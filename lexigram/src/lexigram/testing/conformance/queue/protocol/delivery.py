"""What is published reaches a handler."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import BusMessage, DeliveryGuarantee, QueueProtocol
from lexigram.testing.conformance.queue.protocol.spec import (
    Collector,
    QueueCapability,
    QueueSpec,
    until,
)

PAYLOADS = [{"a": [1, None, {"b": "ü"}]}, [1, 2], "text", 7, 1.5, True, None]


class DeliverySpec(QueueSpec, capability=QueueCapability.DELIVERY):
    """publish and subscribe."""

    @pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
    async def test_a_published_payload_is_handled(
        self, subject: QueueProtocol, topic: str, payload: object
    ) -> None:
        collect = Collector()
        await subject.subscribe(topic, collect)
        await subject.publish(topic, BusMessage(payload=payload))
        await until(lambda: len(collect.messages) == 1)
        assert collect.payloads == [payload]

    async def test_publish_returns_the_message_as_sent(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        sent = await subject.publish(topic, BusMessage(id="mine", payload=1))
        assert (sent.id, sent.topic, sent.payload) == ("mine", topic, 1)

    async def test_the_id_and_the_headers_survive(self, subject: QueueProtocol, topic: str) -> None:
        collect = Collector()
        await subject.subscribe(topic, collect)
        await subject.publish(topic, BusMessage(id="mine", payload=1, headers={"tenant": "t1"}))
        await until(lambda: len(collect.messages) == 1)
        (got,) = collect.messages
        assert (got.id, got.topic, got.headers["tenant"]) == ("mine", topic, "t1")

    async def test_other_topics_do_not_get_it(self, subject: QueueProtocol, topic: str) -> None:
        mine, other = Collector(), Collector()
        await subject.subscribe(topic, mine)
        await subject.subscribe(f"{topic}.other", other)
        await subject.publish(topic, BusMessage(payload=1))
        await until(lambda: mine.payloads == [1])
        await subject.publish(f"{topic}.other", BusMessage(payload=2))
        await until(lambda: other.payloads == [2])
        assert mine.payloads == [1]

    async def test_many_publishers_at_once_lose_nothing(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        collect = Collector()
        await subject.subscribe(topic, collect)
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(subject.publish, topic, BusMessage(payload=number))
        await until(lambda: len(collect.messages) >= 100)
        assert sorted(collect.payloads) == list(range(100))


class FieldsSpec(QueueSpec, capability=QueueCapability.FIELDS):
    """All of a BusMessage."""

    async def test_every_field_survives(self, subject: QueueProtocol, topic: str) -> None:
        collect = Collector()
        await subject.subscribe(topic, collect)
        sent = BusMessage(
            id="mine",
            payload={"a": 1},
            timestamp=1_700_000_000.123456,
            ttl=1e9,
            delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
            max_retries=7,
        )
        await subject.publish(topic, sent)
        await until(lambda: len(collect.messages) == 1)
        (got,) = collect.messages
        assert (got.timestamp, got.ttl, got.max_retries) == (sent.timestamp, 1e9, 7)
        assert got.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE
        assert got.retry_count == 0


class BacklogSpec(QueueSpec, capability=QueueCapability.BACKLOG):
    """Publishing first, subscribing later."""

    async def test_what_came_before_the_first_subscriber_is_handled(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        await subject.publish(topic, BusMessage(payload="early"))
        collect = Collector()
        await subject.subscribe(topic, collect)
        await until(lambda: collect.payloads == ["early"])


class PatternSpec(QueueSpec, capability=QueueCapability.PATTERN):
    """``*`` in a topic."""

    async def test_a_pattern_gets_all_topics_it_means(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        collect = Collector()
        await subject.subscribe(f"{topic}.*Recorded", collect)
        for name in ("Order", "Bill"):
            await subject.publish(f"{topic}.{name}Recorded", BusMessage(payload=name))
        await until(lambda: len(collect.messages) == 2)
        assert sorted(collect.payloads) == ["Bill", "Order"]


class HealthSpec(QueueSpec, capability=QueueCapability.HEALTH):
    """health_check."""

    async def test_a_queue_at_work_is_healthy_and_a_closed_one_is_not(
        self, subject: QueueProtocol
    ) -> None:
        assert (await subject.health_check()).status is HealthStatus.HEALTHY
        await subject.close()
        assert (await subject.health_check(timeout=1.0)).status is HealthStatus.UNHEALTHY
