"""Depth and lag of a group."""

from __future__ import annotations

from functools import partial

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.dead_letters import bury
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    becomes,
    message,
    nothing_comes,
    take,
)


class DepthSpec(DriverSpec, capability=Capability.DEPTH):
    """depth."""

    async def test_depth_is_all_that_was_not_handled(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        assert await subject.depth(topic, "g") == 0
        await subject.publish_many([message(topic) for _ in range(5)])
        await becomes(lambda: subject.depth(topic, "g"), 5)
        held = await take(subject, topic, "g", 3)
        await subject.ack_many(held[:1])
        await subject.nack(held[1], delay=60)
        await becomes(lambda: subject.depth(topic, "g"), 4)

    async def test_dead_letters_do_not_count(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await bury(subject, topic, "g")
        await becomes(lambda: subject.depth(topic, "g"), 0)


class LagSpec(DriverSpec, capability=Capability.LAG):
    """lag."""

    async def test_lag_is_what_could_be_delivered_now(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic) for _ in range(5)])
        await becomes(lambda: subject.lag(topic, "g"), 5)
        held = await take(subject, topic, "g", 3)
        await becomes(lambda: subject.lag(topic, "g"), 2)
        await subject.nack(held[0], delay=60)
        await becomes(lambda: subject.lag(topic, "g"), 2)

    async def test_what_waits_for_a_paused_group_counts(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        can_pause = Capability.PAUSE in subject.capabilities
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic) for _ in range(2)])
        if can_pause:
            await subject.set_paused(topic, "g", True)
            await nothing_comes(subject, topic, "g")
        await subject.publish_many([message(topic) for _ in range(3)])
        for driver in (subject, peer):
            await becomes(partial(driver.lag, topic, "g"), 5)
        if can_pause:
            await subject.set_paused(topic, "g", False)
        await take(subject, topic, "g", 5)
        await becomes(lambda: subject.lag(topic, "g"), 0)
