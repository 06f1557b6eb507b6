"""Exactly once: a handler and the note that it handled the message commit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lexigram import clock
from lexigram.contracts.queue import Delivery
from lexigram.queue.config import QueueConfig
from lexigram.queue.outbox.store_inbox import InboxStore

if TYPE_CHECKING:
    from lexigram.queue.options import ConsumerOptions
    from lexigram.queue.runtime.attempts import Around, Call
    from lexigram.sql import Database

RETENTION_SECONDS: Final = QueueConfig().inbox_retention  # what comes later is handled again
PRUNE_SECONDS: Final = 600.0  # between two deletions of old rows


class Inbox:
    """Frames the attempts of exactly-once consumers: ``queue.inbox = Inbox(database).around``.

    One SQL transaction holds the note (group, message id), everything the handler writes to the
    database, and everything it stages or publishes through the sql driver. It commits when the
    handler returns; a second delivery of the message then finds the note and is acknowledged
    without a call. A failed attempt leaves nothing, so a retry or redrive is handled.

    Not covered: effects outside this database.
    """

    def __init__(self, database: Database, *, retention: float = RETENTION_SECONDS) -> None:
        self._database = database
        self._store = InboxStore(database)
        self._retention = retention
        self._prune_at = 0.0

    def around(self, consumer: ConsumerOptions) -> Around:
        """The frame for the attempts of one consumer."""

        async def once(deliveries: Sequence[Delivery], call: Call) -> None:
            ids = [delivery.message.id for delivery in deliveries]
            async with self._database.transaction():
                fresh = await self._store.note(consumer.group, ids)
                if fresh:
                    await call(fresh)
            await self._prune_sometimes()

        return once

    async def prune(self) -> int:
        """Forget what is older than the retention; how many."""
        return await self._store.prune(self._retention)

    async def _prune_sometimes(self) -> None:
        now = clock.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_SECONDS
            await self.prune()
