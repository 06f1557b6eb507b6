"""A group may take a family of topics."""

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


class PatternsSpec(DriverSpec, capability=Capability.PATTERN):
    """``*`` in a topic."""

    async def test_a_pattern_gets_matching_topics_also_new_ones(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        known, new, other = f"{topic}.OrderRecorded", f"{topic}.BillRecorded", f"{topic}.Sent"
        await subject.declare(known, "plain")
        await subject.declare(f"{topic}.*Recorded", "family")
        await subject.declare(other, "plain")
        await subject.publish_many([message(known, b"1"), message(other, b"no")])
        await peer.publish_many([message(new, b"2")])
        held = await take(subject, f"{topic}.*Recorded", "family", 2)
        assert sorted(bodies(held)) == [b"1", b"2"]
        assert {item.message.topic for item in held} == {known, new}
        assert {item.topic for item in held} == {f"{topic}.*Recorded"}
        await nothing_comes(subject, f"{topic}.*Recorded", "family")
        assert bodies(await take(subject, known, "plain")) == [b"1"]

    async def test_what_a_pattern_took_is_settled_like_any_other(
        self, subject: Driver, topic: str
    ) -> None:
        pattern = f"{topic}.*"
        await subject.declare(pattern, "g")
        await subject.publish_many([message(f"{topic}.a", b"1"), message(f"{topic}.b", b"2")])
        first, second = await take(subject, pattern, "g", 2)
        await subject.ack_many([first])
        await subject.nack(second)
        again = await take_one(subject, pattern, "g")
        assert again.message == second.message
