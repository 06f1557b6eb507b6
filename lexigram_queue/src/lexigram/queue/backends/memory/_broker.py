"""What several drivers of one process share: topics, groups and their messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from lexigram import clock as ambient
from lexigram.clock import ClockProtocol
from lexigram.contracts.queue import BusMessage, QueueError
from lexigram.queue.backends.memory._group import Group
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG

NAME: Final = "memory"
MAX_DEAD_LETTERS: Final = 1000  # per group; then the oldest goes


class MemoryBroker:
    """What several drivers of one process share: topics, groups and their messages."""

    def __init__(
        self,
        *,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        dedup_window: float = 0.0,
        clock: ClockProtocol | None = None,
    ) -> None:
        self.max_backlog = max_backlog
        self.max_dead_letters = max_dead_letters
        self.dedup_window = dedup_window
        self._clock = clock
        self.topics: dict[str, Topic] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        # Publishers that wait until a group has room.
        self.crowd: deque[asyncio.Future[None]] = deque()
        # Ids by the time they were seen, oldest first; only with a window.
        self._seen: dict[tuple[str, str], float] = {}

    @property
    def clock(self) -> ClockProtocol:
        """The clock it was given, else the one in effect."""
        return self._clock or ambient.current()

    def now(self) -> float:
        """Seconds for leases and delays."""
        return self.clock.monotonic()

    def topic(self, name: str) -> Topic:
        """The topic of this name, made at its first use."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = Topic(name)
            found.find_groups(self.groups.values())
        return found

    def group(self, topic: str, name: str) -> Group:
        """A declared group."""
        try:
            return self.groups[topic, name]
        except KeyError:
            raise QueueError(
                f"group {name!r} of topic {topic!r} was never declared",
                backend=NAME,
                topic=topic,
                hint="await driver.declare(topic, group) first",
            ) from None

    def declare(self, topic: str, name: str) -> Group:
        """Add a group, or find it."""
        known = self.groups.get((topic, name))
        if known is not None:
            return known
        made = self.groups[topic, name] = Group(self, topic, name)
        if not made.is_pattern:
            self.topic(topic).hand_backlog_to(made)
        for one in self.topics.values():
            one.find_groups(self.groups.values())
        return made

    def drop(self, topic: str, name: str) -> None:
        """Forget a group and all it holds."""
        gone = self.groups.pop((topic, name), None)
        if gone is None:
            return
        gone.wake_all()
        for one in list(self.topics.values()):
            one.find_groups(self.groups.values())
            if not one.groups and not one.backlog:
                del self.topics[one.name]
        self.make_room()

    def is_double(self, message: BusMessage) -> bool:
        """True when the id was seen on the topic within the window; remembers it."""
        now, key = self.now(), (message.topic, message.id)
        for old in list(islice(self._seen, 100)):  # a few at a time: publishing stays quick
            if self._seen[old] > now - self.dedup_window:
                break
            del self._seen[old]
        seen = self._seen.get(key)
        if seen is not None and seen > now - self.dedup_window:
            return True
        self._seen.pop(key, None)
        self._seen[key] = now
        return False

    def make_room(self) -> None:
        """Let publishers that wait look again."""
        while self.crowd:
            waiter = self.crowd.popleft()
            if not waiter.done():
                waiter.set_result(None)


class Topic:
    __slots__ = ("backlog", "groups", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: tuple[Group, ...] = ()
        self.backlog: deque[BusMessage] = deque()  # kept for the first group

    def find_groups(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(group for group in groups if group.covers(self.name))

    def hand_backlog_to(self, group: Group) -> None:
        kept, self.backlog = self.backlog, deque()
        for message in kept:
            group.add(message)
