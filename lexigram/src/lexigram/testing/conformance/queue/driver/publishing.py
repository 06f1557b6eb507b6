"""A confirmed message is there, whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeliveryGuarantee,
    MessageTooLargeError,
)
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)

FIVE_MEGABYTES = 5 * 1024 * 1024


class PublishingSpec(DriverSpec, capability=Capability.PUBLISH):
    """publish_many, name, capabilities and health of a driver."""

    async def test_it_declares_its_name_and_the_core_before_it_is_connected(
        self, neighbour: Driver
    ) -> None:
        assert neighbour.name
        assert neighbour.capabilities >= self.core

    async def test_the_capabilities_of_the_driver_are_those_under_test(
        self, subject: Driver
    ) -> None:
        assert subject.capabilities == self.declared()

    async def test_every_field_of_a_message_survives(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = BusMessage(
            id="an-id of my own/1",
            topic=topic,
            payload=b'{"total": 12.5, "name": "Z\xc3\xbcrich"}',
            headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "X-Tenant": "Zürich ✓ 100%"},
            timestamp=1_700_000_000.123456,
            ttl=1e9,
            priority=3,
            delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
            retry_count=2,
            max_retries=7,
        )
        await subject.publish_many([sent])
        got = (await take_one(subject, topic, "g")).message
        assert got == sent

    async def test_the_defaults_of_a_message_survive(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = message(topic)
        await subject.publish_many([sent])
        assert (await take_one(subject, topic, "g")).message == sent

    @pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe not text", b"[]"], ids=repr)
    async def test_the_body_is_any_bytes(self, subject: Driver, topic: str, body: bytes) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, body)])
        assert (await take_one(subject, topic, "g")).message.payload == body

    async def test_a_batch_arrives_in_its_order(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = [b"%d" % number for number in range(50)]
        await subject.publish_many([message(topic, body) for body in sent])
        assert bodies(await take(subject, topic, "g", 50)) == sent

    async def test_a_batch_may_go_to_several_topics(self, subject: Driver, topic: str) -> None:
        one, other = f"{topic}.one", f"{topic}.other"
        await subject.declare(one, "g")
        await subject.declare(other, "g")
        await subject.publish_many([message(one, b"1"), message(other, b"2"), message(one, b"3")])
        assert bodies(await take(subject, one, "g", 2)) == [b"1", b"3"]
        assert bodies(await take(subject, other, "g")) == [b"2"]

    async def test_an_empty_batch_is_nothing_to_do(self, subject: Driver) -> None:
        await subject.publish_many([])

    async def test_many_publishers_at_once_lose_nothing(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(subject.publish_many, [message(topic, b"%d" % number)])
        got = bodies(await take(subject, topic, "g", 20))
        assert sorted(got, key=int) == [b"%d" % number for number in range(20)]

    async def test_a_body_of_five_megabytes_arrives_or_is_refused_whole(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        big = message(topic, b"x" * FIVE_MEGABYTES)
        limit = subject.max_message_bytes
        if limit is None or limit >= FIVE_MEGABYTES:
            await subject.publish_many([big])
            got = await take_one(subject, topic, "g")
            assert got.message.payload == big.payload
        else:
            with pytest.raises(MessageTooLargeError):
                await subject.publish_many([message(topic, b"small"), big])
            await nothing_comes(subject, topic, "g")

    async def test_the_health_check_reports_a_connected_driver_as_healthy(
        self, subject: Driver
    ) -> None:
        assert (await subject.health_check()).status is HealthStatus.HEALTHY

    async def test_what_is_not_declared_is_refused(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        calls: dict[Capability, Callable[[], Awaitable[Any]]] = {
            Capability.PEEK: lambda: subject.peek(topic, "g"),
            Capability.PURGE: lambda: subject.purge(topic, "g"),
            Capability.PAUSE: lambda: subject.set_paused(topic, "g", True),
            Capability.DEPTH: lambda: subject.depth(topic, "g"),
            Capability.LAG: lambda: subject.lag(topic, "g"),
            Capability.PATTERN: lambda: subject.declare(f"{topic}*", "g"),
        }
        for capability in calls.keys() - subject.capabilities:
            with pytest.raises(CapabilityError):
                await calls[capability]()
