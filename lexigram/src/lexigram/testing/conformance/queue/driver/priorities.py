"""Of what waits, the most urgent comes first."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    bodies,
    message,
    take,
)


class PrioritiesSpec(DriverSpec, capability=Capability.PRIORITY):
    """priority of a message, 0 to 9."""

    async def test_the_highest_priority_comes_first_equal_ones_in_order(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        sent = [(b"a", 0), (b"b", 5), (b"c", 9), (b"d", 5), (b"e", 0), (b"f", 9)]
        await subject.publish_many([message(topic, body, priority=level) for body, level in sent])
        got = []
        for _ in sent:
            held = await take(subject, topic, "g")
            got += bodies(held)
            await subject.ack_many(held)
        assert got == [b"c", b"f", b"b", b"d", b"a", b"e"]

    async def test_a_retry_keeps_its_priority(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"low")])
        await subject.publish_many([message(topic, b"high", priority=9)])
        held = await take(subject, topic, "g")
        assert bodies(held) == [b"high"]
        await subject.nack(held[0])
        again = await take(subject, topic, "g", 2)
        assert bodies(again) == [b"high", b"low"]
