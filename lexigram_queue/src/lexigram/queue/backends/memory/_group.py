"""The messages of one group, in the order in which they are handed out."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from lexigram.clock import SystemClock
from lexigram.contracts.queue import BusMessage, DeadLetterEntry, Delivery
from lexigram.contracts.queue.headers import DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY
from lexigram.queue.runtime.envelope import delay_of
from lexigram.queue.runtime.topics import is_pattern, matcher

if TYPE_CHECKING:
    from lexigram.queue.backends.memory._broker import MemoryBroker
    from lexigram.queue.backends.memory.driver import MemoryDriver

LOOK_AGAIN: Final = 0.005  # seconds: a clock of a test moves without telling anybody


class Slot(Delivery):
    """One message for one group, and the delivery of it. Settled or expired, it is never reused."""

    __slots__ = ("home", "lease", "marks")

    home: Group
    lease: Lease
    marks: int  # how often its handler was begun, after it came back; not set before
    key: str | None = None  # the ordering key, in slots that have one

    # A Delivery is frozen for its receiver; here the fields are set as the slot is handed out:
    # building a second object would cost another microsecond per message. Both of these, or the
    # interpreter looks each of them up at every assignment: 2.4 µs a slot instead of 0.5.
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __init__(self, message: BusMessage, home: Group, delivered: int = 0) -> None:
        self.message = message  # type: ignore[misc]
        self.home = home
        self.topic = home.topic  # type: ignore[misc]
        self.group = home.name  # type: ignore[misc]
        self.delivery_count = delivered  # type: ignore[misc]


class _OrderedSlot(Slot):
    __slots__ = ("key",)

    def __init__(self, message: BusMessage, home: Group, delivered: int, key: str | None) -> None:
        super().__init__(message, home, delivered)
        self.key = key


class Lease:
    """Who holds the deliveries of one receive, and until when."""

    __slots__ = ("owner", "until")

    def __init__(self, owner: MemoryDriver, until: float) -> None:
        self.owner, self.until = owner, until


class Group:
    """The messages of one group: ready, delayed, leased or parked behind their ordering key."""

    def __init__(self, broker: MemoryBroker, topic: str, name: str) -> None:
        self.broker = broker
        self.topic, self.name = topic, name
        self.is_pattern = is_pattern(topic)
        self.paused = False
        self.count = 0
        self.leased: dict[int, Slot] = {}
        self.dead: dict[str, DeadLetterEntry] = {}
        self.evicted = 0  # dead letters that went because there were too many
        self._numbers = count(1)
        # Without priority and fairness key, nearly all: a message becomes a slot when it is taken.
        self._plain: deque[BusMessage | Slot] = deque()
        self._ranked = _Ranked()
        self._delayed: list[tuple[float, int, Slot]] = []
        # Keys of which a message is on its way, with those that wait behind it.
        self._keys: dict[str, deque[Slot]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def covers(self, topic: str) -> bool:
        return matcher(self.topic)(topic) if self.is_pattern else topic == self.topic

    # In.

    def add(self, message: BusMessage) -> None:
        """A message that this group has not had yet."""
        if not is_special(message):
            self.add_plain(message)
            return
        self.count += 1
        if DELIVER_AT in message.headers and (
            delay := delay_of(message, self.broker.clock.timestamp())
        ):
            due = self.broker.now() + delay
            heapq.heappush(self._delayed, (due, next(self._numbers), Slot(message, self)))
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
            self._make_ready(Slot(message, self))
            return
        slot = _OrderedSlot(message, self, 0, key)
        if not self._must_wait(slot, key):
            self._make_ready(slot)

    def _must_wait(self, slot: Slot, key: str) -> bool:
        behind = self._keys.get(key)
        if behind is None:
            self._keys[key] = deque()
            return False
        behind.append(slot)
        return True

    def _make_ready(self, slot: Slot, *, first: bool = False) -> None:
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

    def take(self, limit: int, owner: MemoryDriver) -> list[Slot]:
        if self.paused:
            return []
        now = self.broker.now()
        if self._delayed or self.leased:
            self._collect(now)
        plain, ranked = self._plain, self._ranked
        lease = Lease(owner, now + owner.lease)
        taken: list[Slot] = []
        leased, numbers = self.leased, self._numbers
        while len(taken) < limit:
            if ranked.size:
                item = ranked.pop(plain)
            elif plain:
                item = plain.popleft()
            else:
                break
            slot = item if isinstance(item, Slot) else Slot(item, self)
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
            if slot.key is not None:  # a retry: it still has the turn of its key
                self._make_ready(slot)
            else:
                self._enter(slot.message)  # a scheduled one takes its place in the order now
        # Leases of one length end in the order they began. While there is work, only the
        # oldest are looked at; a shorter extension behind them is found when there is none.
        busy = bool(self._plain or self._ranked.size)
        expired: list[Slot] = []
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
                self._wake()  # this waiter was notified and is gone: notify the next
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

    def finish(self, slot: Slot) -> bool:
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

    def retry(self, slot: Slot, message: BusMessage, delay: float) -> None:
        if self.leased.pop(slot.receipt, None) is None:
            return
        again = self._again(slot, message, 0)
        if delay > 0:
            due = self.broker.now() + delay
            heapq.heappush(self._delayed, (due, next(self._numbers), again))
            self._wake()
        else:
            self._make_ready(again)

    def give_back(self, slots: Iterable[Slot], *, uncounted: int = 0) -> None:
        for slot in slots:
            if self.leased.pop(slot.receipt, None) is not None:
                again = self._again(slot, slot.message, slot.delivery_count - uncounted)
                again.marks = _marks(slot)
                self._make_ready(again, first=True)

    def _again(self, slot: Slot, message: BusMessage, delivered: int) -> Slot:
        if slot.key is None:
            return Slot(message, self, delivered)
        return _OrderedSlot(message, self, delivered, slot.key)

    def mark_begun(self, slot: Slot) -> int:
        if slot.receipt not in self.leased:
            return 0
        slot.marks = _marks(slot) + 1
        return slot.marks

    def extend(self, slot: Slot, until: float) -> bool:
        if self.leased.pop(slot.receipt, None) is None:
            return False
        slot.lease = Lease(slot.lease.owner, until)
        self.leased[slot.receipt] = slot  # now among the youngest
        return True

    def bury(self, slot: Slot, entry: DeadLetterEntry) -> None:
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
            yield item.message if isinstance(item, Slot) else item
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
        self._levels: dict[int, dict[str, deque[Slot]]] = {}

    def add(self, slot: Slot, level: int, lane: str, *, first: bool) -> None:
        slots = self._levels.setdefault(level, {}).setdefault(lane, deque())
        if first:
            slots.appendleft(slot)
        else:
            slots.append(slot)
        self.size += 1

    def pop(self, plain: deque[BusMessage | Slot]) -> BusMessage | Slot:
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

    def __iter__(self) -> Iterator[Slot]:
        for level in sorted(self._levels, reverse=True):
            for slots in self._levels[level].values():
                yield from slots


def _marks(slot: Slot) -> int:
    return getattr(slot, "marks", 0)


_ROUTING: Final = frozenset({DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY})


def is_special(message: BusMessage) -> bool:
    """Whether priority or a header decides when it is delivered."""
    return bool(message.priority) or not _ROUTING.isdisjoint(message.headers)


_PLAIN: Final = "\0plain"  # no header has a zero character
_NOTHING: Final[deque[Any]] = deque()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
