"""The bus on Azure Service Bus, tiers Standard and Premium.

A topic is a topic there, and a group a subscription that forwards to a queue of the group's own.
So what concerns one group (a retry, a redriven message) is sent to its queue and to nobody else,
and its figures are those of the queue.

What Service Bus has not, and how it is done here:

- *Kept for the first group.* A topic without a subscription drops what it gets. A topic nobody
  consumes has a subscription that never forwards, its *keeper*; the first group takes over what
  the keeper has.
- *A changed message comes again.* A retry is a scheduled copy in the queue of the group; it is
  confirmed before the old one is completed. The lock is renewed before that: who has lost it
  sends no copy.
- *Names.* Those of the service are short, without case and have few characters. The true names
  are in the metadata of the entities.

Ordering keys are sessions. A queue has sessions or has none, from its beginning, so a group then
has two queues: one for messages with a key, one for those without (setting ``sessions``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio
from attrs import define, field, frozen

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import CONTENT_TYPE, CORRELATION_ID, ORDERING_KEY
from lexigram.queue.backends.azure_servicebus_links import (
    ABANDONED,
    COMPLETED,
    DEAD,
    EXTRA,
    Held,
    Inbox,
    Requests,
    Senders,
    open_link,
    renew_keyed,
    settle_keyed,
)
from lexigram.queue.backends.clouds import hashed, health_of, json_object, translated, unless
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import AzureServiceBusDriverConfig, NamedQueueConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
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
from lexigram.queue.errors import AzureServiceBusQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

NAME: Final = "azure_servicebus"
DEFAULT_PREFIX: Final = "lexigram"

# Not PRIORITY and FAIRNESS: a queue hands out in its order. Not PATTERN: no subscription covers
# topics that come later. Not LAG: the service counts locked messages as active ones.
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.PATTERN,
    Capability.LAG,
    Capability.ORDERING,
}

LONGEST_LOCK: Final = 300.0  # seconds, of the service
MOST_DELIVERIES: Final = 2000  # of the service; the runtime counts its own, far below
LONGEST_TTL: Final = 49 * 24 * 3600.0  # seconds; the field on the wire holds 49.7 days
DEDUP_WINDOW: Final = (20.0, 7 * 24 * 3600.0)  # seconds, of the service
TEMPORARY_FOR: Final = timedelta(minutes=10)
SIZES: Final = {"Standard": 256 * 1024, "Premium": 1024 * 1024}  # bytes of a message or a batch
HEADERS: Final = 64 * 1024  # bytes of the headers, at most; of the service
KNOWN_FOR: Final = 10.0  # seconds a topic is taken to have a group, without asking again
PAGE: Final = 250
LOOK: Final = 5.0  # seconds to wait for messages that are known to be there
EMPTY: Final = 0.5  # seconds in which nothing comes from a queue that is empty
LONGEST_ID: Final = 128  # characters, also of a session
LONGEST_METADATA: Final = 1024
KEEPER: Final = "kept"
NATIVE: Final = ("DeadLetterReason", "DeadLetterErrorDescription", "Diagnostic-Id")

_log = logging.getLogger(__name__)


class AzureServiceBusDriver:
    """One member on a namespace; its entities begin with ``prefix``."""

    name = NAME

    def __init__(
        self,
        connection_str: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        management_str: str | None = None,
        sessions: bool = False,
        max_message_count: int = 10,
        max_wait_time: float = 5.0,
        timeout: float = 15.0,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", prefix):
            text = "prefix must be at most 40 lower-case letters, digits, dots and dashes"
            raise ValueError(f"{text}, not {prefix!r}")
        if visibility_timeout > LONGEST_LOCK:
            raise ValueError(f"Service Bus locks a message for at most {LONGEST_LOCK:g} seconds")
        if dedup_window and not DEDUP_WINDOW[0] <= dedup_window <= DEDUP_WINDOW[1]:
            text = "Service Bus remembers ids for 20 seconds to 7 days"
            raise ValueError(f"{text}, not for dedup_window {dedup_window:g}")
        self.prefix = prefix
        self.visibility_timeout: float | None = visibility_timeout
        self.capabilities: frozenset[Capability] = (
            CAPABILITIES | {Capability.ORDERING} if sessions else CAPABILITIES
        )
        self.address = _address(connection_str)
        self._connection_str, self._management_str = connection_str, management_str
        self._sessions, self._credit, self._wait = sessions, max_message_count, max_wait_time
        self._timeout, self._lease = timeout, visibility_timeout
        self._max_backlog, self._dedup_window = max_backlog, dedup_window
        self._opening = asyncio.Lock()
        self._space: _Space | None = None

    def __repr__(self) -> str:
        return f"AzureServiceBusDriver({self.address}, prefix={self.prefix!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What the tier takes, less the room for headers."""
        return None if self._space is None else self._space.max_size - HEADERS

    # Life.

    async def connect(self) -> None:
        """Ask the namespace who it is; links open when they are first used."""
        async with self._opening:
            # The client tells the service its platform, for which it starts a process: once
            # asked it is remembered.
            await anyio.to_thread.run_sync(platform.platform)
            space = self._space or self._open()
            try:
                with self._translated("connect"):
                    async with asyncio.timeout(self._timeout):
                        space.max_size = _size(await space.admin.get_namespace_properties())
            except BaseException:
                self._space = None
                await space.close()
                raise
            self._space = space

    def _open(self) -> _Space:
        if not self._connection_str:
            raise AzureServiceBusQueueError(
                "no connection string", hint="set azure_servicebus.connection_str"
            )
        make = require_library("azure.servicebus.aio", extra=EXTRA).ServiceBusClient
        # Without a time for one attempt, the client waits for some answers for ever.
        retry = {"retry_total": 3, "retry_backoff_factor": 0.2, "try_timeout": self._timeout}
        with self._translated("connect"):
            reading = make.from_connection_string(self._connection_str, retry_total=0)
            return _Space(
                reading=reading,
                asking=(asking := make.from_connection_string(self._connection_str, **retry)),
                admin=_administration(self._management_str or self._connection_str),
                senders=Senders(asking),
            )

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its lock ends."""
        space, self._space = self._space, None
        if space is not None:
            await space.close()

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topic, queue and subscription exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        about = _metadata(topic=topic, group=group, temporary=temporary)
        idle = {"auto_delete_on_idle": TEMPORARY_FOR} if temporary else {}
        with self._translated("declare", topic):
            await self._make_topic(space, place)
            for queue, is_keyed in place.queues:
                options = {"requires_session": True} if is_keyed else {}
                await self._make_queue(space, queue, user_metadata=about, **options, **idle)
            begun = clock.now()
            for queue, is_keyed in place.queues:
                await self._subscribe(space, place, queue, is_keyed)
            await self._take_over(space, place, begun)
        space.covered.pop(topic, None)

    async def _make_topic(self, space: _Space, place: _Place) -> None:
        options: dict[str, Any] = {"user_metadata": _metadata(topic=place.topic)}
        if self._dedup_window:
            window = timedelta(seconds=self._dedup_window)
            options["requires_duplicate_detection"] = True
            options["duplicate_detection_history_time_window"] = window
        await _unless_there(space.admin.create_topic(place.entity, **options))

    async def _make_queue(self, space: _Space, queue: str, **options: Any) -> None:
        lock = timedelta(seconds=self._lease)
        made = await _unless_there(
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

    async def _subscribe(self, space: _Space, place: _Place, queue: str, is_keyed: bool) -> None:
        name = place.subscription(is_keyed)
        if not self._sessions:
            await _unless_there(
                space.admin.create_subscription(place.entity, name, forward_to=queue)
            )
            return
        # Without forwarding until its rule is there: before, it would take everything.
        library = require_library("azure.servicebus.management", extra=EXTRA)
        await _unless_there(space.admin.create_subscription(place.entity, name))
        text = f"sys.SessionId IS {'NOT ' if is_keyed else ''}NULL"
        rule = library.SqlRuleFilter(text)
        await _unless_there(space.admin.create_rule(place.entity, name, "keys", filter=rule))
        await _if_there(space.admin.delete_rule(place.entity, name, "$Default"))
        found = await space.admin.get_subscription(place.entity, name)
        if not found.forward_to:
            found.forward_to = queue
            await space.admin.update_subscription(place.entity, found)

    async def _take_over(self, space: _Space, place: _Place, begun: datetime) -> None:
        """Move what the keeper has into the queue of its first group; the keeper goes."""
        if not await _if_there(space.admin.get_subscription(place.entity, KEEPER)):
            return
        others = {name async for name in _subscriptions(space, place.entity)} - {KEEPER}
        is_first = others <= {place.subscription(keyed) for _, keyed in place.queues}
        if is_first:
            receiver = space.reading.get_subscription_receiver(place.entity, KEEPER)
            try:
                await open_link(receiver)
                while raws := await receiver.receive_messages(PAGE, max_wait_time=EMPTY):
                    # What came since has come to the group itself.
                    early = [raw for raw in raws if (raw.enqueued_time_utc or begun) <= begun]
                    await self._copy(space, place, early)
                    for raw in raws:
                        await receiver.complete_message(raw)
            finally:
                await receiver.close()
        await _if_there(space.admin.delete_subscription(place.entity, KEEPER))

    async def _copy(self, space: _Space, place: _Place, raws: Sequence[Any]) -> None:
        for queue, is_keyed in place.queues:
            outs = [
                self._out(_message(raw, place.topic))
                for raw in raws
                if bool(self._sessions and raw.session_id) is is_keyed
            ]
            if outs:
                await space.senders.send(queue, outs, is_topic=False)

    async def drop(self, topic: str, group: str) -> None:
        """Delete the queue and the subscription; a topic left without one gets its keeper first."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("drop", topic):
            await space.forget(place)
            space.covered.pop(topic, None)
            about = await self._about(space, place)
            mine = {place.subscription(is_keyed) for _, is_keyed in place.queues}
            if await _if_there(space.admin.get_topic(place.entity)):
                others = {one async for one in _subscriptions(space, place.entity)} - mine
                if not others and about.get("temporary"):
                    # Nobody comes back for the topic of a temporary group, such as of replies.
                    await _if_there(space.admin.delete_topic(place.entity))
                elif not others:
                    await _unless_there(space.admin.create_subscription(place.entity, KEEPER))
                for name in mine:
                    await _if_there(space.admin.delete_subscription(place.entity, name))
            for queue, _ in place.queues:
                await _if_there(space.admin.delete_queue(queue))

    async def _about(self, space: _Space, place: _Place) -> dict[str, Any]:
        absent = require_library("azure.core.exceptions", extra=EXTRA).ResourceNotFoundError
        try:
            found = await space.admin.get_queue(place.queue)
        except absent:
            return {}
        return json_object(found.user_metadata)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All queues of this prefix that say which group they are of."""
        space = self._now()
        found: list[tuple[str, str]] = []
        with self._translated("list groups"):
            async for queue in space.admin.list_queues():
                if queue.name.startswith(f"{self.prefix}.group."):
                    about = json_object(queue.user_metadata)
                    if "group" in about:
                        found.append((about["topic"], about["group"]))
        return found

    # In.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send by topic, in as few batches as fit."""
        space = self._now()
        outs: dict[str, list[tuple[str, ServiceBusMessage]]] = {}
        for message in messages:
            self._check_size(message)
            outs.setdefault(message.topic, []).append((message.id, self._out(message)))
        left = {topic: [identity for identity, _ in pairs] for topic, pairs in outs.items()}
        for topic, pairs in outs.items():
            try:
                with self._translated("publish", topic):
                    await self._publish(space, topic, pairs, left[topic])
            except QueueError as error:
                error.details["unconfirmed"] = [one for ids in left.values() for one in ids]
                raise

    async def _publish(
        self,
        space: _Space,
        topic: str,
        pairs: Sequence[tuple[str, ServiceBusMessage]],
        left: list[str],
    ) -> None:
        room = await self._room(space, topic, len(pairs))
        outs = [out for _, out in pairs][:room]
        errors = require_library("azure.servicebus.exceptions", extra=EXTRA)
        entity = self._place(topic, "").entity

        def sent(number: int) -> None:
            del left[:number]

        try:
            await space.senders.send(entity, outs, sent)
        except (errors.MessagingEntityNotFoundError, errors.ServiceBusConnectionError):
            # The client may lose the reason when a link is refused, so the topic is asked for.
            if await _if_there(space.admin.get_topic(entity)):
                raise
            # Deleted since we looked; what was confirmed before is not sent again.
            space.covered.pop(topic, None)
            await self._room(space, topic, len(left))
            await space.senders.send(entity, outs[len(pairs) - len(left) :], sent)
        if room < len(pairs):
            raise QueueFullError(
                f"topic {topic} has no group and already keeps {self._max_backlog} messages",
                backend=NAME,
                topic=topic,
                hint="start a consumer of the topic, or raise max_backlog",
            )

    async def _room(self, space: _Space, topic: str, wanted: int) -> int:
        """How many of so many a topic takes; one with a group takes all.

        Keeper and group are never both absent, and a keeper beside a group goes: whoever adds
        one looks for the other afterwards.
        """
        now = asyncio.get_running_loop().time()
        if space.covered.get(topic, 0.0) > now:
            return wanted
        place = self._place(topic, "")
        if not await _if_there(space.admin.get_topic(place.entity)):
            await self._make_topic(space, place)
        if not {name async for name in _subscriptions(space, place.entity)} - {KEEPER}:
            await _unless_there(space.admin.create_subscription(place.entity, KEEPER))
            if not {name async for name in _subscriptions(space, place.entity)} - {KEEPER}:
                kept = await space.admin.get_subscription_runtime_properties(place.entity, KEEPER)
                return min(wanted, max(0, self._max_backlog - (kept.active_message_count or 0)))
            await _if_there(space.admin.delete_subscription(place.entity, KEEPER))
        space.covered[topic] = now + KNOWN_FOR
        return wanted

    def _check_size(self, message: BusMessage) -> None:
        most, headers = self.max_message_bytes or 0, _bytes(to_headers(message))
        if len(message.payload) > most or headers > HEADERS // 2:
            raise MessageTooLargeError(
                f"{len(message.payload)} bytes and {headers} of headers are more than Service Bus "
                f"takes here ({most} and {HEADERS // 2})",
                backend=NAME,
                topic=message.topic,
                hint="use the Premium tier, or send a reference to stored content",
            )

    def _out(
        self, message: BusMessage, *, delay: float = 0.0, native_id: str | None = None
    ) -> ServiceBusMessage:
        """A message for the wire: headers beside the bare body."""
        headers, now = to_headers(message), clock.timestamp()
        delay = max(delay, delay_of(message, now))
        due = datetime.fromtimestamp(now + delay, UTC) if delay > 0 else None
        key = message.headers.get(ORDERING_KEY) if self._sessions else None
        make = require_library("azure.servicebus", extra=EXTRA).ServiceBusMessage
        made: ServiceBusMessage = make(
            message.payload,
            application_properties=dict(headers),
            message_id=_fit(native_id or message.id),
            session_id=_fit(key) if key else None,
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID),
            scheduled_enqueue_time_utc=due,
        )
        if message.ttl is not None:
            left = message.timestamp + message.ttl - now - delay
            if 0 < left < LONGEST_TTL:  # what is over already is left to the runtime
                # Not by its own field: that one cuts to whole seconds.
                header = require_library("azure.servicebus.amqp", extra=EXTRA).AmqpMessageHeader
                made.raw_amqp_message.header = header(time_to_live=int(left * 1000) or 1)
        return made

    # Out.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what has come, or wait for it."""
        space, place = self._now(), self._place(topic, group)
        inbox = space.inboxes.get(place.queue)
        with self._translated("receive", topic):
            if inbox is None:
                if not await _if_there(space.admin.get_queue(place.queue)):
                    raise AzureServiceBusQueueError(
                        f"group {group} of {topic} does not exist",
                        topic=topic,
                        hint="declare the group first; the entities of another prefix are others",
                    )
                # Before any message is locked: to open it takes longer than a short lock lasts.
                await space.requests(place.queue).open()
                inbox = space.inboxes.setdefault(place.queue, self._inbox(space, place))
            held = await inbox.take(limit, wait)
        return [
            Delivery(
                message=_message(one.raw, topic),
                topic=topic,
                group=group,
                receipt=one,
                delivery_count=(one.raw.delivery_count or 0) + 1,
            )
            for one in held
        ]

    def _inbox(self, space: _Space, place: _Place) -> Inbox:
        return Inbox(
            space.reading,
            place.queue,
            place.keyed,
            lease=self._lease,
            credit=self._credit,
            session_wait=self._wait,
        )

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Complete by lock token, one request for a queue."""
        await self._settle_many(deliveries, COMPLETED, "acknowledge")

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Abandon: they come again at once."""
        await self._settle_many(deliveries, ABANDONED, "release")

    async def _settle_many(self, deliveries: Sequence[Delivery], status: str, what: str) -> None:
        for queue, held in self._ours(deliveries).items():
            plain = [one for one in held if not one.is_keyed]
            with self._translated(what, deliveries[0].topic):
                if plain:
                    ask = self._now().requests(queue)
                    tokens = [one.token for one in plain]
                    if not await ask.settle(status, tokens) and len(tokens) > 1:
                        for token in tokens:  # one lock is lost: the others are still ours
                            await ask.settle(status, [token])
                for one in held:
                    if one.is_keyed:
                        await settle_keyed(one, status)
                    one.finish()

    def _ours(self, deliveries: Sequence[Delivery]) -> dict[str, list[Held]]:
        now, found = asyncio.get_running_loop().time(), dict[str, list[Held]]()
        for delivery in deliveries:
            held: Held = delivery.receipt
            if held.is_ours(now):
                found.setdefault(held.queue, []).append(held)
        return found

    async def extend_many(
        self,
        deliveries: Sequence[Delivery],
        seconds: float,
    ) -> Sequence[Delivery]:
        """Renew the locks; they last for the visibility_timeout of the queue."""
        now = asyncio.get_running_loop().time()
        held = [delivery.receipt for delivery in deliveries]
        kept: set[Held] = set()
        for queue, ours in self._ours(deliveries).items():
            with self._translated("extend", deliveries[0].topic):
                kept.update(await self._renew(queue, ours))
        for one in kept:
            one.until = now + self._lease
        lost = [delivery for delivery, one in zip(deliveries, held, strict=True) if one not in kept]
        for delivery in lost:
            delivery.receipt.finish()
        return lost

    async def _renew(self, queue: str, held: Sequence[Held]) -> list[Held]:
        """Those that are still ours."""
        kept = [one for one in held if one.is_keyed and await renew_keyed(one)]
        plain = [one for one in held if not one.is_keyed]
        if not plain:
            return kept
        ask = self._now().requests(queue)
        if await ask.renew([one.token for one in plain]):
            return kept + plain
        if len(plain) > 1:
            kept += [one for one in plain if await ask.renew([one.token])]
        return kept

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Abandon it as it is; changed or delayed, a copy is scheduled and the old one completed."""
        space, held = self._now(), delivery.receipt
        if not self._ours([delivery]):
            return
        if message is None and delay <= 0:
            await self._settle_many([delivery], ABANDONED, "nack")
            return
        with self._translated("nack", delivery.topic):
            if not await self._renew(held.queue, [held]):
                held.finish()
                return
            # Another native id: the queue has no duplicate detection, but users may add it.
            out = self._out(message or delivery.message, delay=delay, native_id=uuid4().hex)
            await space.senders.send(held.queue, [out], is_topic=False)
        await self._settle_many([delivery], COMPLETED, "nack")

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Move it to the dead-letter sub-queue, with the entry as its properties: one step."""
        held: Held = delivery.receipt
        if not self._ours([delivery]):
            return
        headers: dict[str, Any] = dict(dead_headers(entry))
        for name in _headers(held.raw):  # properties can be changed, not removed
            if name.startswith("ce-lex"):
                headers.setdefault(name, "")
        details = {
            "deadletter-reason": entry.reason.value,
            "deadletter-description": entry.error[:1000],
            "properties-to-modify": headers,
        }
        with self._translated("dead letter", delivery.topic):
            if held.is_keyed:
                await settle_keyed(held, DEAD, details)
            else:
                await self._now().requests(held.queue).settle(DEAD, [held.token], details)
        held.finish()

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Look through the sub-queue, oldest first."""
        with self._translated("list dead letters", topic):
            entries = await self._dead(self._now(), self._place(topic, group))
        return list(entries.values())[offset : offset + limit]

    async def _dead(self, space: _Space, place: _Place) -> dict[str, DeadLetterEntry]:
        raws: list[Any] = []
        for queue, _ in place.queues:
            raws += await _peek_all(space.requests(queue, dead=True))
        raws.sort(key=lambda raw: raw.enqueued_time_utc)
        found: dict[str, DeadLetterEntry] = {}
        for raw in raws:
            entry = _dead_entry(raw, place.topic, place.group)
            found.setdefault(entry.message.id, entry)
        return found

    async def count_dead(self, topic: str, group: str) -> int:
        """What the service counts."""
        space, total = self._now(), 0
        with self._translated("count dead letters", topic):
            for queue, _ in self._place(topic, group).queues:
                figures = await space.admin.get_queue_runtime_properties(queue)
                total += figures.dead_letter_message_count or 0
        return total

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send them to the queue of the group again, then complete the dead ones."""
        space, place = self._now(), self._place(topic, group)

        async def again(queue: str, entries: Mapping[str, DeadLetterEntry]) -> None:
            outs = [
                self._out(redriven(entry.message), native_id=uuid4().hex)
                for entry in entries.values()
            ]
            await space.senders.send(queue, outs, is_topic=False)

        with self._translated("redrive", topic):
            return await self._clear_dead(space, place, ids, again)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Complete the dead ones."""

        async def nothing(queue: str, entries: Mapping[str, DeadLetterEntry]) -> None:
            pass

        with self._translated("purge dead letters", topic):
            return await self._clear_dead(self._now(), self._place(topic, group), ids, nothing)

    async def _clear_dead(
        self,
        space: _Space,
        place: _Place,
        ids: Sequence[str] | None,
        before: Callable[[str, Mapping[str, DeadLetterEntry]], Awaitable[None]],
    ) -> int:
        """Take the wanted ones out of the sub-queues; ``before`` hears of each page of them."""
        wanted = set(await self._dead(space, place))
        if ids is not None:
            wanted &= set(ids)
        done: set[str] = set()
        for queue, _ in place.queues:
            if wanted:
                await self._clear_one(space, place, queue, wanted, done, before)
        return len(done)

    async def _clear_one(
        self,
        space: _Space,
        place: _Place,
        queue: str,
        wanted: set[str],
        done: set[str],
        before: Callable[[str, Mapping[str, DeadLetterEntry]], Awaitable[None]],
    ) -> None:
        sub = require_library("azure.servicebus", extra=EXTRA).ServiceBusSubQueue.DEAD_LETTER
        receiver = space.reading.get_queue_receiver(queue, sub_queue=sub)
        ask, others = space.requests(queue, dead=True), list[Any]()
        try:
            while wanted and (raws := await receiver.receive_messages(PAGE, max_wait_time=LOOK)):
                entries = [(raw, _dead_entry(raw, place.topic, place.group)) for raw in raws]
                mine = {
                    entry.message.id: entry
                    for _, entry in entries
                    if entry.message.id in wanted and entry.message.id not in done
                }
                if mine:
                    await before(queue, mine)
                known = wanted | done
                out = [raw.lock_token for raw, entry in entries if entry.message.id in known]
                if out:
                    await ask.settle(COMPLETED, out)
                others += [raw.lock_token for raw, one in entries if one.message.id not in known]
                done.update(mine)
                wanted.difference_update(mine)
        finally:
            with anyio.move_on_after(LOOK, shield=True):
                if others:
                    await ask.settle(ABANDONED, others)
                await receiver.close()

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Look at the queue; what is locked at a member is seen, too."""
        space, found = self._now(), list[Any]()
        with self._translated("peek", topic):
            for queue, _ in self._place(topic, group).queues:
                found += await _peek_all(space.requests(queue), limit)
        found.sort(key=lambda raw: raw.sequence_number)
        return [_message(raw, topic) for raw in found if not _is_scheduled(raw)][:limit]

    async def purge(self, topic: str, group: str) -> int:
        """Take what waits and complete it, cancel what is scheduled."""
        space, place, total = self._now(), self._place(topic, group), 0
        if await self.is_paused(topic, group):
            raise AzureServiceBusQueueError(
                f"group {group} is paused, and Service Bus gives nothing out of its queue",
                topic=topic,
                hint="let the group go on first",
            )
        while deliveries := await self.receive(topic, group, limit=PAGE, wait=EMPTY):
            await self._settle_many(deliveries, COMPLETED, "purge")
            total += len(deliveries)
        with self._translated("purge", topic):
            for queue, _ in place.queues:
                later = [
                    int(raw.sequence_number or 0)
                    for raw in await _peek_all(space.requests(queue))
                    if _is_scheduled(raw)
                ]
                if later:
                    await space.senders.cancel(queue, later)
                total += len(later)
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Disable receiving from the queue, or enable it."""
        status = require_library("azure.servicebus.management", extra=EXTRA).EntityStatus
        space = self._now()
        with self._translated("pause", topic):
            for queue, _ in self._place(topic, group).queues:
                found = await space.admin.get_queue(queue)
                found.status = status.RECEIVE_DISABLED if paused else status.ACTIVE
                await space.admin.update_queue(found)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether receiving is disabled."""
        with self._translated("look at the group", topic):
            found = await self._now().admin.get_queue(self._place(topic, group).queue)
        return str(getattr(found.status, "value", found.status)) == "ReceiveDisabled"

    async def depth(self, topic: str, group: str) -> int:
        """Active ones, which includes locked ones, scheduled retries, and what waits at the topic."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("depth", topic):
            waits = await space.admin.get_topic_runtime_properties(place.entity)
            total = waits.scheduled_message_count or 0
            for queue, _ in place.queues:
                found = await space.admin.get_queue_runtime_properties(queue)
                total += (found.active_message_count or 0) + (found.scheduled_message_count or 0)
        return total

    async def lag(self, topic: str, group: str) -> int:
        """Not declared: the service does not tell locked messages from waiting ones."""
        raise _cannot(Capability.LAG, topic, "depth counts both")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the namespace answers in time."""

        async def ask() -> None:
            space = self._now()
            with self._translated("health check"):
                await space.admin.get_namespace_properties()

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "Azure Service Bus", facts, timeout)

    # Names and errors.

    def _now(self) -> _Space:
        if self._space is None:
            raise NotConnectedError(
                "AzureServiceBusDriver not connected",
                backend=NAME,
                hint="await driver.connect() first",
            )
        return self._space

    def _place(self, topic: str, group: str) -> _Place:
        if is_pattern(topic):
            raise _cannot(Capability.PATTERN, topic, "list the topics")
        return _Place(prefix=self.prefix, topic=topic, group=group, has_keys=self._sessions)

    def _translated(self, what: str, topic: str = "unknown") -> AbstractContextManager[None]:
        """The one place where errors of the client and the service become ours."""
        return translated(_is_foreign, lambda error: self._error(error, what, topic))

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        kind, status = type(error).__name__, getattr(error, "status_code", None)
        text = f"could not {what} on {self.address}: {str(error) or kind}"
        if kind == "ServiceBusQuotaExceededError":
            hint = "consume, or raise the size of the entity"
            return QueueFullError(text, backend=NAME, topic=topic, hint=hint)
        if kind == "MessageSizeExceededError":
            hint = "use the Premium tier, or send a reference to stored content"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        return AzureServiceBusQueueError(text, topic=topic, hint=_hint(kind, status))


def _hint(kind: str, status: int | None) -> str:
    if kind == "ClientAuthenticationError" or "Auth" in kind or status in (401, 403):
        return (
            "check azure_servicebus.connection_str: its key needs the rights Manage, Send, Listen"
        )
    if kind == "ServiceBusServerBusyError" or status in (429, 503):
        return "the service throttles: it is tried again later; more units or Premium take more"
    if "NotFound" in kind or status == 404:
        return "the entity is not there: declare the group, or check azure_servicebus.queue_name"
    if status == 400:
        return "the service refuses this setting; its text says which"
    return "check azure_servicebus.connection_str and that the namespace can be reached"


def _is_foreign(error: Exception) -> bool:
    """Both clients have one base."""
    return isinstance(error, require_library("azure.core.exceptions", extra=EXTRA).AzureError)


# The namespace.


@define(eq=False, kw_only=True)
class _Space:
    """What is open."""

    reading: ServiceBusClient  # gives up at once: the runtime tries again
    asking: ServiceBusClient
    admin: ServiceBusAdministrationClient
    senders: Senders
    max_size: int = SIZES["Standard"]
    inboxes: dict[str, Inbox] = field(factory=dict[str, Inbox])
    covered: dict[str, float] = field(factory=dict[str, float])
    asked: dict[tuple[str, bool], Requests] = field(factory=dict[tuple[str, bool], Requests])

    def requests(self, queue: str, *, dead: bool = False) -> Requests:
        found = self.asked.get((queue, dead))
        if found is None:
            options = {}
            if dead:
                library = require_library("azure.servicebus", extra=EXTRA)
                options["sub_queue"] = library.ServiceBusSubQueue.DEAD_LETTER
            found = self.asked[queue, dead] = Requests(self.asking, queue, **options)
        return found

    async def forget(self, place: _Place) -> None:
        inbox = self.inboxes.pop(place.queue, None)
        if inbox is not None:
            await inbox.close()

    async def close(self) -> None:
        inboxes, self.inboxes = self.inboxes, {}
        asked, self.asked = self.asked, {}
        with anyio.move_on_after(10, shield=True):
            await asyncio.gather(
                *(inbox.close() for inbox in inboxes.values()),
                *(one.close() for one in asked.values()),
                self.senders.close(),
                return_exceptions=True,
            )
            await asyncio.gather(
                self.reading.close(),
                self.asking.close(),
                self.admin.close(),
                return_exceptions=True,
            )


@frozen(kw_only=True)
class _Place:
    """The names of one group on the service."""

    prefix: str
    topic: str
    group: str
    has_keys: bool

    @property
    def entity(self) -> str:
        return f"{self.prefix}.topic.{_short(self.topic)}-{hashed(self.topic)[:16]}"

    @property
    def queue(self) -> str:
        return f"{self.prefix}.group.{self._part}"

    @property
    def keyed(self) -> str | None:
        return f"{self.prefix}.keyed.{self._part}" if self.has_keys else None

    @property
    def queues(self) -> Sequence[tuple[str, bool]]:
        """Each queue, and whether it is the one with sessions."""
        return [(self.queue, False), *([(self.keyed, True)] if self.keyed else [])]

    def subscription(self, is_keyed: bool) -> str:
        return f"{'keyed' if is_keyed else 'group'}-{hashed(self.group)[:32]}"

    @property
    def _part(self) -> str:
        both = hashed(f"{self.topic}\n{self.group}")[:24]
        return f"{_short(self.topic)}.{_short(self.group)}-{both}"


def _administration(connection_str: str) -> Any:
    library = require_library("azure.servicebus.aio.management", extra=EXTRA)
    make = library.ServiceBusAdministrationClient.from_connection_string
    if "usedevelopmentemulator=true" not in connection_str.lower():
        return make(connection_str)
    # The emulator's management speaks plain HTTP, which the client (7.15) does not know.
    transport = require_library("azure.core.pipeline.transport", extra=EXTRA).AioHttpTransport

    class Plain(transport):  # type: ignore[misc, valid-type]  # loaded late
        async def send(self, request: Any, **options: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            # loaded late, so its type is not known
            return await super().send(request, **options)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    return make(connection_str, transport=Plain())


def _size(properties: Any) -> int:
    tier = str(getattr(properties.messaging_sku, "value", properties.messaging_sku))
    if tier not in SIZES:
        raise AzureServiceBusQueueError(
            f"the namespace is of tier {tier}, which has no topics",
            hint="use a namespace of tier Standard or Premium",
        )
    return SIZES[tier]


async def _unless_there(made: Awaitable[Any]) -> bool:
    """Create it; False when it is there already."""
    azure = require_library("azure.core.exceptions", extra=EXTRA)
    return await unless(azure.ResourceExistsError, made)


async def _if_there(asked: Awaitable[Any]) -> bool:
    """Delete it, or look for it; False when it is not there."""
    azure = require_library("azure.core.exceptions", extra=EXTRA)
    return await unless(azure.ResourceNotFoundError, asked)


async def _subscriptions(space: _Space, topic: str) -> AsyncGenerator[str, None]:
    absent = require_library("azure.core.exceptions", extra=EXTRA).ResourceNotFoundError
    try:
        async for found in space.admin.list_subscriptions(topic):
            yield found.name
    except absent:
        return


async def _peek_all(ask: Requests, limit: int | None = None) -> list[Any]:
    found: list[Any] = []
    start = 1
    while (limit is None or len(found) < limit) and (page := await ask.peek(PAGE, start)):
        found += page
        start = int(page[-1].sequence_number or 0) + 1
    return found


# Messages.


def _headers(raw: Any) -> dict[str, Any]:
    """The application's properties, without those of the service."""
    properties: Mapping[str | bytes, Any] = raw.application_properties or {}
    found = {
        name.decode() if isinstance(name, bytes) else str(name): value
        for name, value in properties.items()
    }
    return {name: value for name, value in found.items() if name not in NATIVE}


def _body(raw: Any) -> bytes:
    """The bytes; of a foreign producer that sent a value, its text."""
    kind = str(getattr(raw.body_type, "value", raw.body_type))
    if kind == "data":
        return b"".join(raw.body)
    value = raw.body if kind == "value" else list(raw.body)
    return value if isinstance(value, bytes) else str(value).encode()


def _message(raw: Any, topic: str) -> BusMessage:
    headers = _headers(raw)
    if "ce-id" not in headers:
        for name, value in ((CONTENT_TYPE, raw.content_type), (CORRELATION_ID, raw.correlation_id)):
            if value:
                headers.setdefault(name, value)
    return from_headers(headers, _body(raw), topic=topic, fallback_id=_native_id(raw))


def _native_id(raw: Any) -> str:
    return str(raw.message_id or raw.sequence_number)


def _dead_entry(raw: Any, topic: str, group: str) -> DeadLetterEntry:
    """A dead letter, also one that the service made."""
    headers = _headers(raw)
    if "dead-reason" in headers:
        return from_dead_headers(headers, _body(raw), topic=topic, fallback_id=_native_id(raw))
    reason, message = str(raw.dead_letter_reason or ""), _message(raw, topic)
    return DeadLetterEntry(
        message=message,
        error=str(raw.dead_letter_error_description or reason),
        failed_at=raw.enqueued_time_utc or datetime.now(UTC),
        retry_count=message.retry_count,
        reason=_REASONS.get(reason, DeadLetterReason.REJECTED),
        attempts=message.retry_count,
        group=group,
    )


_REASONS: Final = {
    "TTLExpiredException": DeadLetterReason.EXPIRED,
    "MaxDeliveryCountExceeded": DeadLetterReason.POISON,
}


def _is_scheduled(raw: Any) -> bool:
    return str(getattr(raw.state, "name", raw.state)) == "SCHEDULED"


def _cannot(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"Service Bus has no {wanted.value}", backend=NAME, topic=topic, hint=instead
    )


def _metadata(**facts: Any) -> str:
    text = json.dumps(facts, ensure_ascii=False)
    if len(text) > LONGEST_METADATA:
        raise AzureServiceBusQueueError(
            f"the names have {len(text)} characters, and Service Bus keeps {LONGEST_METADATA}",
            topic=str(facts.get("topic", "unknown"))[:100],
            hint="use shorter names of topics and groups",
        )
    return text


def _short(name: str) -> str:
    """A part of a name for people; the hash beside it makes it the only one."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip(".-")[:60] or "x"


def _fit(text: str) -> str:
    return text if len(text) <= LONGEST_ID else hashed(text)


def _bytes(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(text.encode("utf-8", "replace")) for name, text in headers.items())


def _address(connection_str: str) -> str:
    """The endpoint, without the key."""
    found = re.search(r"Endpoint=sb://([^/;]+)", connection_str, re.IGNORECASE)
    return found[1] if found else "Service Bus"


class AzureServiceBusQueue(BusQueue):
    """The bus on Service Bus, usable without a container."""

    def __init__(
        self,
        connection_str: str = "",
        queue_name: str = "",
        max_message_count: int = 10,
        max_wait_time: float = 5.0,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        options: BusOptions | None = None,
        **settings: Any,
    ) -> None:
        """``queue_name`` begins the names of its entities; ``settings``: those of the driver.

        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        driver = AzureServiceBusDriver(
            connection_str,
            prefix=queue_name or DEFAULT_PREFIX,
            max_message_count=max_message_count,
            max_wait_time=max_wait_time,
            **settings,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> AzureServiceBusDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    own = entry.azure_servicebus or AzureServiceBusDriverConfig()
    return AzureServiceBusDriver(
        own.connection_str or "",
        prefix=own.queue_name or DEFAULT_PREFIX,
        management_str=own.management_str,
        sessions=own.sessions,
        max_message_count=own.max_message_count,
        max_wait_time=own.max_wait_time,
        timeout=own.timeout,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )
