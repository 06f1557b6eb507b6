"""A topic nobody consumes does not grow for ever."""

from __future__ import annotations

import pytest

from lexigram.contracts.queue import Capability, QueueFullError
from lexigram.testing.conformance.queue.driver.spec import (
    Driver,
    DriverSpec,
    message,
    take,
)


class BacklogsSpec(DriverSpec, capability=Capability.BACKLOG):
    """max_backlog."""

    async def test_a_topic_without_a_group_refuses_what_it_cannot_keep(
        self, subject: Driver, topic: str, max_backlog: int
    ) -> None:
        await subject.publish_many([message(topic) for _ in range(max_backlog)])
        with pytest.raises(QueueFullError):
            await subject.publish_many([message(topic, b"too many")])
        await subject.declare(topic, "g")
        await subject.ack_many(await take(subject, topic, "g", max_backlog))
        await subject.publish_many([message(topic, b"room again")])
        assert (await take(subject, topic, "g"))[0].message.payload == b"room again"
