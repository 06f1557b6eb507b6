"""Topics, queues and subscriptions of groups: how they are created, updated and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from lexigram import clock
from lexigram.queue.backends.azure_servicebus._links import EXTRA, open_link
from lexigram.queue.backends.azure_servicebus._names import Place
from lexigram.queue.backends.azure_servicebus._space import (
    PAGE,
    Space,
    if_there,
    list_subscriptions,
    unless_there,
)
from lexigram.queue.backends.azure_servicebus._wire import encode, read_message, to_metadata
from lexigram.queue.backends.clouds import json_object
from lexigram.queue.backends.libraries import require_library

MOST_DELIVERIES: Final = 2000  # of the service; the runtime counts its own, far below
TEMPORARY_FOR: Final = timedelta(minutes=10)
KNOWN_FOR: Final = 10.0  # seconds for which it is cached that a topic has a group
EMPTY: Final = 0.5  # seconds without a message after which a queue counts as empty
KEEPER: Final = "kept"


class Topology:
    """What groups need on the service."""

    def __init__(
        self, *, sessions: bool, lease: float, dedup_window: float, max_backlog: int
    ) -> None:
        self._sessions, self._lease = sessions, lease
        self._dedup_window, self._max_backlog = dedup_window, max_backlog

    async def declare(self, space: Space, place: Place, *, temporary: bool) -> None:
        """Make topic, queue and subscription exist; the first group begins with the backlog."""
        about = to_metadata(topic=place.topic, group=place.group, temporary=temporary)
        idle = {"auto_delete_on_idle": TEMPORARY_FOR} if temporary else {}
        await self._make_topic(space, place)
        for queue, is_keyed in place.queues:
            options = {"requires_session": True} if is_keyed else {}
            await self._make_queue(space, queue, user_metadata=about, **options, **idle)
        begun = clock.now()
        for queue, is_keyed in place.queues:
            await self._subscribe(space, place, queue, is_keyed)
        await self._take_over(space, place, begun)
        space.covered.pop(place.topic, None)

    async def drop(self, space: Space, place: Place) -> None:
        """Delete the queue and the subscription; a topic left without one gets its keeper first."""
        await space.forget(place)
        space.covered.pop(place.topic, None)
        about = await self._about(space, place)
        mine = {place.subscription(is_keyed) for _, is_keyed in place.queues}
        if await if_there(space.admin.get_topic(place.entity)):
            others = {one async for one in list_subscriptions(space, place.entity)} - mine
            if not others and about.get("temporary"):
                # The topic of a temporary group, such as of replies, is not used again.
                await if_there(space.admin.delete_topic(place.entity))
            elif not others:
                await unless_there(space.admin.create_subscription(place.entity, KEEPER))
            for name in mine:
                await if_there(space.admin.delete_subscription(place.entity, name))
        for queue, _ in place.queues:
            await if_there(space.admin.delete_queue(queue))

    async def _make_topic(self, space: Space, place: Place) -> None:
        options: dict[str, Any] = {"user_metadata": to_metadata(topic=place.topic)}
        if self._dedup_window:
            window = timedelta(seconds=self._dedup_window)
            options["requires_duplicate_detection"] = True
            options["duplicate_detection_history_time_window"] = window
        await unless_there(space.admin.create_topic(place.entity, **options))

    async def _make_queue(self, space: Space, queue: str, **options: Any) -> None:
        lock = timedelta(seconds=self._lease)
        made = await unless_there(
            space.admin.create_queue(
                queue,
                lock_duration=lock,
                max_delivery_count=MOST_DELIVERIES,
                dead_lettering_on_message_expiration=True,
                **options,
            )
        )
        if not made:
            found = await space.admin.get_queue(queue)
            if found.lock_duration != lock:
                found.lock_duration = lock
                await space.admin.update_queue(found)

    async def _subscribe(self, space: Space, place: Place, queue: str, is_keyed: bool) -> None:
        name = place.subscription(is_keyed)
        if not self._sessions:
            await unless_there(
                space.admin.create_subscription(place.entity, name, forward_to=queue)
            )
            return
        # Without forwarding until its rule is there: before, it would take everything.
        library = require_library("azure.servicebus.management", extra=EXTRA)
        await unless_there(space.admin.create_subscription(place.entity, name))
        text = f"sys.SessionId IS {'NOT ' if is_keyed else ''}NULL"
        rule = library.SqlRuleFilter(text)
        await unless_there(space.admin.create_rule(place.entity, name, "keys", filter=rule))
        await if_there(space.admin.delete_rule(place.entity, name, "$Default"))
        found = await space.admin.get_subscription(place.entity, name)
        if not found.forward_to:
            found.forward_to = queue
            await space.admin.update_subscription(place.entity, found)

    async def _take_over(self, space: Space, place: Place, begun: datetime) -> None:
        """Move what the keeper has into the queue of its first group; delete the keeper."""
        if not await if_there(space.admin.get_subscription(place.entity, KEEPER)):
            return
        others = {name async for name in list_subscriptions(space, place.entity)} - {KEEPER}
        is_first = others <= {place.subscription(keyed) for _, keyed in place.queues}
        if is_first:
            receiver = space.reading.get_subscription_receiver(place.entity, KEEPER)
            try:
                await open_link(receiver)
                while raws := await receiver.receive_messages(PAGE, max_wait_time=EMPTY):
                    # Later messages were forwarded to the group itself.
                    early = [raw for raw in raws if (raw.enqueued_time_utc or begun) <= begun]
                    await self._copy(space, place, early)
                    for raw in raws:
                        await receiver.complete_message(raw)
            finally:
                await receiver.close()
        await if_there(space.admin.delete_subscription(place.entity, KEEPER))

    async def _copy(self, space: Space, place: Place, raws: Sequence[Any]) -> None:
        for queue, is_keyed in place.queues:
            outs = [
                encode(read_message(raw, place.topic), sessions=self._sessions)
                for raw in raws
                if bool(self._sessions and raw.session_id) is is_keyed
            ]
            if outs:
                await space.senders.send(queue, outs, is_topic=False)

    async def _about(self, space: Space, place: Place) -> dict[str, Any]:
        absent = require_library("azure.core.exceptions", extra=EXTRA).ResourceNotFoundError
        try:
            found = await space.admin.get_queue(place.queue)
        except absent:
            return {}
        return json_object(found.user_metadata)

    async def room(self, space: Space, place: Place, wanted: int) -> int:
        """How many of the wanted messages a topic takes; one with a group takes all.

        Keeper and group are never both absent, and a keeper beside a group is deleted: adding
        one is followed by a check for the other.
        """
        now = asyncio.get_running_loop().time()
        if space.covered.get(place.topic, 0.0) > now:
            return wanted
        if not await if_there(space.admin.get_topic(place.entity)):
            await self._make_topic(space, place)
        if not {name async for name in list_subscriptions(space, place.entity)} - {KEEPER}:
            await unless_there(space.admin.create_subscription(place.entity, KEEPER))
            if not {name async for name in list_subscriptions(space, place.entity)} - {KEEPER}:
                kept = await space.admin.get_subscription_runtime_properties(place.entity, KEEPER)
                return min(wanted, max(0, self._max_backlog - (kept.active_message_count or 0)))
            await if_there(space.admin.delete_subscription(place.entity, KEEPER))
        space.covered[place.topic] = now + KNOWN_FOR
        return wanted
