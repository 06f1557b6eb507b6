"""Collect messages and publish them together; in memory, and therefore not transactional.

For messages that must be sent if and only if a transaction commits use ``TransactionalOutbox``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from lexigram.contracts.queue import BusMessage, QueueError, QueueProtocol
from lexigram.contracts.queue.limits import check_message, check_topic
from lexigram.queue.bus import BusQueue


@dataclass
class PendingPublish:
    """A staged message."""

    topic: str
    message: BusMessage
    published: bool = False


class BatchedPublisher:
    """``stage`` some messages, then ``flush`` them in one batch. A crash before loses them."""

    def __init__(self, queue: QueueProtocol) -> None:
        self._queue = queue
        self._pending: list[PendingPublish] = []

    @property
    def pending(self) -> list[PendingPublish]:
        """What was staged and not yet confirmed, in order."""
        return [one for one in self._pending if not one.published]

    def stage(self, topic: str, message: BusMessage) -> None:
        """Keep the message for the next flush; raises InvalidMessageError or CapabilityError.

        A flush would refuse it together with the messages beside it.
        """
        if isinstance(self._queue, BusQueue):
            self._queue.check(topic, message)
        else:
            check_topic(topic)
            check_message(message)
        self._pending.append(PendingPublish(topic, message))

    async def flush(self) -> None:
        """Publish what is pending; what was not confirmed stays staged, and the error is raised."""
        errors: list[QueueError] = []
        by_topic: dict[str, list[PendingPublish]] = defaultdict(list)
        for one in self.pending:
            by_topic[one.topic].append(one)
        for topic, staged in by_topic.items():
            try:
                await self._publish(topic, staged)
            except QueueError as error:
                errors.append(error)
        self._pending = self.pending
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("some staged messages were not published", errors)

    def clear(self) -> None:
        """Forget what is staged."""
        self._pending.clear()

    async def _publish(self, topic: str, staged: list[PendingPublish]) -> None:
        if not isinstance(self._queue, BusQueue):
            for one in staged:
                await self._queue.publish(topic, one.message)
                one.published = True
            return
        unconfirmed = {one.message.id for one in staged}
        try:
            await self._queue.publish_many(topic, [one.message for one in staged])
            unconfirmed.clear()
        except QueueError as error:
            unconfirmed = set(error.details.get("unconfirmed") or unconfirmed)
            raise
        finally:
            for one in staged:
                one.published = one.message.id not in unconfirmed
