"""Every group gets every message, its members share them."""

from __future__ import annotations

from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.testing.conformance.queue.protocol.spec import (
    Collector,
    QueueCapability,
    QueueSpec,
    until,
)


class GroupsSpec(QueueSpec, capability=QueueCapability.GROUPS):
    """``group`` of subscribe."""

    async def test_every_group_gets_every_message_and_members_share(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        first, second, alone = Collector(), Collector(), Collector()
        await subject.subscribe(topic, first, group="pair")
        await subject.subscribe(topic, second, group="pair")
        await subject.subscribe(topic, alone, group="alone")
        for number in range(30):
            await subject.publish(topic, BusMessage(payload=number))
        await until(lambda: len(alone.messages) >= 30)
        await until(lambda: len(first.messages) + len(second.messages) >= 30)
        assert sorted(alone.payloads) == list(range(30))
        assert sorted([*first.payloads, *second.payloads]) == list(range(30))


class SharingSpec(QueueSpec, capability=QueueCapability.SHARING):
    """Two queues on one broker."""

    async def test_replicas_in_two_processes_share_the_messages(
        self, subject: QueueProtocol, neighbour: QueueProtocol, topic: str
    ) -> None:
        await neighbour.connect()
        try:
            here, there = Collector(), Collector()
            await subject.subscribe(topic, here)
            await neighbour.subscribe(topic, there)
            for number in range(50):
                await subject.publish(topic, BusMessage(payload=number))
            await until(lambda: len(here.messages) + len(there.messages) >= 50)
            assert sorted([*here.payloads, *there.payloads]) == list(range(50))
        finally:
            await neighbour.close()
