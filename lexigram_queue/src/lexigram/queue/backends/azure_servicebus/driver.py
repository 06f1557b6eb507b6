"""The bus on Azure Service Bus, tiers Standard and Premium.

A topic is a topic there, and a group a subscription that forwards to a queue of the group's own.
So what concerns one group (a retry, a redriven message) is sent to its queue only,
and its statistics are those of the queue.

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
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import anyio

from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
)
from lexigram.queue.backends.azure_servicebus._dead_letters import (
    clear_dead_letters,
    read_dead_letters,
)
from lexigram.queue.backends.azure_servicebus._errors import (
    NAME,
    cannot_error,
    hint_for,
    is_foreign,
)
from lexigram.queue.backends.azure_servicebus._links import (
    ABANDONED,
    COMPLETED,
    DEAD,
    EXTRA,
    Held,
    Inbox,
    renew_keyed,
    settle_keyed,
)
from lexigram.queue.backends.azure_servicebus._names import Place
from lexigram.queue.backends.azure_servicebus._publisher import HEADERS, Publisher
from lexigram.queue.backends.azure_servicebus._space import (
    PAGE,
    Space,
    if_there,
    open_space,
    peek_all,
    size_of_tier,
)
from lexigram.queue.backends.azure_servicebus._topology import EMPTY, Topology
from lexigram.queue.backends.azure_servicebus._wire import (
    encode,
    headers_of,
    is_scheduled,
    read_message,
)
from lexigram.queue.backends.clouds import CloudDriver, health_of, json_object
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import AzureServiceBusDriverConfig, NamedQueueConfig, override
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import AzureServiceBusQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import dead_headers, redriven
from lexigram.queue.runtime.topics import is_pattern

DEFAULT_PREFIX: Final = "lexigram"

# Not PRIORITY and FAIRNESS: a queue hands out in its order. Not PATTERN: no subscription covers
# topics that come later. Not LAG: the service counts locked messages as active ones.
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.PATTERN,
    Capability.LAG,
    Capability.ORDERING,
    Capability.BEGUN_MARK,
}

LONGEST_LOCK: Final = 300.0  # seconds, of the service
DEDUP_WINDOW: Final = (20.0, 7 * 24 * 3600.0)  # seconds, of the service


class AzureServiceBusDriver(CloudDriver[Space, Place]):
    """One member on a namespace; its entities begin with ``queue_name``."""

    name = NAME

    def __init__(
        self,
        connection_str: str | None = None,
        *,
        config: AzureServiceBusDriverConfig | None = None,
        queue_name: str | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        """``connection_str`` and ``queue_name`` come before those of ``config``, which has all other
        settings.
        """
        super().__init__()
        self._config = config = override(
            config or AzureServiceBusDriverConfig(),
            connection_str=connection_str,
            queue_name=queue_name,
        )
        prefix, sessions = config.queue_name or DEFAULT_PREFIX, config.sessions
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", prefix):
            text = "queue_name must be at most 40 characters out of a-z, 0-9, dots and dashes"
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
        self.address = address_of(config.connection_str or "")
        self._sessions, self._lease = sessions, visibility_timeout
        self._topology = Topology(
            sessions=sessions,
            lease=visibility_timeout,
            dedup_window=dedup_window,
            max_backlog=max_backlog,
        )
        self._publisher = Publisher(
            self._topology,
            sessions=sessions,
            max_backlog=max_backlog,
            place=self._place,
            translate_errors=self._translate_errors,
        )

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
                with self._translate_errors("connect"):
                    async with asyncio.timeout(self._config.timeout):
                        space.max_size = size_of_tier(await space.admin.get_namespace_properties())
            except BaseException:
                self._space = None
                await space.close()
                raise
            self._space = space

    def _open(self) -> Space:
        with self._translate_errors("connect"):
            return open_space(self._config)

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topic, queue and subscription exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("declare", topic):
            await self._topology.declare(space, place, temporary=temporary)

    async def drop(self, topic: str, group: str) -> None:
        """Delete the queue and the subscription; a topic left without one gets its keeper first."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("drop", topic):
            await self._topology.drop(space, place)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All queues of this prefix that say which group they are of."""
        space = self._now()
        found: list[tuple[str, str]] = []
        with self._translate_errors("list groups"):
            async for queue in space.admin.list_queues():
                if queue.name.startswith(f"{self.prefix}.group."):
                    match json_object(queue.user_metadata):
                        case {"topic": str() as topic, "group": str() as group}:
                            found.append((topic, group))
                        case _:
                            pass
        return found

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send by topic, in as few batches as fit."""
        await self._publisher.publish_many(self._now(), messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what has come, or wait for it."""
        space, place = self._now(), self._place(topic, group)
        inbox = space.inboxes.get(place.queue)
        with self._translate_errors("receive", topic):
            if inbox is None:
                if not await if_there(space.admin.get_queue(place.queue)):
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
                message=read_message(one.raw, topic),
                topic=topic,
                group=group,
                receipt=one,
                delivery_count=(one.raw.delivery_count or 0) + 1,
            )
            for one in held
        ]

    def _inbox(self, space: Space, place: Place) -> Inbox:
        return Inbox(
            space.reading,
            place.queue,
            place.keyed,
            lease=self._lease,
            credit=self._config.max_message_count,
            session_wait=self._config.max_wait_time,
        )

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Complete by lock token, one request for a queue."""
        await self._settle_many(deliveries, COMPLETED, "acknowledge")

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Abandon: they come again at once."""
        await self._settle_many(deliveries, ABANDONED, "release")

    async def _settle_many(self, deliveries: Sequence[Delivery], status: str, what: str) -> None:
        for queue, held in self._ours(deliveries).items():
            plain = [one for one in held if not one.is_keyed]
            with self._translate_errors(what, deliveries[0].topic):
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
            with self._translate_errors("extend", deliveries[0].topic):
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
        with self._translate_errors("nack", delivery.topic):
            if not await self._renew(held.queue, [held]):
                held.finish()
                return
            # Another native id: the queue has no duplicate detection, but users may add it.
            out = encode(
                message or delivery.message,
                sessions=self._sessions,
                delay=delay,
                native_id=uuid4().hex,
            )
            await space.senders.send(held.queue, [out], is_topic=False)
        await self._settle_many([delivery], COMPLETED, "nack")

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Move it to the dead-letter sub-queue, with the entry as its properties: one step."""
        held: Held = delivery.receipt
        if not self._ours([delivery]):
            return
        headers: dict[str, Any] = dict(dead_headers(entry))
        for name in headers_of(held.raw):  # properties can be changed, not removed
            if name.startswith("ce-lex"):
                headers.setdefault(name, "")
        details = {
            "deadletter-reason": entry.reason.value,
            "deadletter-description": entry.error[:1000],
            "properties-to-modify": headers,
        }
        with self._translate_errors("dead letter", delivery.topic):
            if held.is_keyed:
                await settle_keyed(held, DEAD, details)
            else:
                await self._now().requests(held.queue).settle(DEAD, [held.token], details)
        held.finish()

    async def count_dead(self, topic: str, group: str) -> int:
        """What the service counts."""
        space, total = self._now(), 0
        with self._translate_errors("count dead letters", topic):
            for queue, _ in self._place(topic, group).queues:
                properties = await space.admin.get_queue_runtime_properties(queue)
                total += properties.dead_letter_message_count or 0
        return total

    async def _read_dead(self, space: Space, place: Place) -> Sequence[DeadLetterEntry]:
        return list((await read_dead_letters(space, place)).values())

    async def _clear_dead(
        self, space: Space, place: Place, ids: Sequence[str] | None, *, again: bool
    ) -> int:
        async def send_again(queue: str, entries: Mapping[str, DeadLetterEntry]) -> None:
            if again:
                outs = [
                    encode(redriven(entry.message), sessions=self._sessions, native_id=uuid4().hex)
                    for entry in entries.values()
                ]
                await space.senders.send(queue, outs, is_topic=False)

        return await clear_dead_letters(space, place, ids, send_again)

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Look at the queue; what is locked at a member is seen, too."""
        space, found = self._now(), list[Any]()
        with self._translate_errors("peek", topic):
            for queue, _ in self._place(topic, group).queues:
                found += await peek_all(space.requests(queue), limit)
        found.sort(key=lambda raw: raw.sequence_number)
        return [read_message(raw, topic) for raw in found if not is_scheduled(raw)][:limit]

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
        with self._translate_errors("purge", topic):
            for queue, _ in place.queues:
                later = [
                    int(raw.sequence_number or 0)
                    for raw in await peek_all(space.requests(queue))
                    if is_scheduled(raw)
                ]
                if later:
                    await space.senders.cancel(queue, later)
                total += len(later)
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Disable receiving from the queue, or enable it."""
        status = require_library("azure.servicebus.management", extra=EXTRA).EntityStatus
        space = self._now()
        with self._translate_errors("pause", topic):
            for queue, _ in self._place(topic, group).queues:
                found = await space.admin.get_queue(queue)
                found.status = status.RECEIVE_DISABLED if paused else status.ACTIVE
                await space.admin.update_queue(found)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether receiving is disabled."""
        with self._translate_errors("look at the group", topic):
            found = await self._now().admin.get_queue(self._place(topic, group).queue)
        return str(getattr(found.status, "value", found.status)) == "ReceiveDisabled"

    async def depth(self, topic: str, group: str) -> int:
        """Active ones, which includes locked ones, scheduled retries, and what waits at the topic."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("depth", topic):
            waits = await space.admin.get_topic_runtime_properties(place.entity)
            total = waits.scheduled_message_count or 0
            for queue, _ in place.queues:
                found = await space.admin.get_queue_runtime_properties(queue)
                total += (found.active_message_count or 0) + (found.scheduled_message_count or 0)
        return total

    async def lag(self, topic: str, group: str) -> int:
        """Not declared: the service does not tell locked messages from waiting ones."""
        raise cannot_error(Capability.LAG, topic, "depth counts both")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the namespace answers in time."""

        async def ask() -> None:
            space = self._now()
            with self._translate_errors("health check"):
                await space.admin.get_namespace_properties()

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "Azure Service Bus", facts, timeout)

    # Names and errors.

    def _place(self, topic: str, group: str) -> Place:
        if is_pattern(topic):
            raise cannot_error(Capability.PATTERN, topic, "list the topics")
        return Place(prefix=self.prefix, topic=topic, group=group, has_keys=self._sessions)

    def _is_foreign(self, error: Exception) -> bool:
        return is_foreign(error)

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        kind, status = type(error).__name__, getattr(error, "status_code", None)
        text = f"could not {what} on {self.address}: {str(error) or kind}"
        if kind == "ServiceBusQuotaExceededError":
            hint = "consume, or raise the size of the entity"
            return QueueFullError(text, backend=NAME, topic=topic, hint=hint)
        if kind == "MessageSizeExceededError":
            hint = "use the Premium tier, or send a reference to stored content"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        return AzureServiceBusQueueError(text, topic=topic, hint=hint_for(kind, status))


def address_of(connection_str: str) -> str:
    """The endpoint, without the key."""
    found = re.search(r"Endpoint=sb://([^/;]+)", connection_str, re.IGNORECASE)
    return found[1] if found else "Service Bus"


class AzureServiceBusQueue(BusQueue):
    """The bus on Service Bus, usable without a container."""

    def __init__(
        self,
        connection_str: str | None = None,
        queue_name: str | None = None,
        max_message_count: int | None = None,
        max_wait_time: float | None = None,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        config: AzureServiceBusDriverConfig | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        options: BusOptions | None = None,
    ) -> None:
        """``queue_name`` begins the names of its entities.

        ``config``: all settings; those that are given by name come before them.
        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        config = override(
            config or AzureServiceBusDriverConfig(),
            max_message_count=max_message_count,
            max_wait_time=max_wait_time,
        )
        driver = AzureServiceBusDriver(
            connection_str,
            config=config,
            queue_name=queue_name,
            visibility_timeout=visibility_timeout,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> AzureServiceBusDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return AzureServiceBusDriver(
        config=entry.azure_servicebus,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )
