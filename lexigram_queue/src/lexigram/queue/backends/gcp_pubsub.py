"""The bus on Google Cloud Pub/Sub.

A topic is a topic there, a group a subscription of it; a second topic with one subscription holds
the dead letters of a group. All are made when they are needed.

What Pub/Sub has not, and how it is done here:

- *For one group only.* A retry and a redriven message are published to the topic again, with an
  attribute that names the group; the filters of the other subscriptions let it pass.
- *Later.* A message that is not due is left alone until it is, by its ack deadline, at most ten
  minutes at a time; the service keeps that time. So delays are whole seconds, rounded up.
- *Kept for the first group.* A topic without a subscription drops what it gets. A topic nobody
  consumes has a subscription that nobody reads, its *keeper*; the first group takes over its state
  by a snapshot.
- *Leases.* Without its exactly-once mode, the service takes an acknowledgement from whoever sends
  it, and says nothing when a deadline is over. So the lease is watched here too, and it ends a
  little before the service's.
- *Attributes* are at most 100, of 1,024 bytes. Longer headers are cut in pieces.

The native dead-letter policy is a safety net, for messages delivered 100 times; it also makes the
service count deliveries.

The native retry policy (setting ``min_backoff``) is for what nobody settled: a message whose handler
kills its process comes again after pauses that grow. It cannot carry the retries of the runtime,
which are changed messages with a delay of their own, and it holds up whatever is not acknowledged:
what a member gives back when it stops, and messages that are not due. So there is none by default.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from base64 import b32decode, b32encode
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import anyio
from attrs import define, field, frozen

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    CORE_CAPABILITIES,
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
)
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.clouds import hashed, health_of, json_object, translated, unless
from lexigram.queue.backends.gcp_pubsub_pull import Calls, Held, Inbox
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import GCPPubSubDriverConfig, NamedQueueConfig
from lexigram.queue.constants import DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import (
    dead_headers,
    delay_of,
    from_dead_headers,
    from_headers,
    redriven,
    to_headers,
)
from lexigram.queue.errors import GCPPubSubQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern

NAME: Final = "gcp_pubsub"
EXTRA: Final = "gcp"
DEFAULT_PREFIX: Final = "lexigram"

# Not DEPTH, LAG and BACKLOG: the service counts in Cloud Monitoring only, minutes late. Not PEEK: it
# shows by giving out. Not TTL: only subscriptions have one. Nothing native stands for the others.
CAPABILITIES: Final = CORE_CAPABILITIES | {
    Capability.SCHEDULE,
    Capability.ORDERING,
    Capability.LEASE_EXTEND,
    Capability.PURGE,
    Capability.DURABLE,
}

# All of the service: https://cloud.google.com/pubsub/quotas
DEADLINES: Final = (10, 600)  # seconds, of a subscription
LONGEST_DELAY: Final = 600  # seconds, of one delivery
MOST_DELIVERIES: Final = 100
MOST_MESSAGES: Final = 1000  # of a publish, an acknowledgement or a pull
MOST_BYTES: Final = 10_000_000  # of a publish, and so of a message
MOST_ATTRIBUTES: Final = 100
OF_OTHERS: Final = 90  # attributes at first; retries and dead letters add some
LONGEST_NAME, LONGEST_VALUE = 256, 1024  # bytes, of an attribute
LABEL: Final = 63  # characters
MOST_LABELS: Final = 30  # for one name; 64 in all
LONGEST_KEY: Final = 1024  # bytes

HEADERS: Final = 130_000  # bytes: what attributes can be, and a little more
GRACE: Final = 0.25  # seconds by which the service's lease is longer than ours, at least
CLOSING: Final = 0.03  # seconds
KNOWN_FOR: Final = 10.0  # seconds a topic is taken to have a group, without asking again
PAGE: Final = 250
ACKS: Final = 1000  # ack ids of one request, of 512 KiB
RENEWED_AFTER: Final = 50  # deliveries of a message that is not due, until it is published anew
KEPT: Final = timedelta(days=31)  # the longest of the service
KEPT_FOR_FIRST: Final = timedelta(days=6)  # snapshots of an older backlog are refused
TEMPORARY: Final = (timedelta(hours=1), timedelta(days=1))  # messages, and the subscription unused
DEAD_DEADLINE: Final = 60  # seconds a dead letter is out while it is looked at
COUNTED: Final = 1000  # dead letters: counting takes them out, so it has an end
LONGEST_BACKOFF: Final = 600.0  # seconds

ONLY: Final = "lexonly"  # the group a message is for
DUE: Final = "lexdue"  # not before, seconds since 1970
LONG: Final = "lexlong"  # which attributes are in pieces, and in how many
NATIVE: Final = ("CloudPubSub", "googclient_")
SOURCE_COUNT: Final = "CloudPubSubDeadLetterSourceDeliveryCount"
NEW, READY = "new", "ready"
_PAUSES: Final = ("minimum_backoff", "maximum_backoff")  # of a retry policy


class GCPPubSubDriver:
    """One member on a project; its topics begin with ``topic_id``, its subscriptions too."""

    name = NAME
    capabilities = CAPABILITIES

    def __init__(
        self,
        project_id: str | None = None,
        *,
        topic_id: str = "",
        subscription_id: str = "",
        max_messages: int = 10,
        max_wait_time: float = 5.0,
        credentials_file: str | None = None,
        endpoint: str | None = None,
        emulator_host: str | None = None,
        timeout: float = 15.0,
        min_backoff: float | None = None,
        max_backoff: float = LONGEST_BACKOFF,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        counted: int = COUNTED,
    ) -> None:
        """``counted``: more dead letters of a group than so many are told as so many."""
        self.prefix = topic_id or DEFAULT_PREFIX
        self.subscription_prefix = subscription_id or self.prefix
        for prefix in (self.prefix, self.subscription_prefix):
            if not re.fullmatch(r"(?!goog)[A-Za-z][A-Za-z0-9._~-]{0,39}", prefix):
                text = "topic_id and subscription_id begin with a letter, not with goog, and have"
                raise ValueError(f"{text} at most 40 letters, digits and . _ ~ -, not {prefix!r}")
        if visibility_timeout + GRACE > DEADLINES[1]:
            raise ValueError(
                f"Pub/Sub leases a message for less than {DEADLINES[1]} seconds at a time"
            )
        if not 0 <= (min_backoff or 0) <= max_backoff <= LONGEST_BACKOFF:
            text = (
                f"Pub/Sub pauses from min_backoff to max_backoff, 0 to {LONGEST_BACKOFF:g} seconds"
            )
            raise ValueError(f"{text}, not from {min_backoff} to {max_backoff}")
        self.project_id = project_id
        self._policy: dict[str, timedelta] | None = None
        if min_backoff is not None:
            pauses = [timedelta(seconds=seconds) for seconds in (min_backoff, max_backoff)]
            self._policy = dict(zip(_PAUSES, pauses, strict=True))
        self._counted = counted
        self.visibility_timeout: float | None = visibility_timeout
        self._lease, self._deadline = visibility_timeout, math.ceil(visibility_timeout + GRACE)
        self._most, self._wait = min(max_messages, MOST_MESSAGES), max_wait_time
        self._credentials_file, self._endpoint = credentials_file, endpoint
        self._emulator_host, self._timeout = emulator_host, timeout
        # An empty subscription is known by a pull that brings nothing for so long.
        self._look = 0.2 if emulator_host else 1.5
        self._opening = asyncio.Lock()
        self._space: _Space | None = None

    def __repr__(self) -> str:
        return f"GCPPubSubDriver({self.address}, topic_id={self.prefix!r})"

    @property
    def address(self) -> str:
        """Project and host."""
        host = self._emulator_host or self._endpoint or "pubsub.googleapis.com"
        return f"{self.project_id or 'default project'} at {host}"

    @property
    def max_message_bytes(self) -> int | None:
        """What the service takes, less the room for attributes."""
        return MOST_BYTES - HEADERS

    # Life.

    async def connect(self) -> None:
        """Ask the project for its subscriptions; channels open when they are first used."""
        async with self._opening:
            space = self._space or await self._open()
            try:
                with self._translated("connect"):
                    await self._ping(space, self._timeout)
            except BaseException:
                self._space = None
                await space.close()
                raise
            self._space = space

    async def _ping(self, space: _Space, timeout: float) -> None:
        request = {"project": f"projects/{self.project_id}", "page_size": 1}
        await space.out.list_subscriptions(request=request, retry=_retry(timeout), timeout=timeout)

    async def _open(self) -> _Space:
        library = require_library("google.pubsub_v1", extra=EXTRA)
        publishing = require_library("google.pubsub_v1.services.publisher.transports", extra=EXTRA)
        pulling = require_library("google.pubsub_v1.services.subscriber.transports", extra=EXTRA)
        options: dict[str, Any] = {"host": self._endpoint} if self._endpoint else {}
        with self._translated("connect"):
            if self._emulator_host:
                grpc = require_library("grpc.aio", extra=EXTRA)
                size = [(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]
                options = {"channel": grpc.insecure_channel(self._emulator_host, options=size)}
            else:
                found = await anyio.to_thread.run_sync(_credentials, self._credentials_file)
                options["credentials"], project = found
                options["always_use_jwt_access"] = True  # as the client itself does
                self.project_id = self.project_id or project
            if not self.project_id:
                raise GCPPubSubQueueError("no project", hint="set gcp_pubsub.project_id")
            into = publishing.PublisherGrpcAsyncIOTransport(**options)
            out = pulling.SubscriberGrpcAsyncIOTransport(**options)

            def clients() -> _Space:
                return _Space(
                    into=Calls(library.PublisherAsyncClient(transport=into)),
                    out=Calls(library.SubscriberAsyncClient(transport=out)),
                )

            # Channels belong to this loop; the clients around them look for files when made.
            return await anyio.to_thread.run_sync(clients)

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its deadline ends."""
        space, self._space = self._space, None
        if space is not None:
            await space.close()

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topic and subscriptions exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("declare", topic):
            await self._make_topic(space, place.entity, {"lex": "topic"} | _label("t", topic))
            found = await self._find(space, place.subscription)
            if found is not None and found.topic != place.entity:
                raise GCPPubSubQueueError(
                    f"the topic of group {group} was deleted under it",
                    topic=topic,
                    hint=f"delete the subscription {place.subscription} when it is read empty",
                )
            if found is None:
                await self._make_topic(space, place.dead_topic, {"lex": "dead"})
                await self._make_dead(space, place)
                await self._make_group(space, place, temporary)
                found = await space.out.get_subscription(subscription=place.subscription)
            if found.labels.get("lex") != READY:
                await self._take_over(space, place)
                found.labels["lex"] = READY
                await self._update(space, found, "labels")
            # A ready group has everything a keeper has: it was there before the keeper, or took over.
            await _if_there(space.out.delete_subscription(subscription=place.keeper))
            await self._adjust(space, found)
        space.covered.pop(topic, None)

    async def _adjust(self, space: _Space, found: Any) -> None:
        """Give a subscription that was there the settings of today."""
        if found.ack_deadline_seconds != self._native_deadline:
            found.ack_deadline_seconds = self._native_deadline
            await self._update(space, found, "ack_deadline_seconds")
        policy = found.retry_policy if "retry_policy" in found else None
        has = policy and {name: getattr(policy, name) for name in _PAUSES}
        if has != self._policy:
            found.retry_policy = self._policy
            await self._update(space, found, "retry_policy")

    @property
    def _native_deadline(self) -> int:
        return max(DEADLINES[0], self._deadline)

    async def _make_topic(self, space: _Space, name: str, labels: Mapping[str, str]) -> None:
        request = {"name": name, "labels": dict(labels)}
        await _unless_there(space.into.create_topic(request=request, **self._patient))

    async def _make_dead(self, space: _Space, place: _Place) -> None:
        await self._subscribe(
            space,
            name=place.dead,
            topic=place.dead_topic,
            ack_deadline_seconds=DEAD_DEADLINE,
            labels={"lex": "dead"},
        )

    async def _make_group(self, space: _Space, place: _Place, temporary: bool) -> None:
        kind = {"lex": NEW, **({"temporary": "yes"} if temporary else {})}
        settings: dict[str, Any] = {}
        if temporary:
            settings["message_retention_duration"] = TEMPORARY[0]
            settings["expiration_policy"] = {"ttl": TEMPORARY[1]}
        await self._subscribe(
            space,
            name=place.subscription,
            topic=place.entity,
            ack_deadline_seconds=self._native_deadline,
            enable_message_ordering=True,
            filter=f'NOT attributes:{ONLY} OR attributes.{ONLY} = "{place.mark}"',
            labels=kind | _label("t", place.topic) | _label("g", place.group),
            dead_letter_policy={
                "dead_letter_topic": place.dead_topic,
                "max_delivery_attempts": MOST_DELIVERIES,
            },
            retry_policy=self._policy,
            **settings,
        )

    async def _subscribe(self, space: _Space, **settings: Any) -> bool:
        # An empty expiration_policy: it never goes for want of use.
        lasting: dict[str, Any] = {"message_retention_duration": KEPT, "expiration_policy": {}}
        request = lasting | settings
        return await _unless_there(space.out.create_subscription(request=request, **self._patient))

    async def _update(self, space: _Space, settings: Any, path: str) -> None:
        request = {"subscription": settings, "update_mask": {"paths": [path]}}
        await space.out.update_subscription(request=request, **self._patient)

    async def _find(self, space: _Space, name: str) -> Any:
        """A subscription; None when it is not there."""
        try:
            return await space.out.get_subscription(subscription=name, **self._patient)
        except _errors().NotFound:
            return None

    async def _take_over(self, space: _Space, place: _Place) -> None:
        """Give the first group the state of the keeper; others begin with now."""
        if await self._find(space, place.keeper) is None:
            return
        for name in await self._subscriptions(space, place.entity):
            if name in (place.keeper, place.subscription):
                continue
            other = await self._find(space, name)
            if other is not None and other.labels.get("lex") == READY:
                return
        name = f"projects/{self.project_id}/snapshots/{self.subscription_prefix}.{uuid4().hex}"
        request = {"name": name, "subscription": place.keeper}
        try:
            await space.out.create_snapshot(request=request, **self._patient)
        except _errors().NotFound:
            return  # another process of this group was faster
        try:
            request = {"subscription": place.subscription, "snapshot": name}
            await space.out.seek(request=request, **self._patient)
        finally:
            with anyio.move_on_after(self._timeout, shield=True):
                await _if_there(space.out.delete_snapshot(snapshot=name))

    async def _subscriptions(self, space: _Space, topic: str) -> list[str]:
        try:
            return await space.into.listed("list_topic_subscriptions", topic=topic, **self._patient)
        except _errors().NotFound:
            return []

    async def drop(self, topic: str, group: str) -> None:
        """Delete the subscriptions; a topic left without a group gets its keeper first."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("drop", topic):
            await space.forget(place.subscription)
            space.covered.pop(topic, None)
            found = await self._find(space, place.subscription)
            if found is not None and found.topic == place.entity:
                names = set(await self._subscriptions(space, place.entity)) - {place.subscription}
                if names <= {place.keeper} and found.labels.get("temporary"):
                    # Nobody comes back for the topic of a temporary group, such as of replies.
                    await _if_there(space.into.delete_topic(topic=place.entity))
                    await _if_there(space.out.delete_subscription(subscription=place.keeper))
                elif not any(map(_GROUP.search, names)):
                    await self._keep(space, place)
            for name in (place.subscription, place.dead):
                await _if_there(space.out.delete_subscription(subscription=name))
            await _if_there(space.into.delete_topic(topic=place.dead_topic))

    async def _keep(self, space: _Space, place: _Place) -> None:
        settings: dict[str, Any] = {
            "name": place.keeper,
            "topic": place.entity,
            "enable_message_ordering": True,
            "message_retention_duration": KEPT_FOR_FIRST,
            "labels": {"lex": "keeper"},
        }
        if await self._subscribe(space, **settings):
            return
        found = await self._find(space, place.keeper)
        if found is None or found.topic != place.entity:  # of a topic that was deleted
            await _if_there(space.out.delete_subscription(subscription=place.keeper))
            await self._subscribe(space, **settings)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All subscriptions of this prefix that say which group they are of."""
        space, found = self._now(), list[tuple[str, str]]()
        start = f"projects/{self.project_id}/subscriptions/{self.subscription_prefix}.group."
        with self._translated("list groups"):
            request = {"project": f"projects/{self.project_id}", "page_size": PAGE}
            listed = await space.out.listed("list_subscriptions", request=request, **self._patient)
            for one in listed:
                if one.name.startswith(start):
                    found.append((_unlabel("t", one.labels), _unlabel("g", one.labels)))
        return found

    # In.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send by topic and, where it has one, by ordering key; as few requests as fit."""
        space = self._now()
        outs: dict[str, list[tuple[str, _Out]]] = {}
        for message in messages:
            outs.setdefault(message.topic, []).append((message.id, self._out(message)))
        left = {topic: [identity for identity, _ in pairs] for topic, pairs in outs.items()}
        for topic, pairs in outs.items():
            try:
                with self._translated("publish", topic):
                    await self._cover(space, topic)
                    for chunk in _chunks([out for _, out in pairs]):
                        await self._publish(space, topic, chunk)
                        del left[topic][: len(chunk)]
            except QueueError as error:
                error.details["unconfirmed"] = [one for ids in left.values() for one in ids]
                raise

    async def _publish(self, space: _Space, topic: str, chunk: Sequence[_Out]) -> None:
        entity = self._place(topic, "").entity
        try:
            await self._send(space, entity, chunk)
        except _errors().NotFound:
            # Deleted since we looked.
            space.covered.pop(topic, None)
            await self._cover(space, topic)
            await self._send(space, entity, chunk)

    async def _send(self, space: _Space, entity: str, chunk: Sequence[_Out]) -> None:
        request = {"topic": entity, "messages": [out.native() for out in chunk]}
        await space.into.publish(request=request, **self._patient)

    async def _cover(self, space: _Space, topic: str) -> None:
        """Make a topic keep what it gets: it has a group, or a keeper."""
        now = asyncio.get_running_loop().time()
        if space.covered.get(topic, 0.0) > now:
            return
        place = self._place(topic, "")
        names = set(await self._subscriptions(space, place.entity))
        if not any(map(_GROUP.search, names)):
            await self._make_topic(space, place.entity, {"lex": "topic"} | _label("t", topic))
            if place.keeper not in names:
                await self._keep(space, place)
            # Whoever declares a group looks for the keeper after that, and takes over.
        space.covered[topic] = now + KNOWN_FOR

    def _out(self, message: BusMessage, *, delay: float = 0.0, only: str | None = None) -> _Out:
        """A message for the wire: attributes beside the bare body."""
        headers, now = to_headers(message), clock.timestamp()
        delay = max(delay, delay_of(message, now))
        attributes = _attributes(headers)
        if delay > 0:
            attributes[DUE] = repr(now + delay)
        if only:
            attributes[ONLY] = only
        key = message.headers.get(ORDERING_KEY, "")
        out = _Out(body=message.payload, attributes=attributes, key=_fit(key))
        self._check_size(out, message.topic, MOST_ATTRIBUTES if only else OF_OTHERS)
        return out

    def _check_size(self, out: _Out, topic: str, attributes: int) -> None:
        names = [name for name in out.attributes if len(name.encode()) > LONGEST_NAME]
        count, most = len(out.attributes), MOST_BYTES - HEADERS
        if len(out.body) > most or count > attributes or names:
            raise MessageTooLargeError(
                f"{len(out.body)} bytes with {count} attributes are more than Pub/Sub takes "
                f"({most} bytes, {attributes} attributes, names of {LONGEST_NAME} bytes)",
                backend=NAME,
                topic=topic,
                hint="send a reference to stored content, or fewer and shorter headers",
            )

    # Out.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what has come, or wait for it."""
        space, place = self._now(), self._place(topic, group)
        inbox = space.inboxes.get(place.subscription)
        with self._translated("receive", topic):
            if inbox is None:
                if await self._find(space, place.subscription) is None:
                    raise GCPPubSubQueueError(
                        f"group {group} of {topic} does not exist",
                        topic=topic,
                        hint="declare the group first; those of another topic_id are others",
                    )
                made = self._inbox(space, place)
                inbox = space.inboxes.setdefault(place.subscription, made)
            held = await inbox.take(limit, wait)
        return [
            Delivery(
                message=_message(one.raw.message, topic),
                topic=topic,
                group=group,
                receipt=one,
                delivery_count=_count(one.raw),
            )
            for one in held
        ]

    def _inbox(self, space: _Space, place: _Place) -> Inbox:
        name = place.subscription

        async def pull(most: int) -> Sequence[Any]:
            return await self._pull(space, name, most, self._wait)

        async def sort(raws: Sequence[Any]) -> Sequence[Any]:
            due = await self._hold_back(space, place, raws)
            if due and self._deadline < DEADLINES[0]:
                await self._modify(space, name, [raw.ack_id for raw in due], self._deadline)
            return due

        async def modify(ack_ids: Sequence[str], seconds: int) -> None:
            await self._modify(space, name, ack_ids, seconds)

        return Inbox(
            pull, sort, modify, lease=self._lease, deadline=self._deadline, most=self._most
        )

    async def _pull(self, space: _Space, name: str, most: int, wait: float) -> Sequence[Any]:
        """One pull, not tried again: whoever receives is, and hears of trouble."""
        request = {"subscription": name, "max_messages": most}
        try:
            answer: Any = await space.out.pull(request=request, retry=None, timeout=wait)
        except _errors().DeadlineExceeded:
            return []
        # As plain protobuf: the wrappers of the library look up each field anew, 27 times for a
        # message; of 899 calls of functions for a message, publish to ack, 431 were left.
        plain: Any = answer.__class__.pb(answer)
        return list(plain.received_messages)

    async def _hold_back(self, space: _Space, place: _Place, raws: Sequence[Any]) -> Sequence[Any]:
        """Those that are due; the others are left alone until they are."""
        now, due = clock.timestamp(), list[Any]()
        later: dict[int, list[str]] = {}
        blocked: set[str] = set()
        for raw in raws:
            left = _due(raw.message) - now
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
            await self._modify(space, place.subscription, ack_ids, seconds)
        return sorted(due, key=_turn)

    async def _renew(self, space: _Space, place: _Place, raw: Any) -> None:
        """Publish anew what waits for long: else the service would set it aside."""
        attributes = _own(raw.message.attributes) | {ONLY: place.mark}
        key = raw.message.ordering_key
        out = _Out(body=bytes(raw.message.data), attributes=attributes, key=key)
        await self._send(space, place.entity, [out])
        await self._acknowledge(space, place.subscription, [raw.ack_id])

    async def _acknowledge(self, space: _Space, name: str, ack_ids: Sequence[str]) -> None:
        for start in range(0, len(ack_ids), ACKS):
            request = {"subscription": name, "ack_ids": ack_ids[start : start + ACKS]}
            await space.out.acknowledge(request=request, **self._patient)

    async def _modify(self, space: _Space, name: str, ack_ids: Sequence[str], seconds: int) -> None:
        for start in range(0, len(ack_ids), ACKS):
            request = {
                "subscription": name,
                "ack_ids": ack_ids[start : start + ACKS],
                "ack_deadline_seconds": seconds,
            }
            await space.out.modify_ack_deadline(request=request, **self._patient)

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, one request for a group."""
        for name, held in self._ours(deliveries).items():
            with self._translated("acknowledge", deliveries[0].topic):
                await self._acknowledge(self._now(), name, [one.ack_id for one in held])
            for one in held:
                one.finish(acked=True)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Give back: they come again at once, with those of their keys behind them."""
        await self._give_back(deliveries, 0)

    async def _give_back(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        """Let them come again after so long; what is behind them goes back with them."""
        for name, held in self._ours(deliveries).items():
            with self._translated("release", deliveries[0].topic):
                await self._modify(self._now(), name, [one.ack_id for one in held], seconds)
                rest = [other.ack_id for one in held for other in one.finish(acked=False)]
                await self._modify(self._now(), name, rest, 0)

    def _ours(self, deliveries: Sequence[Delivery]) -> dict[str, list[Held]]:
        """By subscription, those that are not settled and not lost."""
        now, found = asyncio.get_running_loop().time(), dict[str, list[Held]]()
        for delivery in deliveries:
            held: Held = delivery.receipt
            if held.is_ours(now):
                place = self._place(delivery.topic, delivery.group)
                found.setdefault(place.subscription, []).append(held)
        return found

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Move the ack deadlines, by at most ten minutes."""
        now, native = (
            asyncio.get_running_loop().time(),
            min(DEADLINES[1], math.ceil(seconds + GRACE)),
        )
        kept: set[Held] = set()
        for name, held in self._ours(deliveries).items():
            with self._translated("extend", deliveries[0].topic):
                await self._modify(self._now(), name, [one.ack_id for one in held], native)
            for one in held:
                one.until = now + min(seconds, native - GRACE)
                kept.add(one)
        lost = [delivery for delivery in deliveries if delivery.receipt not in kept]
        for delivery in lost:
            rest: list[Held] = delivery.receipt.finish(acked=False)
            if rest:
                name = self._place(delivery.topic, delivery.group).subscription
                with self._translated("extend", delivery.topic):
                    await self._modify(self._now(), name, [one.ack_id for one in rest], 0)
        return lost

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Leave it alone for so long; changed, or for more than ten minutes, it is published anew.

        The copy is for this group only, and is confirmed before the old one is acknowledged.
        """
        if not self._ours([delivery]):
            return
        if message is None and delay <= LONGEST_DELAY:
            await self._give_back([delivery], math.ceil(delay))
            return
        space, place = self._now(), self._place(delivery.topic, delivery.group)
        held: Held = delivery.receipt
        out = self._out(message or delivery.message, delay=delay, only=place.mark)
        with self._translated("nack", delivery.topic):
            await self._publish(space, delivery.topic, [out])
            await self._acknowledge(space, place.subscription, [held.ack_id])
        held.finish(acked=True)

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Publish it to the topic of dead letters, then acknowledge it."""
        if not self._ours([delivery]):
            return
        space, place = self._now(), self._place(delivery.topic, delivery.group)
        held: Held = delivery.receipt
        headers = dead_headers(entry)
        attributes = _attributes(headers)
        if len(attributes) > MOST_ATTRIBUTES:  # rather without its traceback than not at all
            headers.pop("dead-traceback", None)
            headers["dead-error"] = headers["dead-error"][: LONGEST_VALUE // 4]
            attributes = _attributes(headers)
        out = _Out(body=entry.message.payload, attributes=attributes, key="")
        with self._translated("dead letter", delivery.topic):
            await self._send(space, place.dead_topic, [out])
            await self._acknowledge(space, place.subscription, [held.ack_id])
        held.finish(acked=True)

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Take all for a moment and give them back: Pub/Sub has no other way to look."""
        space, place = self._now(), self._place(topic, group)
        entries: dict[str, DeadLetterEntry] = {}
        with self._translated("list dead letters", topic):
            async with self._dead(space, place) as dead:
                for one in dead:
                    entries.setdefault(one.entry.message.id, one.entry)
        return list(entries.values())[offset : offset + limit]

    @asynccontextmanager
    async def _dead(
        self, space: _Space, place: _Place, most: float = math.inf
    ) -> AsyncGenerator[list[_Dead]]:
        """Dead letters of the group, oldest first, out to us.

        Those that are still in the list at the end go back, also after an error.
        """
        async with space.looking(place.dead):
            raws, dead = list[Any](), list[_Dead]()
            try:
                while (left := most - len(raws)) > 0:
                    page = await self._pull(space, place.dead, int(min(PAGE, left)), self._look)
                    if not page:
                        break
                    raws += page
                    dead += [
                        _Dead(raw=raw, entry=_dead_entry(raw.message, place.topic, place.group))
                        for raw in page
                    ]
                dead.sort(key=lambda one: (_published(one.raw.message), one.raw.message.message_id))
                yield dead
            finally:
                with anyio.move_on_after(self._timeout, shield=True):
                    await self._modify(space, place.dead, [one.raw.ack_id for one in dead], 0)

    async def count_dead(self, topic: str, group: str) -> int:
        """Count by taking them for a moment, up to ``counted`` of them.

        Pub/Sub itself counts in Cloud Monitoring only, minutes late.
        """
        space, place = self._now(), self._place(topic, group)
        with self._translated("count dead letters", topic):
            async with self._dead(space, place, self._counted) as dead:
                return len({one.entry.message.id for one in dead})

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Publish them for their group again, then acknowledge the dead ones."""
        return await self._clear_dead(topic, group, ids, again=True)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Acknowledge the dead ones."""
        return await self._clear_dead(topic, group, ids, again=False)

    async def _clear_dead(
        self, topic: str, group: str, ids: Sequence[str] | None, *, again: bool
    ) -> int:
        space, place = self._now(), self._place(topic, group)
        with self._translated("redrive" if again else "purge dead letters", topic):
            async with self._dead(space, place) as dead:
                mine: dict[str, DeadLetterEntry] = {}
                for one in dead:
                    if ids is None or one.entry.message.id in ids:
                        mine.setdefault(one.entry.message.id, one.entry)
                if again:
                    outs = [
                        self._out(redriven(entry.message), only=place.mark)
                        for entry in mine.values()
                    ]
                    for chunk in _chunks(outs):
                        await self._publish(space, topic, chunk)
                done = [one for one in dead if one.entry.message.id in mine]
                await self._acknowledge(space, place.dead, [one.raw.ack_id for one in done])
                dead[:] = [one for one in dead if one.entry.message.id not in mine]
        return len(mine)

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Not declared: Pub/Sub shows a message by giving it out."""
        raise _cannot(Capability.PEEK, topic, "subscribe a group of its own")

    async def purge(self, topic: str, group: str) -> int:
        """Take what waits and acknowledge it; not what is delayed, nor what waits for its key."""
        space, place, total = self._now(), self._place(topic, group), 0
        inbox = space.inboxes.get(place.subscription)
        with self._translated("purge", topic):
            ack_ids = [held.ack_id for held in inbox.drain()] if inbox is not None else []
            while ack_ids or (
                ack_ids := [
                    raw.ack_id
                    for raw in await self._pull(space, place.subscription, PAGE, self._look)
                ]
            ):
                await self._acknowledge(space, place.subscription, ack_ids)
                total, ack_ids = total + len(ack_ids), []
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Not declared: a subscription cannot be held back."""
        raise _cannot(Capability.PAUSE, topic, "stop its consumers")

    async def is_paused(self, topic: str, group: str) -> bool:
        """Never."""
        return False

    async def depth(self, topic: str, group: str) -> int:
        """Not declared: only Cloud Monitoring counts."""
        raise _cannot(Capability.DEPTH, topic, f"see {UNDELIVERED} in Cloud Monitoring")

    async def lag(self, topic: str, group: str) -> int:
        """Not declared: only Cloud Monitoring counts."""
        raise _cannot(Capability.LAG, topic, f"see {UNDELIVERED} in Cloud Monitoring")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the project answers in time."""

        async def ask() -> None:
            with self._translated("health check"):
                await self._ping(self._now(), timeout)

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "GCP Pub/Sub", facts, timeout)

    # Names and errors.

    @property
    def _patient(self) -> dict[str, Any]:
        """How a call waits, and is tried again when the service is busy."""
        return {"retry": _retry(self._timeout), "timeout": self._timeout}

    def _now(self) -> _Space:
        if self._space is None:
            raise NotConnectedError(
                "GCPPubSubDriver not connected",
                backend=NAME,
                hint="await driver.connect() first",
            )
        return self._space

    def _place(self, topic: str, group: str) -> _Place:
        if is_pattern(topic):
            raise _cannot(Capability.PATTERN, topic, "list the topics")
        return _Place(
            project=str(self.project_id),
            topics=self.prefix,
            subscriptions=self.subscription_prefix,
            topic=topic,
            group=group,
        )

    def _translated(self, what: str, topic: str = "unknown") -> AbstractContextManager[None]:
        """The one place where errors of the client and the service become ours."""
        return translated(_is_foreign, lambda error: self._error(error, what, topic))

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        cause = getattr(error, "cause", None)  # of a call that was tried again and again
        error = cause if isinstance(cause, Exception) else error
        kind, reason = type(error).__name__, getattr(error, "message", None) or str(error)
        text = f"could not {what} on {self.address}: {reason or kind}"
        if kind == "InvalidArgument" and "payload size" in reason:
            hint = "send a reference to stored content"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        return GCPPubSubQueueError(text, topic=topic, hint=_hint(kind))


UNDELIVERED: Final = "subscription/num_undelivered_messages"


def _hint(kind: str) -> str:
    if kind in ("Unauthenticated", "RefreshError", "DefaultCredentialsError", "MalformedError"):
        return (
            "check gcp_pubsub.credentials_file, or the application default credentials "
            "(gcloud auth application-default login)"
        )
    if kind in ("PermissionDenied", "Forbidden"):
        return "the account needs the role roles/pubsub.editor in the project"
    if kind in ("ResourceExhausted", "TooManyRequests"):
        return "the service throttles: it is tried again later; ask for a higher quota"
    if kind == "ServiceUnavailable":
        return "it is tried again later; check gcp_pubsub.endpoint or emulator_host if it stays"
    if kind == "NotFound":
        return "declare the group, or check gcp_pubsub.project_id and topic_id"
    if kind == "FileNotFoundError":
        return "check gcp_pubsub.credentials_file"
    if kind == "InvalidArgument":
        return "the service refuses this request; its text says why"
    return "check gcp_pubsub.project_id, its credentials and that the service can be reached"


def _is_foreign(error: Exception) -> bool:
    """Calls and credentials have a base each."""
    auth = require_library("google.auth.exceptions", extra=EXTRA)
    return isinstance(error, (_errors().GoogleAPIError, auth.GoogleAuthError))


# The project.


@define(eq=False, kw_only=True)
class _Space:
    """What is open."""

    into: Calls  # PublisherAsyncClient
    out: Calls  # SubscriberAsyncClient
    inboxes: dict[str, Inbox] = field(factory=dict[str, Inbox])
    covered: dict[str, float] = field(factory=dict[str, float])
    looks: dict[str, asyncio.Lock] = field(factory=dict[str, asyncio.Lock])

    def looking(self, name: str) -> asyncio.Lock:
        """Two that look at once would each see a part."""
        return self.looks.setdefault(name, asyncio.Lock())

    async def forget(self, name: str) -> None:
        inbox = self.inboxes.pop(name, None)
        if inbox is not None:
            await inbox.close()

    async def close(self) -> None:
        inboxes, self.inboxes = self.inboxes, {}
        with anyio.move_on_after(10, shield=True):
            await asyncio.gather(
                *(inbox.close() for inbox in inboxes.values()), return_exceptions=True
            )
            await asyncio.gather(self.into.close(), self.out.close(), return_exceptions=True)
            # The library hears of cancelled calls from a thread, a moment later, in this loop: it
            # must not be closed by then.
            await asyncio.sleep(CLOSING)


@frozen(kw_only=True)
class _Place:
    """The names of one group on the service."""

    project: str
    topics: str
    subscriptions: str
    topic: str
    group: str

    @property
    def entity(self) -> str:
        return f"{self._topics}.topic.{_short(self.topic)}-{hashed(self.topic)[:16]}"

    @property
    def subscription(self) -> str:
        return f"{self._subscriptions}.group.{self._part}"

    @property
    def dead_topic(self) -> str:
        return f"{self._topics}.dead.{self._part}"

    @property
    def dead(self) -> str:
        return f"{self._subscriptions}.dead.{self._part}"

    @property
    def keeper(self) -> str:
        # By the prefix of topics: its groups may have several.
        part = f"{_short(self.topic)}-{hashed(self.topic)[:16]}"
        return f"projects/{self.project}/subscriptions/{self.topics}.kept.{part}"

    @property
    def mark(self) -> str:
        """The group, in an attribute and a filter."""
        return hashed(f"{self.subscriptions}\n{self.topic}\n{self.group}")[:24]

    @property
    def _topics(self) -> str:
        return f"projects/{self.project}/topics/{self.topics}"

    @property
    def _subscriptions(self) -> str:
        return f"projects/{self.project}/subscriptions/{self.subscriptions}"

    @property
    def _part(self) -> str:
        return f"{_short(self.topic)}.{_short(self.group)}-{self.mark}"


# A subscription of a group, whatever its prefix.
_GROUP: Final = re.compile(r"/subscriptions/[^/]+\.group\.[^/]+-[0-9a-f]{24}$")


def _credentials(file: str | None) -> tuple[Any, str | None]:
    """Those of a service account, or the default ones; and the project they are of."""
    scopes = ["https://www.googleapis.com/auth/pubsub"]
    if file:
        library = require_library("google.oauth2.service_account", extra=EXTRA)
        found = library.Credentials.from_service_account_file(file, scopes=scopes)
        return found, found.project_id
    found, project = require_library("google.auth", extra=EXTRA).default(scopes=scopes)
    return found, project


def _errors() -> Any:
    return require_library("google.api_core.exceptions", extra=EXTRA)


def _retry(timeout: float) -> Any:
    """Again while the service is busy or away, for so long."""
    library, errors = require_library("google.api_core.retry", extra=EXTRA), _errors()
    return library.AsyncRetry(
        predicate=library.if_exception_type(
            errors.ResourceExhausted,
            errors.ServiceUnavailable,
            errors.InternalServerError,
            errors.Aborted,
        ),
        initial=0.1,
        maximum=2.0,
        multiplier=2.0,
        timeout=timeout / 3,
    )


async def _unless_there(made: Awaitable[Any]) -> bool:
    """Create it; False when it is there already."""
    return await unless(_errors().AlreadyExists, made)


async def _if_there(gone: Awaitable[Any]) -> bool:
    """Delete it; False when it is not there."""
    return await unless(_errors().NotFound, gone)


# Messages.


@frozen(kw_only=True)
class _Out:
    """A message for the wire."""

    body: bytes
    attributes: dict[str, str]
    key: str

    @property
    def size(self) -> int:
        attributes = sum(len(name) + len(text) * 3 + 16 for name, text in self.attributes.items())
        return len(self.body) + attributes + len(self.key) + 16

    def native(self) -> dict[str, Any]:
        return {"data": self.body, "attributes": self.attributes, "ordering_key": self.key}


@frozen(kw_only=True)
class _Dead:
    """A dead letter that is out to us."""

    raw: Any
    entry: DeadLetterEntry


def _chunks(outs: Sequence[_Out]) -> Generator[list[_Out]]:
    """What one request takes: messages of one key, so many, so large."""
    chunk, size = list[_Out](), 0
    for out in outs:
        full = len(chunk) == MOST_MESSAGES or size + out.size > MOST_BYTES - HEADERS
        if chunk and (full or chunk[-1].key != out.key):
            yield chunk
            chunk, size = [], 0
        chunk.append(out)
        size += out.size
    if chunk:
        yield chunk


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as attributes; long ones in pieces, names of Google's behind a tilde."""
    found: dict[str, str] = {}
    pieces: dict[str, int] = {}
    for header, value in headers.items():
        name = f"~{header}" if header.startswith(("goog", "~")) else header
        text = value.encode("utf-8", "replace").decode()
        if len(text.encode()) <= LONGEST_VALUE:
            found[name] = text
            continue
        size = LONGEST_VALUE if text.isascii() else LONGEST_VALUE // 4
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        found.update({f"{name}~{number}": part for number, part in enumerate(parts)})
        pieces[name] = len(parts)
    if pieces:
        found[LONG] = json.dumps(pieces)
    return found


def _own(attributes: Mapping[str, str]) -> dict[str, str]:
    """Attributes without those the service and its client libraries add."""
    return {name: text for name, text in attributes.items() if not name.startswith(NATIVE)}


def _headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """The inverse of ``_attributes``; a message of somebody else has none of our marks."""
    found = _own(attributes)
    for name in (ONLY, DUE):
        found.pop(name, None)
    for name, number in json_object(found.pop(LONG, "{}")).items():
        found[name] = "".join(found.pop(f"{name}~{one}", "") for one in range(int(number)))
    return {name.removeprefix("~"): text for name, text in found.items()}


def _message(native: Any, topic: str) -> BusMessage:
    headers = _headers(native.attributes)
    if native.ordering_key and "ce-id" not in headers:
        headers.setdefault(ORDERING_KEY, native.ordering_key)
    return from_headers(headers, bytes(native.data), topic=topic, fallback_id=native.message_id)


def _dead_entry(native: Any, topic: str, group: str) -> DeadLetterEntry:
    """A dead letter, also one that the service made."""
    headers, body = _headers(native.attributes), bytes(native.data)
    if "dead-reason" in headers:
        return from_dead_headers(headers, body, topic=topic, fallback_id=native.message_id)
    message = _message(native, topic)
    times = native.attributes.get(SOURCE_COUNT, "")
    return DeadLetterEntry(
        message=message,
        error=f"Pub/Sub delivered it {times or 'too many'} times",
        failed_at=datetime.fromtimestamp(_published(native), UTC),
        retry_count=message.retry_count,
        reason=DeadLetterReason.POISON,
        attempts=int(times) if times.isdigit() else message.retry_count,
        group=group,
    )


def _due(native: Any) -> float:
    try:
        return float(native.attributes.get(DUE, 0))
    except ValueError:
        return 0.0


def _published(native: Any) -> float:
    """Seconds since 1970."""
    return float(native.publish_time.seconds + native.publish_time.nanos / 1e9)


def _turn(raw: Any) -> float:
    """When it could be delivered first; messages of a key stay in their order."""
    published = _published(raw.message)
    return published if raw.message.ordering_key else max(published, _due(raw.message))


def _count(raw: Any) -> int:
    """Deliveries to a handler: those of a message that was not due are not counted."""
    waited = _due(raw.message) - _published(raw.message)
    early = 1 + int(waited // LONGEST_DELAY) if waited > 0 else 0
    return max(1, int(raw.delivery_attempt) - early)


def _cannot(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"Pub/Sub has no {wanted.value}", backend=NAME, topic=topic, hint=instead
    )


# Labels have few characters: the true names are in them as base 32.


def _label(kind: str, text: str) -> dict[str, str]:
    coded = b32encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=").lower()
    parts = [coded[start : start + LABEL] for start in range(0, len(coded), LABEL)]
    if len(parts) > MOST_LABELS:
        raise GCPPubSubQueueError(
            f"a name of {len(text)} characters is longer than Pub/Sub keeps",
            topic=text[:100],
            hint="use shorter names of topics and groups",
        )
    return {f"{kind}{number}": part for number, part in enumerate(parts)}


def _unlabel(kind: str, labels: Mapping[str, str]) -> str:
    parts: list[str] = []
    while (part := labels.get(f"{kind}{len(parts)}")) is not None:
        parts.append(part)
    coded = "".join(parts).upper()
    return b32decode(coded + "=" * (-len(coded) % 8)).decode("utf-8", "surrogatepass")


def _short(name: str) -> str:
    """A part of a name for people; the hash beside it makes it the only one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60] or "x"


def _fit(key: str) -> str:
    return key if len(key.encode("utf-8", "replace")) <= LONGEST_KEY else hashed(key)


class GCPPubSubQueue(BusQueue):
    """The bus on Pub/Sub, usable without a container."""

    def __init__(
        self,
        project_id: str = "",
        topic_id: str = "",
        subscription_id: str = "",
        max_messages: int = 10,
        max_wait_time: float = 5.0,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        options: BusOptions | None = None,
        **settings: Any,
    ) -> None:
        """``topic_id`` begins the names of its topics; ``settings``: those of the driver.

        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        driver = GCPPubSubDriver(
            project_id or None,
            topic_id=topic_id,
            subscription_id=subscription_id,
            max_messages=max_messages,
            max_wait_time=max_wait_time,
            **settings,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> GCPPubSubDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    own = entry.gcp_pubsub or GCPPubSubDriverConfig()
    return GCPPubSubDriver(
        own.project_id,
        topic_id=own.topic_id,
        subscription_id=own.subscription_id,
        max_messages=own.max_messages,
        max_wait_time=own.max_wait_time,
        credentials_file=own.credentials_file,
        endpoint=own.endpoint,
        emulator_host=own.emulator_host,
        timeout=own.timeout,
        min_backoff=own.min_backoff,
        max_backoff=own.max_backoff,
        visibility_timeout=entry.visibility_timeout,
        # Enough to see that there are too many.
        counted=max(COUNTED, (entry.dead_letters.max_entries or 0) + 1),
    )
