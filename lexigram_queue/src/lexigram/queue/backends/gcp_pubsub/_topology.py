"""Topics and subscriptions of groups: how they are made, kept in order and deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import anyio

from lexigram.queue.backends.gcp_pubsub._errors import api_errors
from lexigram.queue.backends.gcp_pubsub._names import GROUP_SUBSCRIPTION, Place, to_labels
from lexigram.queue.backends.gcp_pubsub._space import Space, if_there
from lexigram.queue.backends.gcp_pubsub._wire import ONLY
from lexigram.queue.errors import GCPPubSubQueueError

# All of the service: https://cloud.google.com/pubsub/quotas
DEADLINES: Final = (10, 600)  # seconds, of a subscription
MOST_DELIVERIES: Final = 100

KNOWN_FOR: Final = 10.0  # seconds a topic is taken to have a group, without asking again
KEPT_FOR_FIRST: Final = timedelta(days=6)  # snapshots of an older backlog are refused
TEMPORARY: Final = (timedelta(hours=1), timedelta(days=1))  # messages, and the subscription unused
DEAD_DEADLINE: Final = 60  # seconds a dead letter is out while it is looked at

NEW, READY = "new", "ready"
PAUSES: Final = ("minimum_backoff", "maximum_backoff")  # of a retry policy


class Topology:
    """What groups need on the service."""

    def __init__(self, deadline: int, policy: dict[str, timedelta] | None) -> None:
        """``policy``: of retries of what nobody settled."""
        self.deadline, self._policy = deadline, policy

    async def declare(self, space: Space, place: Place, *, temporary: bool) -> None:
        """Make topic and subscriptions exist; the first group begins with what was kept."""
        await space.make_topic(place.entity, {"lex": "topic"} | to_labels("t", place.topic))
        found = await space.find(place.subscription)
        if found is not None and found.topic != place.entity:
            raise GCPPubSubQueueError(
                f"the topic of group {place.group} was deleted under it",
                topic=place.topic,
                hint=f"delete the subscription {place.subscription} when it is read empty",
            )
        if found is None:
            await space.make_topic(place.dead_topic, {"lex": "dead"})
            await self._make_dead(space, place)
            await self._make_group(space, place, temporary)
            found = await space.out.get_subscription(subscription=place.subscription)
        if found.labels.get("lex") != READY:
            await self._take_over(space, place)
            found.labels["lex"] = READY
            await space.update(found, "labels")
        # A ready group has everything a keeper has: it was there before the keeper, or took over.
        await if_there(space.out.delete_subscription(subscription=place.keeper))
        await self._adjust(space, found)
        space.covered.pop(place.topic, None)

    async def drop(self, space: Space, place: Place) -> None:
        """Delete the subscriptions; a topic left without a group gets its keeper first."""
        await space.forget(place.subscription)
        space.covered.pop(place.topic, None)
        found = await space.find(place.subscription)
        if found is not None and found.topic == place.entity:
            names = set(await space.subscriptions(place.entity)) - {place.subscription}
            if names <= {place.keeper} and found.labels.get("temporary"):
                # Nobody comes back for the topic of a temporary group, such as of replies.
                await if_there(space.into.delete_topic(topic=place.entity))
                await if_there(space.out.delete_subscription(subscription=place.keeper))
            elif not any(map(GROUP_SUBSCRIPTION.search, names)):
                await self._keep(space, place)
        for name in (place.subscription, place.dead):
            await if_there(space.out.delete_subscription(subscription=name))
        await if_there(space.into.delete_topic(topic=place.dead_topic))

    async def _adjust(self, space: Space, found: Any) -> None:
        """Give a subscription that was there the settings of today."""
        if found.ack_deadline_seconds != self.native_deadline:
            found.ack_deadline_seconds = self.native_deadline
            await space.update(found, "ack_deadline_seconds")
        policy = found.retry_policy if "retry_policy" in found else None
        has = policy and {name: getattr(policy, name) for name in PAUSES}
        if has != self._policy:
            found.retry_policy = self._policy
            await space.update(found, "retry_policy")

    @property
    def native_deadline(self) -> int:
        return max(DEADLINES[0], self.deadline)

    async def _make_dead(self, space: Space, place: Place) -> None:
        await space.subscribe(
            name=place.dead,
            topic=place.dead_topic,
            ack_deadline_seconds=DEAD_DEADLINE,
            labels={"lex": "dead"},
        )

    async def _make_group(self, space: Space, place: Place, temporary: bool) -> None:
        kind = {"lex": NEW, **({"temporary": "yes"} if temporary else {})}
        settings: dict[str, Any] = {}
        if temporary:
            settings["message_retention_duration"] = TEMPORARY[0]
            settings["expiration_policy"] = {"ttl": TEMPORARY[1]}
        await space.subscribe(
            name=place.subscription,
            topic=place.entity,
            ack_deadline_seconds=self.native_deadline,
            enable_message_ordering=True,
            filter=f'NOT attributes:{ONLY} OR attributes.{ONLY} = "{place.mark}"',
            labels=kind | to_labels("t", place.topic) | to_labels("g", place.group),
            dead_letter_policy={
                "dead_letter_topic": place.dead_topic,
                "max_delivery_attempts": MOST_DELIVERIES,
            },
            retry_policy=self._policy,
            **settings,
        )

    async def _take_over(self, space: Space, place: Place) -> None:
        """Give the first group the state of the keeper; others begin with now."""
        if await space.find(place.keeper) is None:
            return
        for name in await space.subscriptions(place.entity):
            if name in (place.keeper, place.subscription):
                continue
            other = await space.find(name)
            if other is not None and other.labels.get("lex") == READY:
                return
        name = f"projects/{space.project}/snapshots/{place.subscriptions}.{uuid4().hex}"
        request = {"name": name, "subscription": place.keeper}
        try:
            await space.out.create_snapshot(request=request, **space.patient)
        except api_errors().NotFound:
            return  # another process of this group was faster
        try:
            request = {"subscription": place.subscription, "snapshot": name}
            await space.out.seek(request=request, **space.patient)
        finally:
            with anyio.move_on_after(space.timeout, shield=True):
                await if_there(space.out.delete_snapshot(snapshot=name))

    async def _keep(self, space: Space, place: Place) -> None:
        settings: dict[str, Any] = {
            "name": place.keeper,
            "topic": place.entity,
            "enable_message_ordering": True,
            "message_retention_duration": KEPT_FOR_FIRST,
            "labels": {"lex": "keeper"},
        }
        if await space.subscribe(**settings):
            return
        found = await space.find(place.keeper)
        if found is None or found.topic != place.entity:  # of a topic that was deleted
            await if_there(space.out.delete_subscription(subscription=place.keeper))
            await space.subscribe(**settings)

    async def cover(self, space: Space, place: Place) -> None:
        """Make a topic keep what it gets: it has a group, or a keeper."""
        now = asyncio.get_running_loop().time()
        if space.covered.get(place.topic, 0.0) > now:
            return
        names = set(await space.subscriptions(place.entity))
        if not any(map(GROUP_SUBSCRIPTION.search, names)):
            await space.make_topic(place.entity, {"lex": "topic"} | to_labels("t", place.topic))
            if place.keeper not in names:
                await self._keep(space, place)
            # declare() of a group checks for the keeper after that, and takes over its messages.
        space.covered[place.topic] = now + KNOWN_FOR
