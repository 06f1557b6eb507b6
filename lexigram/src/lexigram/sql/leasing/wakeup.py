"""Wait until there may be work: a notification, or the time to look anyway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from lexigram.leasing.subscriptions import Waiter

if TYPE_CHECKING:
    from lexigram.sql.database import Database


@frozen
class WakeUp:
    """A channel of a database, and how long to trust that silence means nothing to do.

    On SQLite other processes cannot notify: ``poll`` is then what finds their work.
    """

    database: Database
    channel: str
    poll: float = 1.0

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[Waiter]:
        """``async with wakeup.waiting() as waiter: await waiter.wait()`` in a loop."""
        async with self.database.listen(self.channel) as subscription:
            yield Waiter(subscription, self.poll)

    async def wake(self) -> None:
        """Say that there is work; inside a transaction PostgreSQL says it at the commit."""
        await self.database.notify(self.channel)
