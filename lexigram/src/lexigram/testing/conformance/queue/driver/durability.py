"""Confirmed messages outlive every connection; a restart of the server is a test of its own."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.testing.conformance.queue.driver.dead_letters import bury
from lexigram.testing.conformance.queue.driver.spec import (
    DELAY,
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    take,
    take_one,
)


class DurabilitySpec(DriverSpec, capability=Capability.DURABLE):
    """Nobody is connected for a moment."""

    async def test_messages_retries_and_dead_letters_are_there_after_all_connections_closed(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        dead = await bury(subject, topic, "g", b"dead")
        await subject.publish_many([message(topic, b"retried")])
        await subject.nack(await take_one(subject, topic, "g"), delay=DELAY)
        await subject.publish_many([message(topic, b"waiting")])
        await subject.close()
        await elapse(DELAY)
        await subject.connect()
        assert sorted(bodies(await take(subject, topic, "g", 2))) == [b"retried", b"waiting"]
        assert [entry.message.id for entry in await subject.list_dead(topic, "g")] == [dead.id]
