"""Publish a message if, and only if, a database change is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.queue.types import BusMessage


@runtime_checkable
class OutboxProtocol(Protocol):
    """Messages that wait in the database for their transaction and then for the broker.

    Guaranteed: a staged message whose transaction commits is published at least once, also
    after a crash; one whose transaction rolls back never is. Order is kept per ordering key.
    Not guaranteed: once (the id stays the same, so receivers can tell), and how soon.
    """

    async def stage(self, topic: str, message: BusMessage) -> None:
        """Write the message in the caller's transaction, or in one of its own without any.

        Nothing is published yet. Staging one id twice stages it twice. Raises DatabaseError.
        """
        ...

    async def flush(self) -> None:
        """Publish what is committed and wait until the broker confirmed it.

        With nothing waiting it does nothing. Raises QueueError naming what was not confirmed;
        that stays staged for the next time.
        """
        ...

    async def clear(self) -> None:
        """Drop what this outbox staged and has not published, permanently."""
        ...


@runtime_checkable
class OutboxStoreProtocol(Protocol):
    """The rows of an outbox, for a relay of one's own; the shipped relay needs none of this.

    Every method raises DatabaseError. Inside a transaction of the caller it takes part in it.
    """

    async def append_batch(self, events: Sequence[BusMessage]) -> None:
        """Add messages, in order, all or none; ``topic`` says where each is to go."""
        ...

    async def fetch_pending(self, limit: int = 100) -> list[dict[str, Any]]:
        """Up to ``limit`` committed rows that wait, oldest first. Reading takes none away.

        Each has ``event_id``, ``message`` (a BusMessage, its payload in bytes), ``attempts`` and
        ``error`` (of the last attempt, or None).
        """
        ...

    async def mark_delivered(self, event_id: str) -> None:
        """The broker confirmed it: forget the row. A second call does nothing."""
        ...

    async def mark_failed(self, event_id: str, error: str) -> None:
        """An attempt failed: count it and keep the row for a later one. Unknown: nothing."""
        ...
