"""Queues of groups: how they are made, announced, and given what was kept for them."""

from __future__ import annotations

from typing import Final

import anyio

from lexigram import clock
from lexigram.queue.backends.sqs._space import DELETED_FOR, Space
from lexigram.queue.backends.sqs._wire import RETENTION, Place, wire
from lexigram.queue.runtime.topics import is_pattern

MOST_RECEIVES: Final = 1000  # of the service; the runtime counts its own, far below
MARGIN: Final = 1.0  # seconds a send may take after its list of groups was over


async def declare_group(space: Space, place: Place) -> None:
    """Make both queues exist; the first group begins with what was kept."""
    facts = await space.facts_of(place.queue)
    if facts is None or "RedrivePolicy" not in facts:
        await _make(space, place)
        facts = await space.facts_of(place.queue) or {}
    space.listed_until = 0.0
    await _be_known(space, place, float(facts.get("CreatedTimestamp", 0)))
    if not is_pattern(place.topic):
        await _take_over(space, place)


async def _make(space: Space, place: Place) -> None:
    await space.create(place.dead, place.tags)
    facts = await space.facts_of(place.dead) or {}
    # Attributes are set afterwards: with others than the queue has, making it is an error.
    await space.asking.set_queue_attributes(
        QueueUrl=space.urls[place.dead], Attributes={"MessageRetentionPeriod": str(RETENTION)}
    )
    await space.create(place.queue, place.tags)
    policy = f'{{"deadLetterTargetArn":"{facts["QueueArn"]}","maxReceiveCount":{MOST_RECEIVES}}}'
    await space.asking.set_queue_attributes(
        QueueUrl=space.urls[place.queue],
        Attributes={"MessageRetentionPeriod": str(RETENTION), "RedrivePolicy": policy},
    )


async def _be_known(space: Space, place: Place, created: float) -> None:
    """Return when every publisher has a list with this group in it."""
    if not space.refresh:
        return  # nobody keeps a list
    with anyio.fail_after(DELETED_FOR + space.timeout):
        while place.queue not in await space.list_groups():  # noqa: ASYNC110 - SQS tells nobody
            await anyio.sleep(0.2)  # SQS lists a new queue a little later
    await anyio.sleep(max(0.0, created + space.refresh + 2 * MARGIN - clock.timestamp()))


async def _take_over(space: Space, place: Place) -> None:
    """Move what the keeper has into the queue of the first group."""
    keeper = place.keeper
    if await space.facts_of(keeper) is None or not await _is_first(space, place):
        return
    async for page in space.drain(keeper):
        outs = [wire(one.message(place.topic, b""), one.content, place.queue) for one in page]
        await space.send(place.queue, outs)
        await space.delete(keeper, [one.handle for one in page])


async def _is_first(space: Space, place: Place) -> bool:
    """Whether no group of the topic is older; two that begin at once must not share."""
    ages: list[tuple[float, str]] = []
    for queue in {place.queue, *space.plain_queues(await space.list_groups(), place.topic)}:
        facts = await space.facts_of(queue)
        if facts is not None:
            ages.append((float(facts["CreatedTimestamp"]), queue))
    return min(ages)[1] == place.queue


async def find_keeper(space: Space, place: Place, max_backlog: int) -> str:
    """The queue of a topic without a group, and in ``space.rooms`` how much it takes."""
    facts = await space.facts_of(place.keeper)
    if facts is None:
        await space.create(place.keeper, place.tags)
        await space.asking.set_queue_attributes(
            QueueUrl=space.urls[place.keeper],
            Attributes={"MessageRetentionPeriod": str(RETENTION)},
        )
    room = max_backlog - int((facts or {}).get("ApproximateNumberOfMessages", 0))
    space.rooms[place.keeper] = max(0, room)
    return place.keeper
