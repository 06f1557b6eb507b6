"""The bus inside one process: all promises of a broker, nothing on disk.

Leases, groups, delays, priority, ordering, fairness, dead letters and limits work as on the real
brokers, so that a test on memory means something. Times come from ``lexigram.clock``: a test
installs a ``FakeClock`` and lets hours pass.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, cast

from attrs import evolve

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    NotConnectedError,
    QueueFullError,
)
from lexigram.queue.backends.memory._broker import NAME, MemoryBroker
from lexigram.queue.backends.memory._group import Slot, is_special
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.constants import DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import redriven

CAPABILITIES: Final = frozenset(Capability) - {
    Capability.DURABLE,
    Capability.TTL,  # the runtime sets expired messages aside, by policy
}


class MemoryDriver:
    """One member of the process on a ``MemoryBroker``; a new broker of its own without one.

    Takes payloads of any kind: bytes, or objects that publisher and consumers may share.
    """

    name = NAME
    capabilities = CAPABILITIES
    max_message_bytes: int | None = None

    def __init__(
        self,
        broker: MemoryBroker | None = None,
        *,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        publish_timeout: float = 30.0,
    ) -> None:
        self.broker = broker or MemoryBroker()
        self.visibility_timeout: float | None = visibility_timeout
        self.lease = visibility_timeout
        self._publish_timeout = publish_timeout
        self._connected = False

    async def connect(self) -> None:
        """Nothing to reach."""
        self._connected = True

    async def close(self) -> None:
        """Give back what this member holds; the messages stay with the broker."""
        self._connected = False
        for group in self.broker.groups.values():
            mine = [slot for slot in group.leased.values() if slot.lease.owner is self]
            group.give_back(mine)
            group.wake_all()

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Add the group. A temporary one is dropped with the process, as all are."""
        self._check()
        self.broker.declare(topic, group)

    async def drop(self, topic: str, group: str) -> None:
        """Forget the group."""
        self._check()
        self.broker.drop(topic, group)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All groups of the broker."""
        self._check()
        return list(self.broker.groups)

    def publish_nowait(self, message: BusMessage) -> bool:
        """Take the message now; False when a group of the topic has no room for it.

        The door without a wait that the publisher of the runtime uses for a driver in the same
        process.
        """
        broker = self.broker
        if not self._connected:
            self._check()
        topic = broker.topics.get(message.topic) or broker.topic(message.topic)
        limit = broker.max_backlog
        if not topic.groups:
            if len(topic.backlog) >= limit:
                raise self._full(message.topic, "no group")
            if not (broker.dedup_window and broker.is_double(message)):
                topic.backlog.append(message)
            return True
        for group in topic.groups:
            if group.count >= limit:
                return False
        if broker.dedup_window and broker.is_double(message):
            return True
        if is_special(message):
            for group in topic.groups:
                group.add(message)
        else:
            for group in topic.groups:
                group.add_plain(message)
        return True

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Take the messages in order; waits for room up to ``publish_timeout`` seconds."""
        left = deque(messages)
        while left:
            try:
                while left and self.publish_nowait(left[0]):
                    left.popleft()
                if left:
                    await self._wait_for_room(left[0].topic)
            except QueueFullError as error:
                error.details["unconfirmed"] = [message.id for message in left]
                raise

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Hand out what is ready, or what becomes ready in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            self._check()
            found = self.broker.group(topic, group)
            taken = found.take(limit, self)
            left = until - loop.time()
            if taken or left <= 0:
                return taken
            await found.wait(min(left, found.next_change()))

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Forget the messages."""
        self._check()
        for slot in cast("Sequence[Slot]", deliveries):
            home = slot.home
            if home.leased.pop(slot.receipt, None) is not None:
                home.count -= 1
                if slot.key is not None:
                    home.pass_on(slot.key)
        if self.broker.crowd:
            self.broker.make_room()

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Put the message, or the one that replaces it, back for later."""
        self._check()
        assert isinstance(delivery, Slot)
        delivery.home.retry(delivery, message or delivery.message, delay)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Put the messages back where they were taken from."""
        self._check()
        for slot in reversed(deliveries):
            assert isinstance(slot, Slot)
            slot.home.give_back((slot,), uncounted=1)

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Move the end of the leases that still hold."""
        self._check()
        until = self.broker.now() + seconds
        lost: list[Delivery] = []
        for slot in deliveries:
            assert isinstance(slot, Slot)
            if not slot.home.extend(slot, until):
                lost.append(slot)
        return lost

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count in the message itself."""
        self._check()
        assert isinstance(delivery, Slot)
        return delivery.home.mark_begun(delivery)

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Keep the entry and forget the message, in one step."""
        self._check()
        assert isinstance(delivery, Slot)
        delivery.home.bury(delivery, entry)
        if self.broker.crowd:
            self.broker.make_room()

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Entries of the group, oldest first."""
        dead = self.broker.group(topic, group).dead
        return list(islice(dead.values(), offset, offset + limit))

    async def count_dead(self, topic: str, group: str) -> int:
        """Entries of the group."""
        return len(self.broker.group(topic, group).dead)

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Bring entries back; they may exceed the limit of the backlog, they were there before."""
        found = self.broker.group(topic, group)
        entries = found.take_dead(ids)
        for entry in entries:
            found.add(redriven(entry.message))
        return len(entries)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Forget entries."""
        return len(self.broker.group(topic, group).take_dead(ids))

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """What would be handed out next."""
        found = self.broker.group(topic, group)
        return list(islice(found.waiting(), limit))

    async def purge(self, topic: str, group: str) -> int:
        """Forget what waits, delayed messages included."""
        dropped = self.broker.group(topic, group).purge()
        self.broker.make_room()
        return dropped

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Hold the group back or let it go on, at once."""
        self.broker.group(topic, group).set_paused(paused)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether the group is held back."""
        return self.broker.group(topic, group).paused

    async def depth(self, topic: str, group: str) -> int:
        """All messages of the group."""
        return self.broker.group(topic, group).count

    async def lag(self, topic: str, group: str) -> int:
        """Those that could be handed out now, if the group were not paused."""
        return self.broker.group(topic, group).ready_count()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while connected."""
        if not self._connected:
            return HealthCheckResult(
                component="queue", status=HealthStatus.UNHEALTHY, error="not connected"
            )
        return HealthCheckResult(component="queue", message="In-memory queue OK")

    def _check(self) -> None:
        if not self._connected:
            raise NotConnectedError(
                "the in-memory queue is not connected",
                backend=NAME,
                hint="await connect() before use; after close() nothing is accepted",
            )

    async def _wait_for_room(self, topic: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broker.crowd.append(waiter)
        try:
            async with asyncio.timeout(self._publish_timeout):
                await waiter
        except TimeoutError:
            crowded = self.broker.topic(topic).groups
            slow = max(crowded, key=lambda group: group.count, default=None)
            raise self._full(topic, f"group {slow.name!r}" if slow else "no group") from None
        finally:
            if not waiter.done():
                self.broker.crowd.remove(waiter)

    def _full(self, topic: str, where: str) -> QueueFullError:
        return QueueFullError(
            f"topic {topic!r} holds {self.broker.max_backlog} messages for {where}",
            backend=NAME,
            topic=topic,
            details={"max_backlog": self.broker.max_backlog},
            hint="start a consumer, make it faster, or raise max_backlog",
        )


class InMemoryQueue(BusQueue):
    """The bus in this process, usable without a container: ``await InMemoryQueue().connect()``."""

    def __init__(
        self,
        max_concurrency: int | None = None,
        *,
        broker: MemoryBroker | None = None,
        options: BusOptions | None = None,
    ) -> None:
        """``max_concurrency``: handlers of one consumer at a time; None: the default, 4."""
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        chosen = options or BusOptions()
        if max_concurrency is not None:
            chosen = evolve(chosen, concurrency=max_concurrency)
        super().__init__(MemoryDriver(broker), options=chosen)


def build(entry: NamedQueueConfig, services: Services) -> MemoryDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    broker = MemoryBroker(
        max_backlog=entry.max_backlog,
        max_dead_letters=entry.memory.max_dead_letters,
        dedup_window=entry.dedup_window,
    )
    return MemoryDriver(
        broker,
        visibility_timeout=entry.visibility_timeout,
        publish_timeout=entry.memory.publish_timeout,
    )
