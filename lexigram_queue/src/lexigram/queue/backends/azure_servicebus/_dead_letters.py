"""Dead-letter sub-queues of a group: looked through, and emptied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio

from lexigram.contracts.queue import DeadLetterEntry
from lexigram.queue.backends.azure_servicebus._links import ABANDONED, COMPLETED, EXTRA
from lexigram.queue.backends.azure_servicebus._names import Place
from lexigram.queue.backends.azure_servicebus._space import PAGE, Space, peek_all
from lexigram.queue.backends.azure_servicebus._wire import read_dead_letter
from lexigram.queue.backends.libraries import require_library

LOOK: Final = 5.0  # seconds to wait for messages that are known to be there


async def read_dead_letters(space: Space, place: Place) -> dict[str, DeadLetterEntry]:
    raws = [raw for _, raw in await _dead_raws(space, place)]
    raws.sort(key=lambda raw: raw.enqueued_time_utc)
    found: dict[str, DeadLetterEntry] = {}
    for raw in raws:
        entry = read_dead_letter(raw, place.topic, place.group)
        found.setdefault(entry.message.id, entry)
    return found


async def _dead_raws(space: Space, place: Place) -> list[tuple[str, Any]]:
    """What is in each sub-queue now."""
    found: list[tuple[str, Any]] = []
    for queue, _ in place.queues:
        found += [(queue, raw) for raw in await peek_all(space.requests(queue, dead=True))]
    return found


async def clear_dead_letters(
    space: Space,
    place: Place,
    ids: Sequence[str] | None,
    before: Callable[[str, Mapping[str, DeadLetterEntry]], Awaitable[None]],
) -> int:
    """Take the wanted ones out of the sub-queues; ``before`` hears of each page of them.

    By sequence number: what fails again meanwhile has the same message id, and stays.
    """
    named = None if ids is None else set(ids)
    wanted: dict[str, set[int]] = {}
    for queue, raw in await _dead_raws(space, place):
        if named is None or read_dead_letter(raw, place.topic, place.group).message.id in named:
            wanted.setdefault(queue, set()).add(int(raw.sequence_number or 0))
    done: set[str] = set()
    for queue, numbers in wanted.items():
        await _clear_one(space, place, queue, numbers, done, before)
    return len(done)


async def _clear_one(
    space: Space,
    place: Place,
    queue: str,
    wanted: set[int],
    done: set[str],
    before: Callable[[str, Mapping[str, DeadLetterEntry]], Awaitable[None]],
) -> None:
    sub = require_library("azure.servicebus", extra=EXTRA).ServiceBusSubQueue.DEAD_LETTER
    receiver = space.reading.get_queue_receiver(queue, sub_queue=sub)
    ask, others = space.requests(queue, dead=True), list[Any]()
    try:
        while wanted and (raws := await receiver.receive_messages(PAGE, max_wait_time=LOOK)):
            out, mine = list[Any](), dict[str, DeadLetterEntry]()
            for raw in raws:
                if raw.sequence_number not in wanted:
                    others.append(raw.lock_token)
                    continue
                wanted.discard(raw.sequence_number)
                out.append(raw.lock_token)
                entry = read_dead_letter(raw, place.topic, place.group)
                if entry.message.id not in done:  # else a copy, of a crash between two writes
                    mine[entry.message.id] = entry
            if mine:
                await before(queue, mine)
            if out:
                await ask.settle(COMPLETED, out)
            done.update(mine)
    finally:
        with anyio.move_on_after(LOOK, shield=True):
            if others:
                await ask.settle(ABANDONED, others)
            await receiver.close()
