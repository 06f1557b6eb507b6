"""Publish a message if, and only if, a database change is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

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
        """Drop what this outbox staged and has not published, for good."""
        ...
