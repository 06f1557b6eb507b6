"""The bus on RabbitMQ: one durable queue per group, persistent messages, publisher confirms.

What is declared for exchange ``lexigram``, topic ``orders`` and group ``billing``:

- ``lexigram``: a durable topic exchange; the routing key is the topic.
- ``lexigram/orders/billing``: the queue of the group, bound to the exchange.
- ``lexigram/orders/billing/dead``: its dead letters, also those the broker itself makes.
- ``lexigram/orders/billing/begun``: a mark for each time the handler of a message that came back was
  begun; what settles the message takes its marks out. Declared when needed, expires when not.
- ``lexigram/orders/billing/retry/<ms>``: steps of its ladder. What is tried again later waits in
  the step of its delay, rounded up to a quarter of a second times a power of two, and returns to
  the queue by itself: all that wait in one step wait equally long, so nobody waits behind a
  longer delay. Steps are declared when needed and expire when not.
- ``lexigram/orders/billing/dead/lock`` and ``…/begun/lock``: with quorum queues, of the connection
  that reads these at the moment; gone when it has read.
- ``lexigram//later/<topic>/<ms>``: the same for messages that are published for later.
- ``lexigram//backlog/<topic>``: what was sent to a topic that has no group yet.
- ``lexigram//registry``: which groups there are; AMQP cannot list them. Its exclusive
  consumer may change groups, topics and backlogs: it is the lock of the exchange, too.
- ``lexigram//control``: a fanout exchange that notifies all members of paused groups.

The broker keeps a delivery until it is settled or its channel is gone: there is no lease to
extend. It calls a consumer dead after ``consumer_timeout`` (a setting of the server, 30 minutes).

The protocol is spoken by aiormq, which is the lower half of aio-pika.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from attrs import evolve

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    Delivery,
    QueueError,
)
from lexigram.queue.backends.rabbitmq._connection import Connection, Contents, make_undeclared_error
from lexigram.queue.backends.rabbitmq._member import Member, Receipt
from lexigram.queue.backends.rabbitmq._names import Names
from lexigram.queue.backends.rabbitmq._publisher import Publisher
from lexigram.queue.backends.rabbitmq._receiver import Receiver
from lexigram.queue.backends.rabbitmq._sender import Sender
from lexigram.queue.backends.rabbitmq._topology import STEPS, Topology, batches
from lexigram.queue.backends.rabbitmq._wire import (
    DUE,
    NAME,
    Out,
    mark_of,
    note_deliveries,
    outgoing,
    parse_json,
    properties_class,
    read_dead_letter,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, RabbitMQDriverConfig, override
from lexigram.queue.constants import DEFAULT_CONSUMER_PREFETCH, DEFAULT_MAX_BACKLOG
from lexigram.queue.errors import RabbitMQQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import dead_headers, redriven

DEFAULT_URL: Final = "amqp://guest:guest@localhost/"

CAPABILITIES: Final = frozenset(Capability) - {
    Capability.TTL,  # the runtime sets expired messages aside, by policy
    Capability.ORDERING,
    Capability.FAIRNESS,
    Capability.DEDUP,
    Capability.LEASE_EXTEND,  # a delivery is kept until it is settled
    Capability.PEEK,  # AMQP looks by taking, and a message taken too often counts as poison
}
QUORUM_CAPABILITIES: Final = CAPABILITIES - {
    Capability.PRIORITY,  # not before RabbitMQ 4.3
    Capability.BACKLOG,  # a quorum queue keeps its limit only roughly
}

MARKED_FOR: Final = 24 * 3600 * 1000  # milliseconds a mark is kept, should nobody take it out

_log = logging.getLogger(__name__)


class RabbitMQDriver:
    """One member on a RabbitMQ broker; several share what one exchange holds."""

    name = NAME
    visibility_timeout: float | None = None  # until settled, or the channel is gone

    def __init__(
        self,
        url: str | None = None,
        *,
        config: RabbitMQDriverConfig | None = None,
        exchange: str | None = None,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
    ) -> None:
        """``url`` and ``exchange`` come before those of ``config``, which has all other settings."""
        config = override(config or RabbitMQDriverConfig(), url=url, exchange=exchange)
        is_quorum = config.queue_type == "quorum"
        self.capabilities = QUORUM_CAPABILITIES if is_quorum else CAPABILITIES
        self._names = names = Names(config.exchange, is_quorum=is_quorum)
        self._connection = Connection(
            config.url or DEFAULT_URL,
            names,
            timeout=config.timeout,
            heartbeat=config.heartbeat,
            hear=self._hear,
            lost=self._lose_channels,
        )
        self._sender = Sender(self._connection)
        self._topology = Topology(self._connection, self._sender, names, max_backlog=max_backlog)
        self._receiver = Receiver(
            self._connection, self._sender, self._topology, names, config.prefetch_count
        )
        self._publisher = Publisher(
            self._connection, self._sender, self._topology, names, max_backlog=max_backlog
        )

    def __str__(self) -> str:
        """Where it connects to, without user and password."""
        return str(self._connection)

    __repr__ = __str__

    @property
    def max_message_bytes(self) -> int | None:
        """What the broker takes; None before it is connected."""
        return self._connection.max_message_bytes

    # Life.

    async def connect(self) -> None:
        """Open the connection, or what of it is closed; asks the broker whether it is there."""
        async with self._connection.changing:
            if await self._connection.answers():
                return
            await self._connection.close()
            await self._receiver.open()
            await self._connection.open()

    async def close(self) -> None:
        """Give back what was sent ahead, and disconnect."""
        async with self._connection.changing:
            await self._receiver.close()
            await self._connection.close()
            self._receiver.members.clear()

    def _lose_channels(self) -> None:
        self._receiver.lose_channels()

    async def _hear(self, news: Any) -> None:
        match parse_json(news.body):
            case [str() as topic, str() as group, bool() as paused]:
                self._receiver.set_paused(topic, group, paused)
            case _:
                _log.warning("a message to exchange %s is not ours", self._names.control)

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Declare the queue of the group, its dead letters and its binding."""
        paused = await self._topology.declare(topic, group, temporary=temporary)
        self._receiver.member(topic, group).paused = paused

    async def drop(self, topic: str, group: str) -> None:
        """Delete the queue, its ladder and its dead letters."""
        await self._topology.drop(topic, group)
        await self._receiver.drop(topic, group)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All groups in the registry; temporary ones that are gone leave it."""
        return await self._topology.groups()

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Publish to the exchange, persistent and mandatory; returns with the last confirm."""
        await self._publisher.publish_many(messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what the broker sent to the consumer of this member, which lives while watched."""
        return await self._receiver.receive(topic, group, limit=limit, wait=wait)

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; returns when the broker has seen it."""
        homes: dict[Member, list[Receipt]] = {}
        for delivery in deliveries:
            receipt: Receipt = delivery.receipt
            if not receipt.settled:
                homes.setdefault(receipt.member, []).append(receipt)
        for member, receipts in homes.items():
            await member.ack(receipts)
        await self._take_marks_out(deliveries)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Send a copy to the queue of the group, or to the step of the delay; then acknowledge."""
        receipt: Receipt = delivery.receipt
        if receipt.is_void:
            return
        queue, due = receipt.member.queue, None
        if delay > 0:
            wanted = delay * 1000
            step = next((one for one in STEPS if one >= wanted), STEPS[-1])
            due = time.time() + delay if step < wanted else None
            queue = await self._topology.step(queue, step, "", queue)
        out = outgoing("", queue, message or delivery.message)
        if due is not None:
            out.properties.headers[DUE] = repr(due)
        await self._confirm_and_settle([out], [receipt])
        await self._take_marks_out([delivery])

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Send copies to the queue; then acknowledge."""
        live = [delivery for delivery in deliveries if not delivery.receipt.is_void]
        outs: list[Out] = []
        for delivery in live:
            out = outgoing("", delivery.receipt.member.queue, delivery.message)
            note_deliveries(out.properties, delivery.delivery_count - 1)
            outs.append(out)
        await self._confirm_and_settle(outs, [delivery.receipt for delivery in live])

    async def _confirm_and_settle(self, outs: Sequence[Out], receipts: Sequence[Receipt]) -> None:
        """Confirm copies, then acknowledge: a crash between the two doubles, never loses."""
        for receipt in receipts:
            receipt.settled = True
        try:
            results = await self._sender.send(outs)
            for at, result in enumerate(results):
                if isinstance(result, self._connection.client.exceptions.PublishError):
                    # A step was deleted with its group or by hand; the queue is still there.
                    self._topology.forget_step(outs[at].key)
                if result is not None:
                    raise self._connection.error(f"publish to {outs[at].key}", result)
        except BaseException:
            for receipt in receipts:
                receipt.settled = False
            raise
        for receipt in receipts:
            receipt.settled = False
        for receipt in receipts:
            await receipt.member.ack([receipt])

    async def extend_many(
        self,
        deliveries: Sequence[Delivery],
        seconds: float,
    ) -> Sequence[Delivery]:
        """Ask the broker: a delivery is kept until it is settled or its channel is gone."""
        receipts: list[Receipt] = [one.receipt for one in deliveries]
        members = {one.channel: one.member for one in receipts if not one.is_void}
        for channel, member in members.items():
            with self._connection.translate_errors(f"ask for {member.queue}", member.topic):
                async with asyncio.timeout(self._connection.timeout):
                    with anyio.CancelScope(shield=True):  # as in _want
                        await channel.queue_declare(member.queue, passive=True)
        return [delivery for delivery in deliveries if delivery.receipt.is_void]

    async def mark_begun(self, delivery: Delivery) -> int:
        """Send a mark to the queue of the marks, and count those of this message."""
        receipt: Receipt = delivery.receipt
        if receipt.is_void:
            return 0
        name, mark = self._names.attempts(receipt.member.queue), mark_of(delivery)
        async with self._connection.scratch(f"declare {name}", delivery.topic) as channel:
            arguments = {**self._topology.kind(), "x-expires": MARKED_FOR}
            await channel.queue_declare(name, durable=True, arguments=arguments)
        properties = properties_class()(delivery_mode=2, expiration=str(MARKED_FOR))
        receipt.is_marked = True
        await self._sender.send_confirmed([Out("", name, properties, mark)], delivery.topic)
        async with self._connection.contents(name, delivery.topic) as contents:
            return sum(raw.body == mark for raw in await contents.read())

    async def _take_marks_out(self, settled: Sequence[Delivery]) -> None:
        marked = [one for one in settled if one.receipt.is_marked]
        for member in {one.receipt.member for one in marked}:
            mine = [one for one in marked if one.receipt.member is member]
            gone, name = set(map(mark_of, mine)), self._names.attempts(member.queue)
            if await self._connection.count(name) is not None:  # else the group was dropped
                async with self._connection.contents(name, member.topic) as contents:
                    await contents.remove(
                        [raw for raw in await contents.read() if raw.body in gone]
                    )
            for delivery in mine:
                delivery.receipt.is_marked = False

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Send the entry to the queue of the dead; then acknowledge."""
        receipt: Receipt = delivery.receipt
        if receipt.is_void:
            return
        dead = self._names.dead(receipt.member.queue)
        out = outgoing("", dead, entry.message, dead_headers(entry))
        await self._confirm_and_settle([out], [receipt])
        await self._take_marks_out([delivery])

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Read the queue of the dead, and let it have its content back."""
        wanted = offset + limit
        async with self._dead(topic, group, prefetch=wanted) as (contents, read):
            entries = _unique(read(one) for one in await contents.read(wanted))
            is_short = len(entries) < wanted <= len(contents.inbox)
        if is_short:  # a crash left doubles: look at all
            async with self._dead(topic, group) as (contents, read):
                entries = _unique(read(one) for one in await contents.read())
        return list(entries.values())[offset:wanted]

    async def count_dead(self, topic: str, group: str) -> int:
        """The length of the dead-letter queue, without what is being read at this moment."""
        count = await self._connection.count(self._names.dead(self._names.queue(topic, group)))
        if count is None:
            raise make_undeclared_error(topic, group)
        return count

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send entries to the queue of their group; then acknowledge them."""
        queue = self._names.queue(topic, group)
        wanted = None if ids is None else set(ids)
        sent: set[str] = set()
        async with self._dead(topic, group) as (contents, read):
            for batch in batches(await contents.read(), 100):
                outs: list[Out] = []
                done: list[Any] = []
                for raw in batch:
                    message = read(raw).message
                    if wanted is not None and message.id not in wanted:
                        continue
                    done.append(raw)
                    if message.id not in sent:
                        outs.append(outgoing("", queue, redriven(message)))
                        sent.add(message.id)
                await self._sender.send_confirmed(outs, topic)
                await contents.remove(done)
        return len(sent)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Acknowledge entries."""
        wanted = None if ids is None else set(ids)
        gone: set[str] = set()
        async with self._dead(topic, group) as (contents, read):
            for raw in await contents.read():
                identity = read(raw).message.id
                if wanted is None or identity in wanted:
                    await contents.remove([raw])
                    gone.add(identity)
        return len(gone)

    @asynccontextmanager
    async def _dead(
        self, topic: str, group: str, prefetch: int = 0
    ) -> AsyncGenerator[tuple[Contents, Callable[[Any], DeadLetterEntry]]]:
        dead = self._names.dead(self._names.queue(topic, group))

        def read(raw: Any) -> DeadLetterEntry:
            return read_dead_letter(raw, topic, group, self._names.exchange)

        try:
            async with self._connection.contents(dead, topic, prefetch) as contents:
                yield contents, read
        except RabbitMQQueueError as error:
            if self._connection.is_missing(error):
                raise make_undeclared_error(topic, group) from error
            raise

    # Watched and steered.

    async def peek(
        self,
        topic: str,
        group: str,
        *,
        limit: int = 10,
    ) -> Sequence[BusMessage]:
        """Refused: AMQP looks by taking."""
        raise CapabilityError(
            "RabbitMQ cannot show messages without taking them",
            backend=NAME,
            topic=topic,
            hint="read the dead letters with list_dead, or tail the topic with a group of its own",
        )

    async def purge(self, topic: str, group: str) -> int:
        """Purge the queue and its ladder, and drop what was sent ahead to this member."""
        queue = self._names.queue(topic, group)
        async with self._connection.scratch(f"purge {queue}", topic) as channel:
            purged: int = (await channel.queue_purge(queue)).message_count
            for step in STEPS:
                # A step is made again when it is needed.
                name = self._names.step(queue, step)
                self._topology.forget_step(name)
                purged += (await channel.queue_delete(name)).message_count
        member = self._receiver.members.get((topic, group))
        if member is not None:
            ahead = member.pop(len(member.buffer))
            await member.ack([member.receipt(one) for one in ahead])
            purged += len(ahead)
        return purged

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Note it in the registry, and tell all members."""
        async with self._topology.registry(topic) as registry:
            entry = registry.entries.get((topic, group))
            if entry is None:
                raise make_undeclared_error(topic, group)
            await registry.replace(evolve(entry, paused=paused))
        self._receiver.set_paused(topic, group, paused)
        async with self._connection.scratch(f"pause {group}", topic) as channel:
            news = json.dumps([topic, group, paused]).encode()
            await channel.basic_publish(news, exchange=self._names.control)

    async def is_paused(self, topic: str, group: str) -> bool:
        """What the registry says."""
        async with self._topology.registry(topic) as registry:
            entry = registry.entries.get((topic, group))
        return entry is not None and entry.paused

    async def depth(self, topic: str, group: str) -> int:
        """Waiting and delayed, and what this process holds; AMQP reports no other process."""
        queue = self._names.queue(topic, group)
        delayed = 0
        for step in STEPS:
            delayed += await self._connection.count(self._names.step(queue, step)) or 0
        member = self._receiver.members.get((topic, group))
        holding = len(member.held) + len(member.buffer) if member is not None else 0
        return await self._ready(topic, group) + delayed + holding

    async def lag(self, topic: str, group: str) -> int:
        """Waiting, and what was sent ahead to this process."""
        member = self._receiver.members.get((topic, group))
        ahead = len(member.buffer) if member is not None else 0
        return await self._ready(topic, group) + ahead

    async def _ready(self, topic: str, group: str) -> int:
        count = await self._connection.count(self._names.queue(topic, group))
        if count is None:
            raise make_undeclared_error(topic, group)
        return count

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Ask for the exchange."""
        error: str | None = None
        try:
            async with asyncio.timeout(timeout):
                async with self._connection.scratch("ask for its health") as channel:
                    await channel.exchange_declare(self._names.exchange, passive=True)
        except QueueError as failure:
            error = failure.message
        except TimeoutError:
            error = f"no answer within {timeout:g} s"
        return HealthCheckResult(
            component=NAME,
            status=HealthStatus.HEALTHY if error is None else HealthStatus.UNHEALTHY,
            message="RabbitMQ answers" if error is None else None,
            error=error,
            details={"url": str(self), "exchange": self._names.exchange},
        )


def _unique(entries: Iterable[DeadLetterEntry]) -> dict[str, DeadLetterEntry]:
    found: dict[str, DeadLetterEntry] = {}
    for entry in entries:
        found.setdefault(entry.message.id, entry)
    return found


class RabbitMQQueue(BusQueue):
    """The bus on RabbitMQ, usable without a container: ``await RabbitMQQueue(url).connect()``."""

    def __init__(
        self,
        url: str | None = None,
        exchange: str | None = None,
        prefetch_count: int = DEFAULT_CONSUMER_PREFETCH,
        *,
        config: RabbitMQDriverConfig | None = None,
        options: BusOptions | None = None,
    ) -> None:
        """``config``: all settings; those that are given by name come before them.

        ``prefetch_count``: messages a consumer holds, unless ``options`` say it.
        """
        if prefetch_count < 1:
            raise ValueError(f"prefetch_count must be at least 1, not {prefetch_count}")
        super().__init__(
            RabbitMQDriver(url, config=config, exchange=exchange),
            options=options or BusOptions(prefetch=prefetch_count),
        )


def build(entry: NamedQueueConfig, services: Services) -> RabbitMQDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return RabbitMQDriver(config=entry.rabbitmq, max_backlog=entry.max_backlog)
