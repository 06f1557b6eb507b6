"""What was acknowledged never comes again."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)


class AckingSpec(DriverSpec, capability=Capability.ACK):
    """ack_many and release_many."""

    async def test_an_acknowledged_message_does_not_come_again(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1"), message(topic, b"2")])
        await subject.ack_many(await take(subject, topic, "g", 2))
        await elapse((subject.visibility_timeout or 0) * 1.5)
        await nothing_comes(subject, topic, "g")

    async def test_acknowledging_in_one_group_leaves_the_others(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        await subject.publish_many([message(topic, b"1")])
        await subject.ack_many(await take(subject, topic, "a"))
        assert bodies(await take(subject, topic, "b")) == [b"1"]

    async def test_settling_twice_does_nothing(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1"), message(topic, b"2")])
        first = await take(subject, topic, "g")
        await subject.ack_many(first)
        await subject.ack_many(first)
        await subject.release_many(first)
        await subject.nack(first[0])
        assert bodies(await take(subject, topic, "g")) == [b"2"]
        await nothing_comes(subject, topic, "g")

    async def test_an_empty_batch_is_nothing_to_do(self, subject: Driver) -> None:
        await subject.ack_many([])
        await subject.release_many([])
        assert list(await subject.extend_many([], 1)) == []

    async def test_released_messages_come_again_at_once(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % number) for number in range(3)])
        await subject.release_many(await take(subject, topic, "g", 3))
        again = await take(peer, topic, "g", 3)
        assert sorted(bodies(again)) == [b"0", b"1", b"2"]
        await peer.ack_many(again)
        await nothing_comes(peer, topic, "g")

    async def test_an_unsettled_message_is_not_given_to_another_member(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        held = await take_one(subject, topic, "g")
        await nothing_comes(peer, topic, "g")
        await subject.ack_many([held])
