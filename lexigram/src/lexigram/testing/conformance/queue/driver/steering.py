"""Peek, purge and pause."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from lexigram.contracts.queue import Capability
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.testing.conformance.queue.driver.scheduling import LATER
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    becomes,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)


class PeekingSpec(DriverSpec, capability=Capability.PEEK):
    """peek."""

    async def test_looking_takes_nothing(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = [message(topic, b"%d" % number) for number in range(3)]
        await subject.publish_many(sent)
        assert list(await subject.peek(topic, "g", limit=2)) == sent[:2]
        assert list(await subject.peek(topic, "g")) == sent
        assert bodies(await take(subject, topic, "g", 3)) == [b"0", b"1", b"2"]

    async def test_what_is_due_by_now_is_seen_before_anybody_received(
        self, subject: Driver, topic: str, elapse: Elapse, wall_clock: Callable[[], float]
    ) -> None:
        if Capability.SCHEDULE not in subject.capabilities:
            pytest.skip("without 'schedule' nothing is due later")
        await subject.declare(topic, "g")
        soon, late = ({DELIVER_AT: str(wall_clock() + after)} for after in (LATER, 60.0))
        await subject.publish_many(
            [
                message(topic, b"due", headers=soon),
                message(topic, b"late", headers=late),
                message(topic, b"now"),
            ]
        )

        async def sees(*wanted: bytes) -> bool:  # what is not due may be among it
            found = {one.payload for one in await subject.peek(topic, "g")}
            return found.issuperset(wanted)

        assert await sees(b"now")
        await elapse(LATER)
        await becomes(partial(sees, b"due", b"now"), True)
        assert sorted(bodies(await take(subject, topic, "g", 2))) == [b"due", b"now"]


class PurgingSpec(DriverSpec, capability=Capability.PURGE):
    """purge."""

    async def test_what_waits_is_dropped_and_what_is_in_flight_stays(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.declare(topic, "other")
        await subject.publish_many([message(topic, b"%d" % number) for number in range(5)])
        held = await take_one(subject, topic, "g")
        assert await subject.purge(topic, "g") == 4
        await nothing_comes(subject, topic, "g")
        await subject.nack(held)
        assert bodies(await take(subject, topic, "g")) == [b"0"]
        assert len(await take(subject, topic, "other", 5)) == 5


class PausingSpec(DriverSpec, capability=Capability.PAUSE):
    """set_paused, is_paused."""

    async def test_a_paused_group_gets_nothing_in_any_process(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.declare(topic, "other")
        assert not await subject.is_paused(topic, "g")
        await subject.set_paused(topic, "g", True)
        assert await peer.is_paused(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        await subject.receive(topic, "g", limit=1, wait=0)
        await nothing_comes(subject, topic, "g")
        assert bodies(await take(subject, topic, "other")) == [b"1"]
        await peer.set_paused(topic, "g", False)
        assert not await subject.is_paused(topic, "g")
        assert bodies(await take(subject, topic, "g")) == [b"1"]
