"""Dead letters come back to their group when the cause is gone."""

from __future__ import annotations

from lexigram.contracts.queue import Capability, DeadLetterEntry
from lexigram.testing.conformance.queue.driver.dead_letters import bury
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    becomes,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)


class RedrivingSpec(DriverSpec, capability=Capability.REDRIVE):
    """redrive."""

    async def test_a_redriven_message_is_delivered_with_its_retries_back(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        failed = await bury(subject, topic, "g", b"1")
        assert await subject.redrive(topic, "g") == 1
        again = await take_one(subject, topic, "g")
        assert (again.message.id, again.message.payload) == (failed.id, b"1")
        assert again.message.headers == failed.headers
        assert again.message.retry_count == 0
        assert again.delivery_count == 1
        assert list(await subject.list_dead(topic, "g")) == []
        assert await subject.redrive(topic, "g") == 0

    async def test_only_the_wanted_ids_come_back(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await bury(subject, topic, "g", b"1")
        second = await bury(subject, topic, "g", b"2")
        assert await subject.redrive(topic, "g", [second.id, "unknown"]) == 1
        assert bodies(await take(subject, topic, "g")) == [b"2"]
        await nothing_comes(subject, topic, "g")
        left = await subject.list_dead(topic, "g")
        assert [entry.message.payload for entry in left] == [b"1"]

    async def test_other_groups_do_not_get_it_again(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b")
        await bury(subject, topic, "a", b"1")
        await subject.ack_many(await take(subject, topic, "b"))
        assert await subject.redrive(topic, "a") == 1
        assert bodies(await take(subject, topic, "a")) == [b"1"]
        await nothing_comes(subject, topic, "b")

    async def test_a_redriven_message_may_fail_again(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await bury(subject, topic, "g", b"1")
        await subject.redrive(topic, "g")
        held = await take_one(subject, topic, "g")
        await subject.dead_letter(
            held, DeadLetterEntry(message=held.message, error="again", group="g")
        )
        assert [entry.error for entry in await subject.list_dead(topic, "g")] == ["again"]

    async def test_what_had_a_time_to_live_gets_it_anew(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, ttl=1e6)])
        held = await take_one(subject, topic, "g")
        old = DeadLetterEntry(message=held.message, error="late", group="g")
        await subject.dead_letter(held, old)
        await becomes(lambda: subject.count_dead(topic, "g"), 1)
        assert await subject.redrive(topic, "g") == 1
        again = (await take_one(subject, topic, "g")).message
        assert again.ttl == 1e6
        assert again.timestamp >= held.message.timestamp
