"""What cannot be handled is set aside with all that is needed to understand it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from lexigram.contracts.queue import BusMessage, Capability, DeadLetterEntry, DeadLetterReason
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


async def bury(driver: Driver, topic: str, group: str, body: bytes = b"{}") -> BusMessage:
    """Publish a message and set it aside in the group."""
    sent = message(topic, body, headers={"tenant": "t1"})
    await driver.publish_many([sent])
    held = await take_one(driver, topic, group)
    failed = replace(held.message, retry_count=3)
    await driver.dead_letter(
        held, DeadLetterEntry(message=failed, error="boom", group=group, retry_count=3, attempts=4)
    )
    return failed


class DeadLettersSpec(DriverSpec, capability=Capability.DEAD_LETTER):
    """dead_letter, list_dead, count_dead, purge_dead."""

    async def test_an_entry_keeps_everything(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many(
            [message(topic, b"\x00body", headers={"a": "ü"}, priority=1, ttl=1e9)]
        )
        held = await take_one(subject, topic, "g")
        entry = DeadLetterEntry(
            message=replace(held.message, retry_count=3),
            error="ValueError: Zürich\nsecond line",
            failed_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            retry_count=3,
            reason=DeadLetterReason.POISON,
            traceback='Traceback (most recent call last):\n  File "x.py", line 1\nValueError',
            attempts=4,
            group="g",
        )
        await subject.dead_letter(held, entry)
        assert list(await subject.list_dead(topic, "g")) == [entry]

    async def test_a_dead_message_is_not_delivered_again(
        self, subject: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        await bury(subject, topic, "g")
        await elapse((subject.visibility_timeout or 0) * 1.5)
        await nothing_comes(subject, topic, "g")

    async def test_other_groups_are_not_concerned(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        await bury(subject, topic, "a", b"1")
        assert bodies(await take(subject, topic, "b")) == [b"1"]
        assert list(await subject.list_dead(topic, "b")) == []

    async def test_entries_are_listed_in_pages_oldest_first_from_any_process(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        for number in range(5):
            await bury(subject, topic, "g", b"%d" % number)
        await peer.declare(topic, "g")
        page = await peer.list_dead(topic, "g", limit=2, offset=1)
        assert [entry.message.payload for entry in page] == [b"1", b"2"]
        assert len(await peer.list_dead(topic, "g")) == 5

    async def test_entries_are_counted_for_one_group_from_any_process(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.declare(topic, "other")
        assert await subject.count_dead(topic, "g") == 0
        first = await bury(subject, topic, "g", b"1")
        await bury(subject, topic, "g", b"2")
        await bury(subject, topic, "g", b"3")
        await becomes(lambda: peer.count_dead(topic, "g"), 3)
        assert await subject.count_dead(topic, "other") == 0
        await subject.purge_dead(topic, "g", [first.id])
        await becomes(lambda: subject.count_dead(topic, "g"), 2)
        assert len(await subject.list_dead(topic, "g")) == 2

    async def test_one_entry_per_message(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        sent = message(topic, b"1")
        await subject.publish_many([sent])
        held = await take_one(subject, topic, "g")
        entry = DeadLetterEntry(message=held.message, error="boom", group="g")
        await subject.dead_letter(held, entry)
        await subject.dead_letter(held, entry)
        assert [one.message.id for one in await subject.list_dead(topic, "g")] == [sent.id]

    async def test_entries_are_purged_by_id_or_all(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        first = await bury(subject, topic, "g", b"1")
        await bury(subject, topic, "g", b"2")
        await bury(subject, topic, "g", b"3")
        assert await subject.purge_dead(topic, "g", [first.id, "unknown"]) == 1
        left = await subject.list_dead(topic, "g")
        assert [entry.message.payload for entry in left] == [b"2", b"3"]
        assert await subject.purge_dead(topic, "g") == 2
        assert list(await subject.list_dead(topic, "g")) == []
        await nothing_comes(subject, topic, "g")
