"""A member that crashes loses nothing: its messages are redelivered."""

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
)


class KillingSpec(DriverSpec, capability=Capability.SURVIVE_KILL):
    """Leases that run out, connections that go."""

    async def test_what_a_closed_member_held_is_delivered_again(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % number) for number in range(3)])
        held = await take(peer, topic, "g", 3)
        await peer.ack_many(held[:1])
        await peer.close()
        await elapse((subject.visibility_timeout or 0) * 1.2)
        assert sorted(bodies(await take(subject, topic, "g", 2))) == [b"1", b"2"]

    async def test_a_lease_that_ran_out_is_delivered_to_another_member(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        if subject.visibility_timeout is None:
            return  # it holds until the connection goes: the test above
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        held = await take(peer, topic, "g")
        await elapse(subject.visibility_timeout * 1.2)
        again = await take(subject, topic, "g")
        assert bodies(again) == [b"1"]
        assert again[0].delivery_count == 2
        # The first holder comes back from a long sleep: it has lost its right to settle.
        await peer.ack_many(held)
        await peer.nack(held[0])
        await peer.release_many(held)
        await nothing_comes(peer, topic, "g")
        await subject.nack(again[0])
        assert bodies(await take(subject, topic, "g")) == [b"1"]
