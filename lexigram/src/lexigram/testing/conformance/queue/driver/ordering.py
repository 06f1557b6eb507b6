"""Messages of one ordering key are handled one after the other, in their order."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)

KEY = {ORDERING_KEY: "customer-1"}


class OrderingSpec(DriverSpec, capability=Capability.ORDERING):
    """The header ordering-key."""

    async def test_the_next_of_a_key_waits_for_the_one_before_it(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % n, headers=KEY) for n in range(3)])
        for number in range(3):
            held = await take_one(subject, topic, "g")
            assert held.message.payload == b"%d" % number
            await nothing_comes(peer, topic, "g")
            await subject.ack_many([held])
        await nothing_comes(subject, topic, "g")

    async def test_a_released_one_is_still_the_first_of_its_key(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % n, headers=KEY) for n in range(2)])
        await subject.release_many(await take(subject, topic, "g"))
        held = await take(subject, topic, "g")
        assert bodies(held) == [b"0"]
        await subject.ack_many(held)
        assert bodies(await take(subject, topic, "g")) == [b"1"]

    async def test_messages_without_a_key_are_not_held_up(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % n, headers=KEY) for n in range(2)])
        await take_one(subject, topic, "g")
        await subject.publish_many([message(topic, b"free")])
        assert bodies(await take(subject, topic, "g")) == [b"free"]
