"""Dead letters of a group: looked at by taking them for a moment."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from attrs import frozen

from lexigram.contracts.queue import DeadLetterEntry
from lexigram.queue.backends.gcp_pubsub._names import Place
from lexigram.queue.backends.gcp_pubsub._space import Space
from lexigram.queue.backends.gcp_pubsub._wire import read_dead_letter, read_publish_time

PAGE: Final = 250


@frozen(kw_only=True)
class OpenDeadLetter:
    """A dead letter that is out to us."""

    raw: Any
    entry: DeadLetterEntry


@asynccontextmanager
async def open_dead_letters(
    space: Space, place: Place, look: float, most: float = math.inf
) -> AsyncGenerator[list[OpenDeadLetter]]:
    """Dead letters of the group, oldest first, out to us.

    Those that are still in the list at the end go back, also after an error.
    """
    async with space.looking(place.dead):
        raws, dead = list[Any](), list[OpenDeadLetter]()
        try:
            while (left := most - len(raws)) > 0:
                page = await space.pull(place.dead, int(min(PAGE, left)), look)
                if not page:
                    break
                raws += page
                dead += [
                    OpenDeadLetter(
                        raw=raw, entry=read_dead_letter(raw.message, place.topic, place.group)
                    )
                    for raw in page
                ]
            dead.sort(
                key=lambda one: (read_publish_time(one.raw.message), one.raw.message.message_id)
            )
            yield dead
        finally:
            with anyio.move_on_after(space.timeout, shield=True):
                await space.modify(place.dead, [one.raw.ack_id for one in dead], 0)
