"""The broker itself lets expired messages go."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    take,
)


class ExpirySpec(DriverSpec, capability=Capability.TTL):
    """ttl of a message."""

    async def test_an_expired_message_is_not_delivered(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"short", ttl=0.3)])
        await elapse(1.0)
        await subject.publish_many([message(topic, b"long", ttl=60)])
        assert bodies(await take(subject, topic, "g")) == [b"long"]
