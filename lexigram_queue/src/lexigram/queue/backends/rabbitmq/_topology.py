"""Exchange, queues and registry on the broker: how they are declared, found and dropped."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from attrs import frozen

from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.rabbitmq._connection import Connection, Contents
from lexigram.queue.backends.rabbitmq._names import Names
from lexigram.queue.backends.rabbitmq._sender import Sender
from lexigram.queue.backends.rabbitmq._wire import (
    HIGHEST_PRIORITY,
    Out,
    outgoing,
    parse_json,
    properties_class,
    read_message,
)
from lexigram.queue.runtime.topics import is_pattern, matcher

FIRST_STEP: Final = 250  # milliseconds
STEPS: Final = tuple(FIRST_STEP << power for power in range(24))  # up to 24 days
STEP_SPARE: Final = 300_000  # milliseconds a step outlives what it holds
STEP_FRESH: Final = 60.0  # seconds until a step is declared again before it is used
TEMPORARY: Final = 600_000  # milliseconds a temporary group lives without a consumer
SNAPSHOT_AGE: Final = 1.0  # seconds the list of groups is good enough for a new topic
NEVER: Final = 1_000_000_000  # deliveries; max_deliveries of the runtime comes first

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Topology:
    """What one exchange has on the broker."""

    def __init__(
        self, connection: Connection, sender: Sender, names: Names, *, max_backlog: int
    ) -> None:
        self._connection, self._sender, self._names = connection, sender, names
        self._max_backlog = max_backlog
        self._registering = asyncio.Lock()
        self._steps: dict[str, float] = {}  # when a step was last declared here
        self._topics: set[str] = set()  # topics whose messages are known to be kept
        self._snapshot: tuple[float, frozenset[tuple[str, str]]] = (-1e9, frozenset())

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> bool:
        """Declare a queue, its dead letters and its binding; whether the group is paused."""
        queue = self._names.queue(topic, group)
        key = self._names.binding(topic)
        async with self.registry(topic) as registry:
            known = registry.entries.get((topic, group))
            await self._declare_group(queue, temporary, topic)
            async with self._connection.scratch(f"bind {queue}", topic) as channel:
                # Always one of them is bound: what a ladder returns is not mandatory, and a
                # moment without a queue would lose it. In the moment with both, each gets a copy.
                await channel.queue_bind(queue, self._names.exchange, key)
                if not is_pattern(topic):
                    await channel.queue_unbind(
                        self._names.backlog(topic), self._names.exchange, key
                    )
            if not is_pattern(topic):
                await self._hand_backlog_to(queue, topic)
            if known is None:
                await registry.add(Entry(topic=topic, group=group, temporary=temporary))
            return known is not None and known.paused

    async def drop(self, topic: str, group: str) -> None:
        """Delete the queue, its ladder and its dead letters."""
        queue = self._names.queue(topic, group)
        async with self.registry(topic) as registry:
            async with self._connection.scratch(f"delete {queue}", topic) as channel:
                await channel.queue_delete(queue)
                await channel.queue_delete(self._names.dead(queue))
                await channel.queue_delete(self._names.attempts(queue))
                for step in STEPS:
                    await channel.queue_delete(self._names.step(queue, step))
            await registry.remove((topic, group))
        self._topics.discard(topic)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All groups in the registry; temporary ones that are gone leave it."""
        async with self.registry() as registry:
            for key, entry in list(registry.entries.items()):
                if (
                    entry.temporary
                    and await self._connection.count(self._names.queue(*key)) is None
                ):
                    await registry.remove(key)
            return list(registry.entries)

    async def _declare_group(self, queue: str, temporary: bool, topic: str) -> None:
        expiry = {"x-expires": TEMPORARY} if temporary else {}
        kind = self.kind()
        ranks = {} if self._names.is_quorum else {"x-max-priority": HIGHEST_PRIORITY}
        aside = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self._names.dead(queue),
        }
        async with self._connection.scratch(f"declare {queue}", topic) as channel:
            await channel.queue_declare(
                self._names.dead(queue), durable=True, arguments={**kind, **expiry}
            )
            await channel.queue_declare(
                queue, durable=True, arguments={**kind, **ranks, **aside, **expiry}
            )

    def kind(self) -> dict[str, Any]:
        if self._names.is_quorum:
            return {"x-queue-type": "quorum", "x-delivery-limit": NEVER}
        return {"x-queue-type": "classic"}

    async def _hand_backlog_to(self, queue: str, topic: str) -> None:
        """Give the first group what the topic kept; the registry is held."""
        backlog = self._names.backlog(topic)
        if await self._connection.count(backlog) is None:
            return
        async with self._connection.contents(backlog, topic) as contents:
            for batch in batches(await contents.read(), 100):
                kept = [read_message(one, topic, self._names.exchange) for one in batch]
                await self._sender.send_confirmed(
                    [outgoing("", queue, message) for message in kept], topic
                )
                await contents.remove(batch)
        async with self._connection.scratch(f"delete {backlog}", topic) as channel:
            await channel.queue_delete(backlog)

    async def keep(self, topic: str) -> None:
        """Make a topic without a group keep its messages; the registry is held."""
        backlog = self._names.backlog(topic)
        limit = {"x-max-length": self._max_backlog, "x-overflow": "reject-publish"}
        async with self._connection.scratch(f"declare {backlog}", topic) as channel:
            await channel.queue_declare(backlog, durable=True, arguments={**self.kind(), **limit})
            await channel.queue_bind(backlog, self._names.exchange, self._names.binding(topic))

    async def introduce(self, topic: str) -> None:
        """Before the first message to a topic, ensure that a queue keeps it.

        A binding by pattern may catch more than the pattern means. Without this, a topic that
        has no group would lose its messages to such a queue, which drops them.
        """
        if topic in self._topics:
            return
        groups = await self._recent_groups()
        if any(map(is_pattern, (name for name, _ in groups))) and not covers(groups, topic):
            await self._see_kept(topic)
        if len(self._topics) > 10_000:
            self._topics.clear()  # nothing depends on it but a question more
        self._topics.add(topic)

    async def _recent_groups(self) -> frozenset[tuple[str, str]]:
        at, groups = self._snapshot
        if time.monotonic() - at > SNAPSHOT_AGE:
            async with self.registry() as registry:
                groups = frozenset(registry.entries)
            self._snapshot = time.monotonic(), groups
        return groups

    async def _see_kept(self, topic: str) -> None:
        async with self.registry(topic) as registry:
            if not covers(registry.entries, topic):
                await self.keep(topic)

    async def schedule(self, message: BusMessage, delay: float) -> Out:
        """For later: into the longest step that is not too long. The rest waits at the group."""
        if not covers(await self._recent_groups(), message.topic):
            await self._see_kept(message.topic)  # what a ladder returns is not mandatory
        base = self._names.later(message.topic)
        name = await self.step(base, step_within(delay), self._names.exchange, message.topic)
        return outgoing("", name, message)

    async def step(self, base: str, step: int, exchange: str, key: str) -> str:
        """The queue of one step, declared often enough that it never expires with content."""
        name = self._names.step(base, step)
        if time.monotonic() - self._steps.get(name, -1e9) > STEP_FRESH:
            arguments: dict[str, Any] = {
                "x-message-ttl": step,
                "x-expires": step + STEP_SPARE,
                "x-dead-letter-exchange": exchange,
                "x-dead-letter-routing-key": key,
                "x-queue-type": "classic",
            }
            if self._names.is_quorum:
                arguments |= {
                    "x-queue-type": "quorum",
                    "x-dead-letter-strategy": "at-least-once",
                    "x-overflow": "reject-publish",
                }
            async with self._connection.scratch(f"declare {name}") as channel:
                await channel.queue_declare(name, durable=True, arguments=arguments)
            self._steps[name] = time.monotonic()
        return name

    @asynccontextmanager
    async def registry(self, topic: str = "") -> AsyncGenerator[Registry]:
        """All groups, for us alone."""
        async with (
            self._registering,
            self._connection.contents(self._names.registry, topic) as contents,
        ):
            registry = Registry(contents, self._write_registry)
            for raw in await contents.read():
                registry.note(raw)
            yield registry
            self._snapshot = time.monotonic(), frozenset(registry.entries)

    async def _write_registry(self, entry: Entry) -> None:
        body = json.dumps([entry.topic, entry.group, entry.temporary, entry.paused]).encode()
        properties = properties_class()(delivery_mode=2, content_type="application/json")
        await self._sender.send_confirmed(
            [Out("", self._names.registry, properties, body)], entry.topic
        )

    def forget_step(self, name: str) -> None:
        """It was deleted: declare it again before the next use."""
        self._steps.pop(name, None)

    def forget_topic(self, topic: str) -> None:
        """Nothing is known any more of who keeps its messages."""
        self._topics.discard(topic)


@frozen(kw_only=True)
class Entry:
    """One group in the registry."""

    topic: str
    group: str
    temporary: bool = False
    paused: bool = False


class Registry:
    """The groups of an exchange, held for one change. Every group is one message of a queue."""

    def __init__(self, contents: Contents, write: Callable[[Entry], Awaitable[None]]) -> None:
        self._contents, self._write = contents, write
        self.entries: dict[tuple[str, str], Entry] = {}
        self._raws: dict[tuple[str, str], list[Any]] = {}

    def note(self, raw: Any) -> None:
        match parse_json(raw.body):
            case [str() as topic, str() as group, bool() as temporary, bool() as paused]:
                entry = Entry(topic=topic, group=group, temporary=temporary, paused=paused)
                self.entries[topic, group] = entry
                self._raws.setdefault((topic, group), []).append(raw)
            case _:
                _log.warning("a message in the registry of groups is not ours")

    async def add(self, entry: Entry) -> None:
        await self._write(entry)
        self.entries[entry.topic, entry.group] = entry

    async def replace(self, entry: Entry) -> None:
        await self.add(entry)
        await self._forget((entry.topic, entry.group))

    async def remove(self, key: tuple[str, str]) -> None:
        self.entries.pop(key, None)
        await self._forget(key)

    async def _forget(self, key: tuple[str, str]) -> None:
        await self._contents.remove(self._raws.pop(key, []))


def step_within(delay: float) -> int:
    """The longest step that is not too long; the shortest for what is nearly due."""
    return max((step for step in STEPS if step <= delay * 1000), default=FIRST_STEP)


def covers(groups: Iterable[tuple[str, str]], topic: str) -> bool:
    return any(matcher(name)(topic) for name, _ in groups)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
