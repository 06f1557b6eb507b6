"""A message that was not handled comes again, later, to its group only."""

from __future__ import annotations

from dataclasses import replace

from lexigram.contracts.queue import Capability
from lexigram.contracts.queue.headers import BEGUN
from lexigram.testing.conformance.queue.driver.spec import (
    DELAY,
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)


class RetryingSpec(DriverSpec, capability=Capability.DELAYED_RETRY):
    """nack."""

    async def test_a_nacked_message_comes_again(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = message(topic, b"1")
        await subject.publish_many([sent])
        await subject.nack(await take_one(subject, topic, "g"))
        again = await take_one(subject, topic, "g")
        assert again.message == sent

    async def test_a_retry_counts_its_deliveries_anew(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic)])
        for _ in range(2):
            held = await take_one(subject, topic, "g")
            assert held.delivery_count == 1
            retry = replace(held.message, retry_count=held.message.retry_count + 1)
            await subject.nack(held, delay=DELAY, message=retry)
            await elapse(DELAY)
        assert (await take_one(subject, topic, "g")).delivery_count == 1

    async def test_a_copy_at_once_keeps_all_and_has_the_header_of_the_bus(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        sent = message(topic, b"1", headers={"a": "b"}, retry_count=2, max_retries=5)
        await subject.publish_many([sent])
        held = await take_one(subject, topic, "g")
        copy = replace(held.message, headers={**held.message.headers, BEGUN: "1/2"})
        await subject.nack(held, message=copy)
        again = await take_one(subject, topic, "g")
        assert again.message == replace(sent, headers={"a": "b", BEGUN: "1/2"})

    async def test_a_delayed_message_does_not_come_before_its_time(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        await subject.nack(await take_one(subject, topic, "g"), delay=SOON_ENOUGH)
        await nothing_comes(subject, topic, "g")
        await elapse(SOON_ENOUGH)
        assert bodies(await take(subject, topic, "g")) == [b"1"]

    async def test_the_message_may_be_replaced_and_keeps_its_id(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        sent = message(topic, b"1", headers={"a": "b"}, priority=2, max_retries=5)
        await subject.publish_many([sent])
        for number in (1, 2):
            held = await take_one(subject, topic, "g")
            await subject.nack(held, delay=DELAY, message=replace(held.message, retry_count=number))
            await elapse(DELAY)
        assert (await take_one(subject, topic, "g")).message == replace(sent, retry_count=2)

    async def test_a_retry_concerns_one_group(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        await subject.publish_many([message(topic, b"1")])
        await subject.ack_many(await take(subject, topic, "b"))
        await subject.nack(await take_one(subject, topic, "a"), delay=DELAY)
        await elapse(DELAY)
        assert bodies(await take(subject, topic, "a")) == [b"1"]
        await nothing_comes(subject, topic, "b")

    async def test_later_messages_are_not_held_up_by_a_delayed_one(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"slow"), message(topic, b"next")])
        await subject.nack(await take_one(subject, topic, "g"), delay=30)
        assert bodies(await take(subject, topic, "g")) == [b"next"]

    async def test_a_shorter_delay_overtakes_a_longer_one(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"long"), message(topic, b"short")])
        long, short = await take(subject, topic, "g", 2)
        await subject.nack(long, delay=60)
        await subject.nack(short, delay=DELAY)
        await elapse(DELAY)
        assert bodies(await take(subject, topic, "g")) == [b"short"]

    async def test_a_retried_message_can_be_settled(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        await subject.nack(await take_one(subject, topic, "g"), delay=DELAY)
        await elapse(DELAY)
        await subject.ack_many(await take(subject, topic, "g"))
        await elapse((subject.visibility_timeout or 0) * 1.5)
        await nothing_comes(subject, topic, "g")


SOON_ENOUGH = 2.0  # seconds: longer than nothing_comes looks
