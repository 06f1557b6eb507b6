"""How often the handler of a message was begun is kept with the message."""

from __future__ import annotations

from dataclasses import replace

from lexigram.contracts.queue import (
    BegunMarkProtocol,
    Capability,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
)
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    take,
    take_one,
)


class BegunMarkSpec(DriverSpec, capability=Capability.BEGUN_MARK):
    """mark_begun."""

    async def test_marks_are_counted_and_stay_when_the_message_comes_back(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"1"), message(topic, b"2")])
        held = {one.message.payload: one for one in await take(peer, topic, "g", 2)}
        assert [await mark(peer, held[b"1"]) for _ in range(2)] == [1, 2]
        await let_go(peer, elapse)
        again = {one.message.payload: one for one in await take(subject, topic, "g", 2)}
        assert all(one.delivery_count > 1 for one in again.values())
        assert await mark(subject, again[b"1"]) == 3
        assert await mark(subject, again[b"2"]) == 1

    async def test_a_marked_message_comes_back_as_it_was(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"1", headers={"a": "b"}, max_retries=5)])
        first = await take_one(peer, topic, "g")
        await peer.nack(first, message=replace(first.message, retry_count=1))
        held = await take_one(peer, topic, "g")
        await mark(peer, held)
        await let_go(peer, elapse)
        assert (await take_one(subject, topic, "g")).message == held.message

    async def test_a_release_keeps_the_marks_and_does_not_count(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic)])
        held = await take_one(subject, topic, "g")
        assert await mark(subject, held) == 1
        for member in (peer, subject, peer):
            await (subject if member is peer else peer).release_many([held])
            held = await take_one(member, topic, "g")
            assert held.delivery_count == 1
        assert await mark(peer, held) == 2

    async def test_a_retry_begins_without_marks(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic)])
        held = await take_one(subject, topic, "g")
        await mark(subject, held)
        await subject.nack(held, message=replace(held.message, retry_count=1))
        assert await mark(subject, await take_one(subject, topic, "g")) == 1

    async def test_a_redriven_message_begins_without_marks(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic)])
        held = await take_one(subject, topic, "g")
        await mark(subject, held)
        entry = DeadLetterEntry(message=held.message, error="e", reason=DeadLetterReason.POISON)
        await subject.dead_letter(held, entry)
        assert await subject.redrive(topic, "g") == 1
        assert await mark(subject, await take_one(subject, topic, "g")) == 1

    async def test_a_marked_message_can_be_acknowledged(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1"), message(topic, b"2")])
        first, second = await take(subject, topic, "g", 2)
        await mark(subject, first)
        await subject.ack_many([first])
        await subject.nack(second)
        await elapse((subject.visibility_timeout or 0) * 1.2)
        assert bodies(await take(subject, topic, "g")) == [second.message.payload]

    async def test_the_marks_of_one_group_are_not_those_of_another(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        await subject.publish_many([message(topic)])
        assert await mark(subject, await take_one(subject, topic, "a")) == 1
        assert await mark(subject, await take_one(subject, topic, "b")) == 1

    async def test_a_lost_delivery_takes_no_mark(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic)])
        lost = await take_one(peer, topic, "g")
        await let_go(peer, elapse)
        await peer.connect()
        again = await take_one(subject, topic, "g")
        assert await mark(peer, lost) == 0
        assert await mark(subject, again) == 1


async def let_go(member: Driver, elapse: Elapse) -> None:
    """What the member holds comes back: its lease ends, or its connection."""
    if member.visibility_timeout is None:
        await member.close()
    else:
        await elapse(member.visibility_timeout * 1.2)


async def mark(driver: Driver, delivery: Delivery) -> int:
    """Mark it by a driver that supports it."""
    assert isinstance(driver, BegunMarkProtocol)
    return await driver.mark_begun(delivery)
