"""A long handler keeps its message."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    message,
    nothing_comes,
    take,
    take_one,
)


class LeasesSpec(DriverSpec, capability=Capability.LEASE_EXTEND):
    """extend_many."""

    async def test_an_extended_lease_keeps_the_message(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        lease = subject.visibility_timeout
        assert lease is not None, "declares 'lease_extend' without a visibility_timeout"
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic)])
        held = await take_one(subject, topic, "g")
        for _ in range(3):
            await elapse(lease * 0.5)
            assert list(await subject.extend_many([held], lease)) == []
        await nothing_comes(peer, topic, "g")
        await subject.ack_many([held])
        await elapse(lease * 1.2)
        await nothing_comes(peer, topic, "g")

    async def test_a_lost_lease_is_reported(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        lease = subject.visibility_timeout
        assert lease is not None
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"1"), message(topic, b"2")])
        lost, acked = await take(subject, topic, "g", 2)
        await subject.ack_many([acked])
        await elapse(lease * 1.2)
        await take_one(peer, topic, "g")
        assert list(await subject.extend_many([lost], lease)) == [lost]
