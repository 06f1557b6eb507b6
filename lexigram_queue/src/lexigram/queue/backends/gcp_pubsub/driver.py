"""The bus on Google Cloud Pub/Sub.

A topic is a topic there, a group a subscription of it; a second topic with one subscription holds
the dead letters of a group. All are made when they are needed.

What Pub/Sub has not, and how it is done here:

- *For one group only.* A retry and a redriven message are published to the topic again, with an
  attribute that names the group; the filters of the other subscriptions let it pass.
- *Later.* A message that is not due is held by its ack deadline until it is, at most ten minutes
  at a time; the service keeps that time. So delays are whole seconds, rounded up.
- *Kept for the first group.* A topic without a subscription drops what it gets. A topic nobody
  consumes has a subscription that nobody reads, its *keeper*; the first group takes over its state
  by a snapshot.
- *Leases.* Without its exactly-once mode, the service takes an acknowledgement from any sender,
  and does not report that a deadline is over. So the lease is also measured here, and it ends a
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
import math
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    CORE_CAPABILITIES,
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    QueueError,
)
from lexigram.contracts.queue.headers import UNREADABLE
from lexigram.queue.backends.clouds import CloudDriver, health_of
from lexigram.queue.backends.gcp_pubsub._dead_letters import PAGE, open_dead_letters
from lexigram.queue.backends.gcp_pubsub._errors import (
    NAME,
    UNDELIVERED,
    cannot_error,
    hint_for,
    is_foreign,
)
from lexigram.queue.backends.gcp_pubsub._names import Place, from_labels
from lexigram.queue.backends.gcp_pubsub._publisher import Publisher
from lexigram.queue.backends.gcp_pubsub._pull import Held
from lexigram.queue.backends.gcp_pubsub._receiver import Receiver
from lexigram.queue.backends.gcp_pubsub._space import Space, open_space
from lexigram.queue.backends.gcp_pubsub._topology import DEADLINES, PAUSES, Topology
from lexigram.queue.backends.gcp_pubsub._wire import (
    HEADERS,
    LONGEST_DELAY,
    LONGEST_VALUE,
    MAX_MESSAGES_PER_REQUEST,
    MOST_ATTRIBUTES,
    MOST_BYTES,
    SPARE,
    Out,
    chunks,
    count_deliveries,
    read_message,
    to_attributes,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import GCPPubSubDriverConfig, NamedQueueConfig, override
from lexigram.queue.constants import DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import GCPPubSubQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import cut_dead, dead_headers, redriven
from lexigram.queue.runtime.topics import is_pattern

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

GRACE: Final = 0.25  # seconds by which the service's lease is longer than ours, at least
COUNTED: Final = 1000  # dead letters: counting takes them out, so it has an end
LONGEST_BACKOFF: Final = 600.0  # seconds


class GCPPubSubDriver(CloudDriver[Space, Place]):
    """One member on a project; its topics begin with ``topic_id``, its subscriptions too."""

    name = NAME
    capabilities = CAPABILITIES

    def __init__(
        self,
        project_id: str | None = None,
        *,
        config: GCPPubSubDriverConfig | None = None,
        topic_id: str | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        counted: int = COUNTED,
    ) -> None:
        """``project_id`` and ``topic_id`` come before those of ``config``, which has all other
        settings.

        ``counted``: the largest number of dead letters that is reported for a group.
        """
        super().__init__()
        self._config = config = override(
            config or GCPPubSubDriverConfig(), project_id=project_id, topic_id=topic_id
        )
        min_backoff, max_backoff = config.min_backoff, config.max_backoff
        self.prefix = config.topic_id or DEFAULT_PREFIX
        self.subscription_prefix = config.subscription_id or self.prefix
        for prefix in (self.prefix, self.subscription_prefix):
            if not re.fullmatch(r"(?!goog)[A-Za-z][A-Za-z0-9._~-]{0,39}", prefix):
                text = "topic_id and subscription_id begin with A-Z or a-z, not with goog, and have"
                raise ValueError(
                    f"{text} at most 40 characters out of A-Z, a-z, 0-9 and . _ ~ -, not {prefix!r}"
                )
        if visibility_timeout + GRACE > DEADLINES[1]:
            raise ValueError(
                f"Pub/Sub leases a message for less than {DEADLINES[1]} seconds at a time"
            )
        if (min_backoff or 0) > max_backoff:
            text = "Pub/Sub pauses from min_backoff to max_backoff"
            raise ValueError(f"{text}, not from {min_backoff} to {max_backoff}")
        self.project_id = config.project_id
        policy: dict[str, timedelta] | None = None
        if min_backoff is not None:
            pauses = [timedelta(seconds=seconds) for seconds in (min_backoff, max_backoff)]
            policy = dict(zip(PAUSES, pauses, strict=True))
        self._counted = counted
        self.visibility_timeout: float | None = visibility_timeout
        deadline = math.ceil(visibility_timeout + GRACE)
        self._topology = Topology(deadline, policy)
        self._publisher = Publisher(self._topology, self._place, self._translate_errors)
        self._receiver = Receiver(
            lease=visibility_timeout,
            deadline=deadline,
            most=min(config.max_messages, MAX_MESSAGES_PER_REQUEST),
            wait=config.max_wait_time,
        )
        # An empty subscription is known by a pull that brings nothing for so long.
        self._look = 0.2 if config.emulator_host else 1.5

    def __repr__(self) -> str:
        return f"GCPPubSubDriver({self.address}, topic_id={self.prefix!r})"

    @property
    def address(self) -> str:
        """Project and host."""
        host = self._config.emulator_host or self._config.endpoint or "pubsub.googleapis.com"
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
                with self._translate_errors("connect"):
                    await space.ping(space.timeout)
            except BaseException:
                self._space = None
                await space.close()
                raise
            self._space, self.project_id = space, space.project

    async def _open(self) -> Space:
        with self._translate_errors("connect"):
            return await open_space(self._config)

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topic and subscriptions exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("declare", topic):
            await self._topology.declare(space, place, temporary=temporary)

    async def drop(self, topic: str, group: str) -> None:
        """Delete the subscriptions; a topic left without a group gets its keeper first."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("drop", topic):
            await self._topology.drop(space, place)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All subscriptions of this prefix that say which group they are of."""
        space, found = self._now(), list[tuple[str, str]]()
        start = f"projects/{space.project}/subscriptions/{self.subscription_prefix}.group."
        with self._translate_errors("list groups"):
            request = {"project": f"projects/{space.project}", "page_size": PAGE}
            listed = await space.out.list_all(
                "list_subscriptions", request=request, **space.patient
            )
            for one in listed:
                if one.name.startswith(start):
                    topic, group = from_labels("t", one.labels), from_labels("g", one.labels)
                    if topic and group:
                        found.append((topic, group))
        return found

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send by topic and, where it has one, by ordering key; as few requests as fit."""
        await self._publisher.publish_many(self._now(), messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what has come, or wait for it."""
        space, place = self._now(), self._place(topic, group)
        inbox = space.inboxes.get(place.subscription)
        with self._translate_errors("receive", topic):
            if inbox is None:
                if await space.find(place.subscription) is None:
                    raise GCPPubSubQueueError(
                        f"group {group} of {topic} does not exist",
                        topic=topic,
                        hint="declare the group first; those of another topic_id are others",
                    )
                made = self._receiver.open_inbox(space, place)
                inbox = space.inboxes.setdefault(place.subscription, made)
            held = await inbox.take(limit, wait)
        return [
            Delivery(
                message=read_message(one.raw.message, topic),
                topic=topic,
                group=group,
                receipt=one,
                delivery_count=count_deliveries(one.raw),
            )
            for one in held
        ]

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, one request for a group."""
        for name, held in self._ours(deliveries).items():
            with self._translate_errors("acknowledge", deliveries[0].topic):
                await self._now().acknowledge(name, [one.ack_id for one in held])
            for one in held:
                one.finish(acked=True)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Give back: they come again at once, with those of their keys behind them."""
        await self._give_back(deliveries, 0)

    async def _give_back(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        """Let them come again after so long; what is behind them goes back with them."""
        for name, held in self._ours(deliveries).items():
            with self._translate_errors("release", deliveries[0].topic):
                await self._now().modify(name, [one.ack_id for one in held], seconds)
                rest = [other.ack_id for one in held for other in one.finish(acked=False)]
                await self._now().modify(name, rest, 0)

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
            with self._translate_errors("extend", deliveries[0].topic):
                await self._now().modify(name, [one.ack_id for one in held], native)
            for one in held:
                one.until = now + min(seconds, native - GRACE)
                kept.add(one)
        lost = [delivery for delivery in deliveries if delivery.receipt not in kept]
        for delivery in lost:
            rest: list[Held] = delivery.receipt.finish(acked=False)
            if rest:
                name = self._place(delivery.topic, delivery.group).subscription
                with self._translate_errors("extend", delivery.topic):
                    await self._now().modify(name, [one.ack_id for one in rest], 0)
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
        out = self._publisher.encode(message or delivery.message, delay=delay, only=place.mark)
        with self._translate_errors("nack", delivery.topic):
            await self._publisher.publish(space, delivery.topic, [out])
            await space.acknowledge(place.subscription, [held.ack_id])
        held.finish(acked=True)

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Publish it to the topic of dead letters, then acknowledge it."""
        if not self._ours([delivery]):
            return
        space, place = self._now(), self._place(delivery.topic, delivery.group)
        held: Held = delivery.receipt
        headers = dead_headers(entry)
        attributes = to_attributes(headers)
        if len(attributes) > MOST_ATTRIBUTES:  # rather without its traceback than not at all
            headers.pop("dead-traceback", None)
            headers["dead-error"] = headers["dead-error"][: LONGEST_VALUE // 4]
            attributes = to_attributes(headers)
        out = Out(body=entry.message.payload, attributes=attributes, key="")
        if out.size > MOST_BYTES - SPARE:
            # Attributes are never so many that the body has no part in it.
            note = {UNREADABLE: headers.get(UNREADABLE, "")}
            body = cut_dead(note, out.body, out.size - MOST_BYTES + SPARE)
            out = Out(body=body, attributes=to_attributes(headers | note), key="")
        with self._translate_errors("dead letter", delivery.topic):
            await space.send(place.dead_topic, [out])
            await space.acknowledge(place.subscription, [held.ack_id])
        held.finish(acked=True)

    async def count_dead(self, topic: str, group: str) -> int:
        """Count by taking them for a moment, up to ``counted`` of them.

        Pub/Sub itself counts in Cloud Monitoring only, minutes late.
        """
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("count dead letters", topic):
            async with open_dead_letters(space, place, self._look, self._counted) as dead:
                return len({one.entry.message.id for one in dead})

    async def _read_dead(self, space: Space, place: Place) -> Sequence[DeadLetterEntry]:
        """Take all for a moment and give them back: Pub/Sub has no other way to look."""
        entries: dict[str, DeadLetterEntry] = {}
        async with open_dead_letters(space, place, self._look) as dead:
            for one in dead:
                entries.setdefault(one.entry.message.id, one.entry)
        return list(entries.values())

    async def _clear_dead(
        self, space: Space, place: Place, ids: Sequence[str] | None, *, again: bool
    ) -> int:
        async with open_dead_letters(space, place, self._look) as dead:
            mine: dict[str, DeadLetterEntry] = {}
            for one in dead:
                if ids is None or one.entry.message.id in ids:
                    mine.setdefault(one.entry.message.id, one.entry)
            if again:
                outs = [
                    self._publisher.encode(redriven(entry.message), only=place.mark)
                    for entry in mine.values()
                ]
                for chunk in chunks(outs):
                    await self._publisher.publish(space, place.topic, chunk)
            done = [one for one in dead if one.entry.message.id in mine]
            await space.acknowledge(place.dead, [one.raw.ack_id for one in done])
            dead[:] = [one for one in dead if one.entry.message.id not in mine]
        return len(mine)

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Not declared: Pub/Sub shows a message by giving it out."""
        raise cannot_error(Capability.PEEK, topic, "subscribe a group of its own")

    async def purge(self, topic: str, group: str) -> int:
        """Take what waits and acknowledge it; not what is delayed, nor what waits for its key."""
        space, place, total = self._now(), self._place(topic, group), 0
        inbox = space.inboxes.get(place.subscription)
        with self._translate_errors("purge", topic):
            ack_ids = [held.ack_id for held in inbox.drain()] if inbox is not None else []
            while ack_ids or (
                ack_ids := [
                    raw.ack_id for raw in await space.pull(place.subscription, PAGE, self._look)
                ]
            ):
                await space.acknowledge(place.subscription, ack_ids)
                total, ack_ids = total + len(ack_ids), []
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Not declared: a subscription cannot be held back."""
        raise cannot_error(Capability.PAUSE, topic, "stop its consumers")

    async def is_paused(self, topic: str, group: str) -> bool:
        """Never."""
        return False

    async def depth(self, topic: str, group: str) -> int:
        """Not declared: only Cloud Monitoring counts."""
        raise cannot_error(Capability.DEPTH, topic, f"see {UNDELIVERED} in Cloud Monitoring")

    async def lag(self, topic: str, group: str) -> int:
        """Not declared: only Cloud Monitoring counts."""
        raise cannot_error(Capability.LAG, topic, f"see {UNDELIVERED} in Cloud Monitoring")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the project answers in time."""

        async def ask() -> None:
            with self._translate_errors("health check"):
                await self._now().ping(timeout)

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "GCP Pub/Sub", facts, timeout)

    # Names and errors.

    def _place(self, topic: str, group: str) -> Place:
        if is_pattern(topic):
            raise cannot_error(Capability.PATTERN, topic, "list the topics")
        return Place(
            project=str(self.project_id),
            topics=self.prefix,
            subscriptions=self.subscription_prefix,
            topic=topic,
            group=group,
        )

    def _is_foreign(self, error: Exception) -> bool:
        return is_foreign(error)

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        cause = getattr(error, "cause", None)  # of a call that was tried again and again
        error = cause if isinstance(cause, Exception) else error
        kind, reason = type(error).__name__, getattr(error, "message", None) or str(error)
        text = f"could not {what} on {self.address}: {reason or kind}"
        if kind == "InvalidArgument" and "payload size" in reason:
            hint = "send a reference to stored content"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        return GCPPubSubQueueError(text, topic=topic, hint=hint_for(kind))


class GCPPubSubQueue(BusQueue):
    """The bus on Pub/Sub, usable without a container."""

    def __init__(
        self,
        project_id: str | None = None,
        topic_id: str | None = None,
        subscription_id: str | None = None,
        max_messages: int | None = None,
        max_wait_time: float | None = None,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        config: GCPPubSubDriverConfig | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        options: BusOptions | None = None,
    ) -> None:
        """``topic_id`` begins the names of its topics.

        ``config``: all settings; those that are given by name come before them.
        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        config = override(
            config or GCPPubSubDriverConfig(),
            subscription_id=subscription_id,
            max_messages=max_messages,
            max_wait_time=max_wait_time,
        )
        driver = GCPPubSubDriver(
            project_id or None,
            config=config,
            topic_id=topic_id,
            visibility_timeout=visibility_timeout,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> GCPPubSubDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return GCPPubSubDriver(
        config=entry.gcp_pubsub,
        visibility_timeout=entry.visibility_timeout,
        # Enough to see that there are too many.
        counted=max(COUNTED, (entry.dead_letters.max_entries or 0) + 1),
    )
