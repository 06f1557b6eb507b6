"""A message published now may be delivered later."""

from __future__ import annotations

from collections.abc import Callable

from lexigram.contracts.queue import Capability
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    nothing_comes,
    take,
)

LATER = 2.0  # seconds


class SchedulingSpec(DriverSpec, capability=Capability.SCHEDULE):
    """The header deliver-at."""

    async def test_it_is_not_delivered_before_its_time_and_to_every_group_then(
        self, subject: Driver, topic: str, elapse: Elapse, wall_clock: Callable[[], float]
    ) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        at = {DELIVER_AT: str(wall_clock() + LATER)}
        await subject.publish_many([message(topic, b"later", headers=at), message(topic, b"now")])
        held = await take(subject, topic, "a")
        assert bodies(held) == [b"now"]
        await subject.ack_many(held)
        await nothing_comes(subject, topic, "a")
        await elapse(LATER)
        assert bodies(await take(subject, topic, "a")) == [b"later"]
        assert bodies(await take(subject, topic, "b", 2)) == [b"now", b"later"]

    async def test_a_time_in_the_past_is_now(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1", headers={DELIVER_AT: "1000.0"})])
        assert bodies(await take(subject, topic, "g")) == [b"1"]
