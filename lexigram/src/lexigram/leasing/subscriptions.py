"""Notifications in this process: subscribe to a channel, and wait until there may be work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from attrs import frozen


class Subscription:
    """News of one channel for one listener; only the latest payload is kept.

    A notification says "look", never what to see: many of them may arrive as one, and one comes
    for nothing after a reconnect.
    """

    def __init__(self) -> None:
        self._news = anyio.Event()
        self._payload = ""

    async def wait(self, timeout: float | None = None) -> str | None:
        """The latest payload since the last call; None when ``timeout`` seconds passed."""
        if not self._news.is_set():  # without a wait, so that timeout=0 means "is there any?"
            with anyio.move_on_after(timeout):
                await self._news.wait()
        if not self._news.is_set():
            return None
        self._news = anyio.Event()
        return self._payload

    def tell(self, payload: str) -> None:
        """Wake the listener."""
        self._payload = payload
        self._news.set()


@frozen
class Waiter:
    """One worker that waits for a notification, or for the time to look anyway."""

    subscription: Subscription
    poll: float

    async def wait(self, at_most: float | None = None) -> bool:
        """True when woken, False when it is time to look anyway."""
        limit = self.poll if at_most is None else min(self.poll, at_most)
        return await self.subscription.wait(timeout=limit) is not None


class Subscriptions:
    """All subscriptions of one Database object."""

    def __init__(self) -> None:
        self._by_channel: dict[str, set[Subscription]] = {}

    @property
    def channels(self) -> frozenset[str]:
        """The channels that have a listener."""
        return frozenset(self._by_channel)

    @contextmanager
    def open(self, channel: str) -> Iterator[Subscription]:
        """Subscribe for the length of the block."""
        subscription = Subscription()
        self._by_channel.setdefault(channel, set()).add(subscription)
        try:
            yield subscription
        finally:
            left = self._by_channel[channel]
            left.discard(subscription)
            if not left:
                del self._by_channel[channel]

    def tell(self, channel: str, payload: str) -> None:
        """Wake who listens to the channel."""
        for subscription in self._by_channel.get(channel, ()):
            subscription.tell(payload)

    def tell_all(self) -> None:
        """Wake everybody: something may have been missed."""
        for channel in self.channels:
            self.tell(channel, "")
