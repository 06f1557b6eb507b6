"""Dead letters of a group: a compacted topic, and an index of it by message id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lexigram.contracts.queue import DeadLetterEntry
from lexigram.queue.backends.kafka._names import GroupTopics
from lexigram.queue.backends.kafka._reading import read_range
from lexigram.queue.backends.kafka._settings import reader_settings
from lexigram.queue.backends.kafka._wire import OutboundRecord, key_of, read_entry

if TYPE_CHECKING:
    from confluent_kafka import Message

    from lexigram.queue.backends.kafka._connection import Connection


class Index:
    """The dead letters of one group, as far as they were read."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.entries: dict[bytes, int] = {}  # by the key: others write any bytes there
        self.reading = asyncio.Lock()

    def apply(self, message: Message) -> None:
        key, offset = message.key(), message.offset()
        if key is None or offset is None:
            return
        self.entries.pop(key, None)
        if message.value() is not None:
            self.entries[key] = offset


async def read_index(there: Connection, place: GroupTopics) -> dict[bytes, int]:
    """The offset of every entry by its key, oldest first."""
    await there.ensure([place.dead])
    declared = there.state.groups.get((place.topic, place.group))
    begin = 0 if declared is None else declared.marks.get(place.dead, {}).get(0, 0)
    index = there.dead.setdefault((place.topic, place.group), Index(begin))
    async with index.reading:
        ends = await there.offsets([place.dead], last=True)
        span = {(place.dead, 0): (index.position, ends[place.dead][0])}
        for message in await there.call(
            read_range, reader_settings(there.config), span, there.config.timeout
        ):
            index.apply(message)
        index.position = ends[place.dead][0]
        return dict(index.entries)


async def read_entries(
    there: Connection, place: GroupTopics, offsets: Sequence[int]
) -> list[DeadLetterEntry]:
    if not offsets:
        return []
    wanted = set(offsets)
    span = {(place.dead, 0): (min(wanted), max(wanted) + 1)}
    found = await there.call(read_range, reader_settings(there.config), span, there.config.timeout)
    return [read_entry(one, place.topic) for one in found if one.offset() in wanted]


async def bury_entries(there: Connection, place: GroupTopics, keys: Iterable[bytes]) -> None:
    await there.send([OutboundRecord(place.dead, None, {}, key, 0) for key in keys])


def select_entries(known: Mapping[bytes, int], ids: Sequence[str] | None) -> Mapping[bytes, int]:
    """Entries of these ids; all without them."""
    if ids is None:
        return known
    keys = {key_of(one) for one in ids}
    return {key: at for key, at in known.items() if key in keys}
