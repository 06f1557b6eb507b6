"""The bus inside one process: all promises of a broker, nothing on disk.

Leases, groups, delays, priority, ordering, fairness, dead letters and limits work as on the real
brokers, so that a test on memory means something. Times come from ``lexigram.clock``: a test
installs a ``FakeClock`` and lets hours pass.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, Final, cast

from attrs import evolve

from lexigram import clock as ambient
from lexigram.clock import ClockProtocol, SystemClock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import delay_of, redriven
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern, matcher

NAME: Final = "memory"
MAX_DEAD_LETTERS: Final = 1000  # per group; then the oldest goes
LOOK_AGAIN: Final = 0.005  # seconds: a clock of a test moves without telling anybody

CAPABILITIES: Final = frozenset(Capability) - {
    Capability.DURABLE,
    Capability.TTL,  # the runtime sets expired messages aside, by policy
}


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
        self.topics: dict[str, _Topic] = {}
        self.groups: dict[tuple[str, str], _Group] = {}
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

    def topic(self, name: str) -> _Topic:
        """The topic of this name, made at its first use."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = _Topic(name)
            found.find_groups(self.groups.values())
        return found

    def group(self, topic: str, name: str) -> _Group:
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

    def declare(self, topic: str, name: str) -> _Group:
        """Add a group, or find it."""
        known = self.groups.get((topic, name))
        if known is not None:
            return known
        made = self.groups[topic, name] = _Group(self, topic, name)
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
        if _is_special(message):
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
        for slot in cast("Sequence[_Slot]", deliveries):
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
        assert isinstance(delivery, _Slot)
        delivery.home.retry(delivery, message or delivery.message, delay)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Put the messages back where they were taken from."""
        self._check()
        for slot in reversed(deliveries):
            assert isinstance(slot, _Slot)
            slot.home.give_back((slot,))

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Move the end of the leases that still hold."""
        self._check()
        until = self.broker.now() + seconds
        lost: list[Delivery] = []
        for slot in deliveries:
            assert isinstance(slot, _Slot)
            if not slot.home.extend(slot, until):
                lost.append(slot)
        return lost

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Keep the entry and forget the message, in one step."""
        self._check()
        assert isinstance(delivery, _Slot)
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


class _Slot(Delivery):
    """One message for one group, and the delivery of it. Settled or expired, it is never reused."""

    __slots__ = ("home", "lease")

    home: _Group
    lease: _Lease
    key: str | None = None  # the ordering key, in slots that have one

    # A Delivery is frozen for its receiver; here the fields are set as the slot is handed out:
    # building a second object would cost another microsecond per message. Both of these, or the
    # interpreter looks each of them up at every assignment: 2.4 µs a slot instead of 0.5.
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __init__(self, message: BusMessage, home: _Group, delivered: int = 0) -> None:
        self.message = message  # type: ignore[misc]
        self.home = home
        self.topic = home.topic  # type: ignore[misc]
        self.group = home.name  # type: ignore[misc]
        self.delivery_count = delivered  # type: ignore[misc]


class _OrderedSlot(_Slot):
    __slots__ = ("key",)

    def __init__(self, message: BusMessage, home: _Group, delivered: int, key: str | None) -> None:
        super().__init__(message, home, delivered)
        self.key = key


class _Lease:
    """Who holds the deliveries of one receive, and until when."""

    __slots__ = ("owner", "until")

    def __init__(self, owner: MemoryDriver, until: float) -> None:
        self.owner, self.until = owner, until


class _Topic:
    __slots__ = ("backlog", "groups", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: tuple[_Group, ...] = ()
        self.backlog: deque[BusMessage] = deque()  # kept for the first group

    def find_groups(self, groups: Iterable[_Group]) -> None:
        self.groups = tuple(group for group in groups if group.covers(self.name))

    def hand_backlog_to(self, group: _Group) -> None:
        kept, self.backlog = self.backlog, deque()
        for message in kept:
            group.add(message)


class _Group:
    """The messages of one group: ready, delayed, leased or parked behind their ordering key."""

    def __init__(self, broker: MemoryBroker, topic: str, name: str) -> None:
        self.broker = broker
        self.topic, self.name = topic, name
        self.is_pattern = is_pattern(topic)
        self.paused = False
        self.count = 0
        self.leased: dict[int, _Slot] = {}
        self.dead: dict[str, DeadLetterEntry] = {}
        self.evicted = 0  # dead letters that went because there were too many
        self._numbers = count(1)
        # Without priority and fairness key, nearly all: a message becomes a slot when it is taken.
        self._plain: deque[BusMessage | _Slot] = deque()
        self._ranked = _Ranked()
        self._delayed: list[tuple[float, int, _Slot]] = []
        # Keys of which a message is on its way, with those that wait behind it.
        self._keys: dict[str, deque[_Slot]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def covers(self, topic: str) -> bool:
        return matcher(self.topic)(topic) if self.is_pattern else topic == self.topic

    # In.

    def add(self, message: BusMessage) -> None:
        """A message that this group has not had yet."""
        if not _is_special(message):
            self.add_plain(message)
            return
        self.count += 1
        if DELIVER_AT in message.headers and (
            delay := delay_of(message, self.broker.clock.timestamp())
        ):
            due = self.broker.now() + delay
            heapq.heappush(self._delayed, (due, next(self._numbers), _Slot(message, self)))
            self._wake()
        else:
            self._enter(message)

    def add_plain(self, message: BusMessage) -> None:
        """The same for one that just waits for its turn."""
        self.count += 1
        self._plain.append(message)
        if self._waiters:
            self._wake()

    def _enter(self, message: BusMessage) -> None:
        """Take its place in the order of its key, if it has one."""
        key = message.headers.get(ORDERING_KEY)
        if key is None:
            self._make_ready(_Slot(message, self))
            return
        slot = _OrderedSlot(message, self, 0, key)
        if not self._must_wait(slot, key):
            self._make_ready(slot)

    def _must_wait(self, slot: _Slot, key: str) -> bool:
        behind = self._keys.get(key)
        if behind is None:
            self._keys[key] = deque()
            return False
        behind.append(slot)
        return True

    def _make_ready(self, slot: _Slot, *, first: bool = False) -> None:
        message = slot.message
        lane = message.headers.get(FAIRNESS_KEY) if message.headers else None
        if lane is not None or message.priority:
            self._ranked.add(slot, message.priority, lane or "", first=first)
        elif first:
            self._plain.appendleft(slot)
        else:
            self._plain.append(slot)
        self._wake()

    # Out.

    def take(self, limit: int, owner: MemoryDriver) -> list[_Slot]:
        if self.paused:
            return []
        now = self.broker.now()
        if self._delayed or self.leased:
            self._collect(now)
        plain, ranked = self._plain, self._ranked
        lease = _Lease(owner, now + owner.lease)
        taken: list[_Slot] = []
        leased, numbers = self.leased, self._numbers
        while len(taken) < limit:
            if ranked.size:
                item = ranked.pop(plain)
            elif plain:
                item = plain.popleft()
            else:
                break
            slot = item if isinstance(item, _Slot) else _Slot(item, self)
            slot.receipt = number = next(numbers)  # type: ignore[misc]
            slot.delivery_count += 1  # type: ignore[misc]
            slot.lease = lease
            leased[number] = slot
            taken.append(slot)
        return taken

    def _collect(self, now: float) -> None:
        """Make ready what is due and what nobody holds any more."""
        while self._delayed and self._delayed[0][0] <= now:
            slot = heapq.heappop(self._delayed)[2]
            if slot.delivery_count:
                self._make_ready(slot)
            else:
                self._enter(slot.message)  # a scheduled one takes its place in the order now
        # Leases of one length end in the order they began. While there is work, only the
        # oldest are looked at; a shorter extension behind them is found when there is none.
        busy = bool(self._plain or self._ranked.size)
        expired: list[_Slot] = []
        for slot in self.leased.values():
            if slot.lease.until <= now:
                expired.append(slot)
            elif busy:
                break
        self.give_back(expired)

    def next_change(self) -> float:
        """Seconds until something becomes ready by itself; a moment for a clock of a test."""
        clock = self.broker.clock
        if not isinstance(clock, SystemClock):
            return LOOK_AGAIN
        times = [slot.lease.until for slot in self.leased.values()]
        if self._delayed:
            times.append(self._delayed[0][0])
        return max(0.0, min(times) - clock.monotonic()) if times else float("inf")

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_later(seconds, _finish, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the news was for somebody: tell the next one
            raise
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        for waiter in self._waiters:
            _finish(waiter)
        self._waiters.clear()

    # Settled.

    def finish(self, slot: _Slot) -> bool:
        if self.leased.pop(slot.receipt, None) is None:
            return False
        self.count -= 1
        if slot.key is not None:
            self.pass_on(slot.key)
        return True

    def pass_on(self, key: str) -> None:
        behind = self._keys[key]
        if behind:
            self._make_ready(behind.popleft())
        else:
            del self._keys[key]

    def retry(self, slot: _Slot, message: BusMessage, delay: float) -> None:
        if self.leased.pop(slot.receipt, None) is None:
            return
        again = self._again(slot, message)
        if delay > 0:
            due = self.broker.now() + delay
            heapq.heappush(self._delayed, (due, next(self._numbers), again))
            self._wake()
        else:
            self._make_ready(again)

    def give_back(self, slots: Iterable[_Slot]) -> None:
        for slot in slots:
            if self.leased.pop(slot.receipt, None) is not None:
                self._make_ready(self._again(slot, slot.message), first=True)

    def _again(self, slot: _Slot, message: BusMessage) -> _Slot:
        if slot.key is None:
            return _Slot(message, self, slot.delivery_count)
        return _OrderedSlot(message, self, slot.delivery_count, slot.key)

    def extend(self, slot: _Slot, until: float) -> bool:
        if self.leased.pop(slot.receipt, None) is None:
            return False
        slot.lease = _Lease(slot.lease.owner, until)
        self.leased[slot.receipt] = slot  # now among the youngest
        return True

    def bury(self, slot: _Slot, entry: DeadLetterEntry) -> None:
        if not self.finish(slot):
            return
        self.dead.pop(entry.message.id, None)
        self.dead[entry.message.id] = entry
        while len(self.dead) > self.broker.max_dead_letters:
            del self.dead[next(iter(self.dead))]
            self.evicted += 1

    def take_dead(self, ids: Sequence[str] | None) -> list[DeadLetterEntry]:
        wanted = list(self.dead) if ids is None else [one for one in ids if one in self.dead]
        return [self.dead.pop(one) for one in dict.fromkeys(wanted)]

    # Watched and steered.

    def waiting(self) -> Iterable[BusMessage]:
        self._collect(self.broker.now())
        yield from (slot.message for slot in self._ranked)
        for item in self._plain:
            yield item.message if isinstance(item, _Slot) else item
        for behind in self._keys.values():
            yield from (slot.message for slot in behind)

    def ready_count(self) -> int:
        self._collect(self.broker.now())
        return len(self._plain) + self._ranked.size

    def purge(self) -> int:
        before = self.count
        held = {slot.key for slot in self.leased.values()}
        self._keys = {key: deque() for key in self._keys if key in held}
        self._plain.clear()
        self._ranked = _Ranked()
        self._delayed.clear()
        self.count = len(self.leased)
        return before - self.count

    def set_paused(self, paused: bool) -> None:
        self.paused = paused
        if not paused:
            self.wake_all()


class _Ranked:
    """What has a priority or a fairness key: the highest level first, its lanes in turn."""

    __slots__ = ("_levels", "size")

    def __init__(self) -> None:
        self.size = 0
        self._levels: dict[int, dict[str, deque[_Slot]]] = {}

    def add(self, slot: _Slot, level: int, lane: str, *, first: bool) -> None:
        slots = self._levels.setdefault(level, {}).setdefault(lane, deque())
        if first:
            slots.appendleft(slot)
        else:
            slots.append(slot)
        self.size += 1

    def pop(self, plain: deque[BusMessage | _Slot]) -> BusMessage | _Slot:
        """The next one; ``plain`` is one more lane of level 0."""
        level = max(self._levels)
        if plain and level < 0:
            return plain.popleft()
        lanes = self._levels[level]
        if plain and level == 0:
            lanes.setdefault(_PLAIN, _NOTHING)
        lane = next(iter(lanes))
        slots = lanes.pop(lane)
        if lane == _PLAIN:
            if plain:
                lanes[_PLAIN] = _NOTHING  # behind the others
                return plain.popleft()
            return self.pop(plain)
        self.size -= 1
        slot = slots.popleft()
        if slots:
            lanes[lane] = slots  # behind the others
        if not any(lane != _PLAIN for lane in lanes):
            del self._levels[level]
        return slot

    def __iter__(self) -> Iterator[_Slot]:
        for level in sorted(self._levels, reverse=True):
            for slots in self._levels[level].values():
                yield from slots


_ROUTING: Final = frozenset({DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY})


def _is_special(message: BusMessage) -> bool:
    """Whether priority or a header decides when it is delivered."""
    return bool(message.priority) or not _ROUTING.isdisjoint(message.headers)


_PLAIN: Final = "\0plain"  # no header has a zero character
_NOTHING: Final[deque[Any]] = deque()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
