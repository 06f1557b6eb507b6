"""Operate the bus: inspect, pause and purge groups, peek and tail topics.

The command line, the console and an application's own tools call the same methods.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import anyio
from attrs import frozen

from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    QueueError,
    QueueProtocol,
)
from lexigram.queue.bus import BusQueue
from lexigram.queue.operations.dead_letters import DeadLetters, readable
from lexigram.queue.runtime.payloads import Payloads
from lexigram.queue.runtime.topics import is_pattern

TAIL_GROUP: Final = "lexigram-tail-"  # groups of tails begin so
TAIL_BATCH: Final = 100
TAIL_WAIT: Final = 1.0  # seconds


@frozen(kw_only=True)
class GroupStatistics:
    """Statistics of one group of one topic, read from the broker. None: unsupported by the driver."""

    backend: str
    driver: str
    topic: str
    group: str
    # not handled yet, messages in flight and delayed ones included
    depth: int | None
    # ready to be delivered; in a paused group: ready once it is resumed
    lag: int | None
    dead_letters: int
    is_paused: bool


class BusControl:
    """The backends of an application, for operators.

    An operation that a driver does not support raises CapabilityError before anything is changed.
    A queue of the application that has no driver supports none of them.
    """

    def __init__(
        self,
        backends: Mapping[str, QueueProtocol],
        *,
        primary: str | None = None,
        health: Callable[[float], Awaitable[HealthCheckResult]] | None = None,
    ) -> None:
        self._backends = dict(backends)
        self.primary = primary or next(iter(self._backends), None)
        self._health = health

    @property
    def names(self) -> list[str]:
        """All backends, the primary one first."""
        return sorted(self._backends, key=lambda name: name != self.primary)

    def queue(self, backend: str | None = None) -> BusQueue:
        """The backend of that name, or the primary one."""
        name = backend or self.primary
        if name is None or name not in self._backends:
            known = ", ".join(self.names) or "none"
            raise QueueError(
                f"unknown backend {name!r}" if name else "the bus has no backend",
                backend=name,
                hint=f"configured in queue.backends: {known}",
            )
        found = self._backends[name]
        if not isinstance(found, BusQueue):
            raise CapabilityError(
                f"backend {name} is a {type(found).__name__}, which only publishes and subscribes",
                backend=name,
                hint="use the tools of that queue",
            )
        return found

    def queues(self, backend: str | None = None) -> list[BusQueue]:
        """One backend, or all that have a driver."""
        if backend is not None:
            return [self.queue(backend)]
        return [one for name in self.names if isinstance(one := self._backends[name], BusQueue)]

    def dead_letters(self, backend: str | None = None) -> DeadLetters:
        """The dead letters of a backend."""
        return DeadLetters(self.queue(backend))

    async def health(self, timeout: float = 5.0) -> HealthCheckResult:
        """The health of all backends: that of the worst one."""
        if self._health is None:
            raise QueueError("no health check is configured for these backends")
        return await self._health(timeout)

    # Inspect.

    async def groups(
        self, backend: str | None = None, *, topic: str | None = None
    ) -> list[GroupStatistics]:
        """The statistics of every group, from any process."""
        return [
            one
            for queue in self.queues(backend)
            for one in await collect_statistics(queue)
            if topic in {None, one.topic}
        ]

    async def get_stats(self) -> dict[str, int]:
        """The sums over all groups of all backends."""
        found = await self.groups()
        return {
            "pending": sum(one.depth or 0 for one in found),
            "lag": sum(one.lag or 0 for one in found),
            "processing": sum((one.depth or 0) - (one.lag or 0) for one in found),
            "dead_letter_count": sum(one.dead_letters for one in found),
            "groups": len(found),
            "paused": sum(one.is_paused for one in found),
        }

    async def peek(
        self, topic: str, group: str, *, backend: str | None = None, limit: int = 10
    ) -> list[BusMessage]:
        """Messages that wait for the group, next ones first, decoded, without taking them."""
        queue = self._require_capability(backend, Capability.PEEK, "peek", topic)
        await self._require_group(queue, topic, group)
        payloads = Payloads(queue.options.serializer)
        found = await queue.driver.peek(topic, group, limit=limit)
        return [readable(payloads, message) for message in found]

    @asynccontextmanager
    async def tail(
        self, topic: str, *, backend: str | None = None
    ) -> AsyncGenerator[AsyncIterator[BusMessage], None]:
        """Receive copies of the messages published from now on; other groups lose none.

        It uses a temporary group, which is removed at the end. Refused for a topic without a
        group: the messages that wait there belong to its first group. Refused for a pattern,
        which covers such topics too.
        """
        queue = self.queue(backend)
        if is_pattern(topic):
            raise QueueError(
                f"{topic} is a pattern",
                backend=queue.name,
                topic=topic,
                hint="tail topics one by one: a pattern would take the messages of topics without a group",
            )
        if not any(place[0] == topic for place in await queue.driver.groups()):
            raise QueueError(
                f"topic {topic} has no consumer group yet",
                backend=queue.name,
                topic=topic,
                hint="its first group receives the messages published before, and a tail must not take them; "
                "start a consumer first",
            )
        group = f"{TAIL_GROUP}{uuid4().hex[:8]}"
        await queue.driver.declare(topic, group, temporary=True)
        try:
            yield _receive_all(queue, topic, group)
        finally:
            with anyio.CancelScope(shield=True):
                await queue.driver.drop(topic, group)

    # Operate.

    async def pause(
        self, topic: str, group: str | None = None, *, backend: str | None = None
    ) -> list[str]:
        """Stop delivery to a group, in all processes and across restarts; without ``group`` to all.

        Messages in flight are finished; publishing continues. Returns the groups.
        """
        return await self._set_paused(topic, group, backend, True)

    async def resume(
        self, topic: str, group: str | None = None, *, backend: str | None = None
    ) -> list[str]:
        """Resume delivery to a group; without ``group`` to all of the topic. Returns the groups."""
        return await self._set_paused(topic, group, backend, False)

    async def purge(self, topic: str, group: str, *, backend: str | None = None) -> int:
        """Delete the messages that wait for the group, permanently; how many. Those in flight stay."""
        queue = self._require_capability(backend, Capability.PURGE, "purge", topic)
        await self._require_group(queue, topic, group)
        return await queue.driver.purge(topic, group)

    async def group_of(self, topic: str, group: str | None, backend: str | None = None) -> str:
        """The named group, or the only one of the topic."""
        return await self._require_group(self.queue(backend), topic, group)

    async def _set_paused(
        self, topic: str, group: str | None, backend: str | None, paused: bool
    ) -> list[str]:
        queue = self._require_capability(
            backend, Capability.PAUSE, "pause" if paused else "resume", topic
        )
        known = await _groups_of(queue, topic)
        meant = known if group is None else [await self._require_group(queue, topic, group)]
        if not meant:
            raise _no_group(queue, topic, known)
        for one in meant:
            await queue.driver.set_paused(topic, one, paused)
        return meant

    def _require_capability(
        self, backend: str | None, capability: Capability, what: str, topic: str
    ) -> BusQueue:
        queue = self.queue(backend)
        if not queue.can(capability):
            raise CapabilityError(
                f"driver {queue.driver.name} of backend {queue.name} cannot {what}",
                backend=queue.name,
                topic=topic,
                hint="use the tools of the broker; docs/reference/queue-drivers.md lists capabilities",
            )
        return queue

    async def _require_group(self, queue: BusQueue, topic: str, group: str | None) -> str:
        known = await _groups_of(queue, topic)
        if group is None and len(known) == 1:
            return known[0]
        if group is None or group not in known:
            raise _no_group(queue, topic, known, group)
        return group


def is_in_process(queue: BusQueue) -> bool:
    """Whether the broker is a part of this process, so that other processes have their own."""
    return hasattr(queue.driver, "publish_nowait")


async def collect_statistics(queue: BusQueue) -> list[GroupStatistics]:
    """Read the statistics of all groups; one that is removed meanwhile is left out."""
    found = list[GroupStatistics]()
    for place in sorted(await queue.driver.groups()):
        try:
            found.append(await _read_statistics(queue, *place))
        except QueueError:
            if place in await queue.driver.groups():
                raise
    return found


async def _read_statistics(queue: BusQueue, topic: str, group: str) -> GroupStatistics:
    driver = queue.driver
    return GroupStatistics(
        backend=queue.name,
        driver=driver.name,
        topic=topic,
        group=group,
        depth=await driver.depth(topic, group) if queue.can(Capability.DEPTH) else None,
        lag=await driver.lag(topic, group) if queue.can(Capability.LAG) else None,
        dead_letters=await driver.count_dead(topic, group),
        is_paused=await driver.is_paused(topic, group),
    )


async def _groups_of(queue: BusQueue, topic: str) -> list[str]:
    return sorted(group for name, group in await queue.driver.groups() if name == topic)


async def _receive_all(queue: BusQueue, topic: str, group: str) -> AsyncIterator[BusMessage]:
    payloads = Payloads(queue.options.serializer)
    while True:
        batch = await queue.driver.receive(topic, group, limit=TAIL_BATCH, wait=TAIL_WAIT)
        for delivery in batch:
            yield readable(payloads, delivery.message)
        if batch:
            await queue.driver.ack_many(batch)
        else:
            await anyio.lowlevel.checkpoint()


def _no_group(
    queue: BusQueue, topic: str, known: Sequence[str], group: str | None = None
) -> QueueError:
    if group is not None:
        text = f"topic {topic} has no group {group}"
    elif known:
        text = f"topic {topic} has {len(known)} groups; name one of them"
    else:
        text = f"topic {topic} has no group"
    facts: dict[str, Any] = {"group": group, "known": list(known)}
    hint = f"groups of the topic: {', '.join(known)}" if known else "lexigram queue ls lists topics"
    return QueueError(text, backend=queue.name, topic=topic, details=facts, hint=hint)
