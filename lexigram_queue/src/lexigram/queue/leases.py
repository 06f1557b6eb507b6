"""Keeps what is in flight: leases are extended long before they end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import anyio

from lexigram.concurrency import as_failure
from lexigram.contracts.queue import Delivery, QueueDriverProtocol
from lexigram.queue.link import Link

BEATS_PER_LEASE: Final = 5  # one or two may be missed


class LeaseKeeper:
    """Extends the leases of one consumer while it holds messages."""

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        held: Callable[[], Collection[Delivery]],
        lost: Callable[[Collection[Delivery]], None],
    ) -> None:
        self._driver, self._link = driver, link
        self._held, self._lost = held, lost

    async def run(self) -> None:
        """Beat until cancelled; nothing to do where a lease has no end."""
        lease = self._driver.visibility_timeout
        if lease is None:
            return
        while True:
            await anyio.sleep(lease / BEATS_PER_LEASE)
            held = list(self._held())
            if held:
                await self._extend(held, lease)

    async def _extend(self, held: list[Delivery], lease: float) -> None:
        try:
            lost = await self._driver.extend_many(held, lease)
        except BaseException as error:
            failure = as_failure(error)  # drivers of others: the next beat tries again
            if failure is None:
                raise
            self._link.suspect(failure)
            return
        if lost:
            self._lost(lost)
