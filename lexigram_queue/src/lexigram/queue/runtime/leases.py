"""Renews the leases of messages in flight long before they expire."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from typing import Final

import anyio

from lexigram.concurrency import as_failure
from lexigram.contracts.queue import Capability, Delivery, QueueDriverProtocol
from lexigram.queue.runtime.link import Link

BEATS_PER_LEASE: Final = 5  # one or two may be missed
# Where a delivery is held until its connection closes: seconds after which a loop that was
# blocked checks the connection, and turns of the loop in which the client detects it.
STALL: Final = 5.0
TURNS: Final = 10


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
        self._lease = driver.visibility_timeout
        self._extends = self._lease is not None and Capability.LEASE_EXTEND in driver.capabilities
        # By ``monotonic``: until then nothing that is held is lost. A loop that was blocked for
        # longer must call ``renew`` before it begins anything that it holds.
        self.safe_until = inf
        self._renewing = anyio.Lock()

    async def run(self) -> None:
        """Renew until cancelled."""
        self._note(monotonic())
        while True:
            await anyio.sleep((self._lease or STALL) / BEATS_PER_LEASE)
            began, held = monotonic(), list(self._held())
            lost = await self._extend(held) if held and self._extends else []
            if lost is None:
                continue  # the next beat tries again
            self._note(began)
            if lost:
                self._lost(lost)

    async def renew(self) -> None:
        """Renew after a pause of the event loop, and give up the deliveries that are lost."""
        if self._lease is None:
            for _ in range(TURNS):
                await anyio.lowlevel.checkpoint()
        async with self._renewing:  # every worker calls: the first one renews for all
            began, held = monotonic(), list(self._held())
            if began <= self.safe_until or not held:
                return
            # Without an answer nothing is sure; what is given up is delivered again.
            found = await self._extend(held) if self._extends or self._lease is None else None
            lost = held if found is None else found
            self._note(began)
            if lost:
                self._lost(lost)

    async def is_held(self, delivery: Delivery) -> bool:
        """Whether the lease still holds; it begins anew."""
        return not self._extends or await self._extend([delivery]) == []

    def _note(self, began: float) -> None:
        self.safe_until = began + (self._lease or STALL)

    async def _extend(self, held: list[Delivery]) -> list[Delivery] | None:
        """Those that are lost; None when the broker did not answer."""
        try:
            return list(await self._driver.extend_many(held, self._lease or STALL))
        except BaseException as error:
            failure = as_failure(error)  # drivers of others
            if failure is None:
                raise
            self._link.suspect(failure)
            return None
