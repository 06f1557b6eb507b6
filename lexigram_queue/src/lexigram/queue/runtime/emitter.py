"""Reports what happens to the messages of one queue: hooks, events and metrics ``queue.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexigram.events import EventEmitter
from lexigram.queue.events import (
    ConsumerRegisteredEvent,
    MessageConsumedEvent,
    MessageDeadLetteredEvent,
)
from lexigram.queue.hooks import MessageConsumedHook, MessagePublishedHook, QueueDrainedHook

if TYPE_CHECKING:
    from lexigram.contracts.queue import BusMessage, DeadLetterReason

PUBLISHED, CONSUMED, DRAINED = "message.published", "message.consumed", "queue.drained"


class QueueEmitter(EventEmitter):
    """The event emitter of one queue; hooks, events and metrics are set when they are bound."""

    def __init__(self, queue_name: str) -> None:
        super().__init__(prefix="queue.", tags={"queue": queue_name})
        self.queue_name = queue_name

    async def emit_published(self, message: BusMessage) -> None:
        """Report a published message."""
        self.count("published")
        await self.emit(
            MessagePublishedHook,
            lambda: MessagePublishedHook(
                queue_name=self.queue_name, message_type=type(message.payload).__name__
            ),
            name=PUBLISHED,
        )

    async def emit_consumed(self, message: BusMessage, consumer_id: str) -> None:
        """Report a handled message."""
        self.count("consumed")
        await self.emit(
            MessageConsumedHook,
            lambda: MessageConsumedHook(
                queue_name=self.queue_name, message_type=type(message.payload).__name__
            ),
            name=CONSUMED,
        )
        await self.publish(
            MessageConsumedEvent,
            lambda: MessageConsumedEvent(
                message_id=message.id, queue_name=self.queue_name, consumer_id=consumer_id
            ),
        )

    async def emit_dead_lettered(self, message: BusMessage, reason: DeadLetterReason) -> None:
        """Report a dead letter."""
        self.count("dead_lettered", reason=reason.value)
        await self.publish(
            MessageDeadLetteredEvent,
            lambda: MessageDeadLetteredEvent(
                message_id=message.id, queue_name=self.queue_name, reason=reason.value
            ),
        )

    async def emit_registered(self, consumer_id: str) -> None:
        """Report a consumer that began to receive."""
        await self.publish(
            ConsumerRegisteredEvent,
            lambda: ConsumerRegisteredEvent(consumer_id=consumer_id, queue_name=self.queue_name),
        )

    async def emit_drained(self) -> None:
        """Report that everything in flight is finished or handed back."""
        await self.emit(
            QueueDrainedHook, lambda: QueueDrainedHook(queue_name=self.queue_name), name=DRAINED
        )
