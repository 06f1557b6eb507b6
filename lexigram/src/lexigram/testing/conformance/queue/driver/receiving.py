"""Groups get every message, members share them."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.queue import Capability, QueueError
from lexigram.testing.conformance.queue.driver.spec import (
    HANG_GUARD_SECONDS,
    Driver,
    DriverSpec,
    Elapse,
    bodies,
    message,
    nothing_comes,
    take,
    take_one,
)

AWKWARD = ["lexigram.shop.Consumer", "Grüße/an:alle", "with space", "a-b_c.d#e"]


class ReceivingSpec(DriverSpec, capability=Capability.RECEIVE):
    """declare, receive, drop, groups."""

    async def test_every_group_gets_every_message(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "billing")
        await peer.declare(topic, "mailing")
        await subject.publish_many([message(topic, b"%d" % number) for number in range(5)])
        expected = [b"%d" % number for number in range(5)]
        assert bodies(await take(subject, topic, "billing", 5)) == expected
        assert bodies(await take(peer, topic, "mailing", 5)) == expected

    async def test_members_of_a_group_share_the_messages(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        await subject.publish_many([message(topic, b"%d" % number) for number in range(10)])
        got: list[bytes] = []
        with anyio.fail_after(HANG_GUARD_SECONDS):
            while len(got) < 10:
                for member in (subject, peer):
                    held = await member.receive(topic, "g", limit=2, wait=0.2)
                    got.extend(bodies(held))
                    await member.ack_many(held)
        assert sorted(got, key=int) == [b"%d" % number for number in range(10)]
        await nothing_comes(peer, topic, "g")

    async def test_what_was_sent_before_the_first_group_goes_to_it(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.publish_many([message(topic, b"early")])
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"late")])
        assert bodies(await take(subject, topic, "g", 2)) == [b"early", b"late"]

    async def test_a_later_group_begins_with_its_declaration(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "first")
        await subject.publish_many([message(topic, b"early")])
        await subject.declare(topic, "second")
        await subject.publish_many([message(topic, b"late")])
        assert bodies(await take(subject, topic, "second")) == [b"late"]
        assert bodies(await take(subject, topic, "first", 2)) == [b"early", b"late"]

    async def test_declaring_again_changes_nothing(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        await subject.declare(topic, "g")
        await peer.declare(topic, "g")
        assert bodies(await take(peer, topic, "g")) == [b"1"]
        await nothing_comes(subject, topic, "g")

    async def test_receiving_gives_at_most_what_was_asked_for(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic) for _ in range(5)])
        first = await take(subject, topic, "g", 2)
        assert len(first) == 2
        assert len(await take(subject, topic, "g", 3)) == 3

    async def test_receiving_waits_for_the_first_message(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_publish_later, peer, topic)
            assert bodies(await subject.receive(topic, "g", limit=10, wait=15)) == [b"late"]

    async def test_receiving_ends_empty_when_nothing_comes(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        with anyio.fail_after(HANG_GUARD_SECONDS):
            assert list(await subject.receive(topic, "g", limit=10, wait=0.05)) == []
            assert list(await subject.receive(topic, "g", limit=10, wait=0)) == []

    async def test_a_delivery_says_where_it_came_from(self, subject: Driver, topic: str) -> None:
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic)])
        got = await take_one(subject, topic, "g")
        assert (got.topic, got.group, got.message.topic) == (topic, "g", topic)
        assert got.delivery_count == 1

    async def test_cancelled_receiving_loses_nothing(
        self, subject: Driver, peer: Driver, topic: str, elapse: Elapse
    ) -> None:
        await subject.declare(topic, "g")
        came: set[bytes] = set()
        for number in range(5):
            await peer.publish_many([message(topic, b"%d" % number)])
            with anyio.move_on_after(0.001 * number):
                came.update(bodies(await subject.receive(topic, "g", limit=10, wait=5)))
        with anyio.fail_after(HANG_GUARD_SECONDS):
            while len(came) < 5:
                await elapse(0.1)
                came.update(bodies(await subject.receive(topic, "g", limit=10, wait=0.1)))
        assert came == {b"0", b"1", b"2", b"3", b"4"}

    async def test_a_group_that_was_never_declared_is_an_error(
        self, subject: Driver, topic: str
    ) -> None:
        with pytest.raises(QueueError):
            await subject.receive(topic, "nobody", limit=1, wait=0)

    @pytest.mark.parametrize("group", AWKWARD)
    async def test_names_may_be_any_text(self, subject: Driver, topic: str, group: str) -> None:
        place = f"{topic}.{group}"
        await subject.declare(place, group)
        await subject.publish_many([message(place, b"1")])
        got = await take_one(subject, place, group)
        assert (got.topic, got.group, got.message.payload) == (place, group, b"1")

    async def test_groups_are_listed_and_dropped(
        self, subject: Driver, peer: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "a")
        await subject.declare(topic, "b", temporary=True)
        assert {(topic, "a"), (topic, "b")} <= set(await peer.groups())
        await subject.publish_many([message(topic)])
        await subject.drop(topic, "a")
        await subject.drop(topic, "a")
        assert (topic, "a") not in set(await peer.groups())
        assert bodies(await take(subject, topic, "b")) == [b"{}"]
        await subject.declare(topic, "a")
        await nothing_comes(subject, topic, "a")

    async def test_closing_twice_and_connecting_again_is_fine(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.connect()
        await subject.declare(topic, "g")
        await subject.close()
        await subject.close()
        await subject.connect()
        await subject.declare(topic, "g")
        await subject.publish_many([message(topic, b"1")])
        assert bodies(await take(subject, topic, "g")) == [b"1"]

    async def test_a_driver_that_is_not_connected_says_so(
        self, neighbour: Driver, topic: str
    ) -> None:
        with pytest.raises(QueueError):
            await neighbour.publish_many([message(topic)])


async def _publish_later(driver: Driver, topic: str) -> None:
    await anyio.sleep(0.05)
    await driver.publish_many([message(topic, b"late")])
