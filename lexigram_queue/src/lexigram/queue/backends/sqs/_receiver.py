"""Receiving: pages of ten, in growing numbers, and what is not due yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import ceil
from typing import TypeAlias

from attrs import define

from lexigram import clock
from lexigram.contracts.data.blobs import BlobError
from lexigram.contracts.queue import Delivery
from lexigram.queue.backends.sqs._bodies import Bodies
from lexigram.queue.backends.sqs._space import LONGEST_POLL, Space
from lexigram.queue.backends.sqs._wire import BATCH, LONGEST_LEASE, Place, Received
from lexigram.queue.errors import SQSQueueError

Page: TypeAlias = tuple[list[Delivery], bool]  # and whether there may be more

_log = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class Held:
    """One delivery, as long as it is ours."""

    raw: Received
    queue: str
    began: float
    until: float

    def finish(self) -> None:
        self.until = 0.0


class Receiver:
    """Takes messages of a group."""

    def __init__(self, bodies: Bodies, *, lease: int, fifo: bool) -> None:
        self._bodies, self._lease, self._fifo = bodies, lease, fifo

    async def poll(
        self, space: Space, place: Place, url: str, limit: int, wait: float
    ) -> list[Delivery]:
        """Pages of ten: one, then twice as many at once while all were full."""
        found: list[Delivery] = []
        seconds, at_once, is_more = min(LONGEST_POLL, int(wait)), 1, True
        while is_more and len(found) < limit:
            sizes = [min(BATCH, limit - start) for start in range(len(found), limit, BATCH)][
                :at_once
            ]
            pages = await asyncio.gather(
                *(self._page(space, place, url, size, seconds) for size in sizes),
                return_exceptions=True,
            )
            for page, is_full in _without_errors(pages, found):
                found += page
                is_more = is_more and is_full
            seconds, at_once = 0, at_once * 2
        return sorted(found, key=lambda one: one.receipt.raw.since)  # as they became due

    async def _page(self, space: Space, place: Place, url: str, size: int, seconds: int) -> Page:
        """At most ten messages, and whether there may be more."""
        raws = await space.take(place.queue, url, size, self._lease, seconds)
        until = asyncio.get_running_loop().time() + self._lease
        firsts = await self._firsts(space, place.queue, raws)
        due = await self._due(space, place.queue, firsts)
        return await self._deliveries(space, place, due, until), len(raws) == size

    async def _firsts(
        self, space: Space, queue: str, found: Sequence[Received]
    ) -> Sequence[Received]:
        """One of each key: a FIFO queue gives several at once, and the second must wait."""
        firsts: dict[str, Received] = {}
        if self._fifo:
            for one in found:
                firsts.setdefault(one.key or one.id, one)
        if not self._fifo or len(firsts) == len(found):
            return found
        kept = list(firsts.values())
        await space.hide(queue, {one.handle: 0 for one in found if one not in kept})
        return kept

    async def _due(self, space: Space, queue: str, found: Sequence[Received]) -> Sequence[Received]:
        """Those whose time has come; the others are hidden until it comes."""
        now = clock.timestamp()
        early = {
            one.handle: one.due - now for one in found if one.due is not None and one.due > now
        }
        if not early:
            return found
        seconds = {handle: min(LONGEST_LEASE, ceil(left)) for handle, left in early.items()}
        await space.hide(queue, seconds)
        return [one for one in found if one.handle not in early]

    async def _deliveries(
        self, space: Space, place: Place, found: Sequence[Received], until: float
    ) -> list[Delivery]:
        made: list[Delivery] = []
        try:
            for one in found:
                payload, problem = await self._bodies.read(one)
                message = one.message(place.topic, payload, problem)
                held = Held(raw=one, queue=place.queue, began=until - self._lease, until=until)
                made.append(
                    Delivery(
                        message=message,
                        topic=place.topic,
                        group=place.group,
                        receipt=held,
                        delivery_count=one.deliveries(fifo=self._fifo),
                    )
                )
        except BlobError as error:  # the store is down: all of them come again
            await space.hide(place.queue, {one.handle: 0 for one in found})
            raise SQSQueueError(
                f"the body of a message is not to be had: {error}",
                topic=place.topic,
                hint="check the blob store; the message comes again",
            ) from error
        return made


def _without_errors(
    pages: Sequence[Page | BaseException], before: Sequence[Delivery]
) -> list[Page]:
    """What came. An error is raised where nothing came; else the next receive meets it again."""
    came = [page for page in pages if not isinstance(page, BaseException)]
    for error in pages:
        if isinstance(error, BaseException):
            if not (before or came) or not isinstance(error, Exception):
                raise error
            _log.warning("a request for messages failed; others brought some: %s", error)
            came.append(([], False))
    return came
