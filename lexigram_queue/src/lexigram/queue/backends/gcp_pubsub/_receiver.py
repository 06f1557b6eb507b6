"""Receiving: an inbox for each subscription, and what is not due yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from lexigram import clock
from lexigram.queue.backends.gcp_pubsub._names import Place
from lexigram.queue.backends.gcp_pubsub._pull import Inbox
from lexigram.queue.backends.gcp_pubsub._space import Space
from lexigram.queue.backends.gcp_pubsub._topology import DEADLINES
from lexigram.queue.backends.gcp_pubsub._wire import (
    LONGEST_DELAY,
    ONLY,
    Out,
    due_of,
    own_attributes,
    turn_of,
)

RENEWED_AFTER: Final = 50  # deliveries of a message that is not due, until it is published anew


class Receiver:
    """Makes inboxes of subscriptions."""

    def __init__(self, *, lease: float, deadline: int, most: int, wait: float) -> None:
        self._lease, self._deadline, self._most, self._wait = lease, deadline, most, wait

    def open_inbox(self, space: Space, place: Place) -> Inbox:
        name = place.subscription

        async def pull(most: int) -> Sequence[Any]:
            return await space.pull(name, most, self._wait)

        async def sort(raws: Sequence[Any]) -> Sequence[Any]:
            due = await self._hold_back(space, place, raws)
            if due and self._deadline < DEADLINES[0]:
                await space.modify(name, [raw.ack_id for raw in due], self._deadline)
            return due

        async def modify(ack_ids: Sequence[str], seconds: int) -> None:
            await space.modify(name, ack_ids, seconds)

        return Inbox(
            pull, sort, modify, lease=self._lease, deadline=self._deadline, most=self._most
        )

    async def _hold_back(self, space: Space, place: Place, raws: Sequence[Any]) -> Sequence[Any]:
        """The due messages; the ack deadline of the others is extended until they are due."""
        now, due = clock.timestamp(), list[Any]()
        later: dict[int, list[str]] = {}
        blocked: set[str] = set()
        for raw in raws:
            left = due_of(raw.message) - now
            key = raw.message.ordering_key
            if key and key in blocked:
                later.setdefault(0, []).append(raw.ack_id)
            elif left <= 0:
                due.append(raw)
            elif raw.delivery_attempt >= RENEWED_AFTER:
                await self._renew(space, place, raw)
            else:
                later.setdefault(min(LONGEST_DELAY, math.ceil(left)), []).append(raw.ack_id)
                if key:
                    blocked.add(key)
        for seconds, ack_ids in later.items():
            await space.modify(place.subscription, ack_ids, seconds)
        return sorted(due, key=turn_of)

    async def _renew(self, space: Space, place: Place, raw: Any) -> None:
        """Publish anew what waits for long: else the service would set it aside."""
        attributes = own_attributes(raw.message.attributes) | {ONLY: place.mark}
        key = raw.message.ordering_key
        out = Out(body=bytes(raw.message.data), attributes=attributes, key=key)
        await space.send(place.entity, [out])
        await space.acknowledge(place.subscription, [raw.ack_id])
