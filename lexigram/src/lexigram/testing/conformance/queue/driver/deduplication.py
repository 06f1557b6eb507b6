"""A second publish of one id within the window is dropped."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)


class DeduplicationSpec(DriverSpec, capability=Capability.DEDUP):
    """The id of a message; the subject has a window of at least 60 s."""

    async def test_the_second_one_is_dropped_also_after_the_first_was_handled(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        sent = message(topic, b"1")
        await subject.publish_many([sent])
        await peer.publish_many([sent])
        await subject.ack_many(await take(subject, topic, "g"))
        await subject.publish_many([sent])
        await nothing_comes(subject, topic, "g")

    async def test_a_retry_is_no_second_publish(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        await subject.nack(await take_one(subject, topic, "g"))
        assert bodies(await take(subject, topic, "g")) == [b"1"]
