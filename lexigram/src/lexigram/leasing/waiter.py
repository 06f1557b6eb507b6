"""Wait until there may be work: a notification, or the time to look anyway."""

from __future__ import annotations

from attrs import frozen

from lexigram.leasing.subscriptions import Subscription


@frozen
class Waiter:
    """One worker that waits for news."""

    subscription: Subscription
    poll: float

    async def wait(self, at_most: float | None = None) -> bool:
        """True when woken, False when it is time to look anyway."""
        limit = self.poll if at_most is None else min(self.poll, at_most)
        return await self.subscription.wait(timeout=limit) is not None
