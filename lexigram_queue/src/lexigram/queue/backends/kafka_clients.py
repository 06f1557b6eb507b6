"""What the kafka driver runs beside the event loop: a producer, members of groups, and readers.

The client library waits in threads. Here every thread only waits and tells; all state belongs to
the event loop, so nothing needs a lock. A rebalance is decided in the loop too: the thread asks
and waits for the answer, as the protocol wants it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from attrs import define, field, frozen

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.envelope import delay_of, from_headers

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

POLL: Final = 0.05  # seconds a thread waits at most before it looks at what it was told
POLL_BUSY: Final = 0.005  # the same while something is in hand: its commit will come soon
BATCH: Final = 500  # records taken from the client at once
AHEAD: Final = 1000  # records of a partition held here and not handed out; then it is paused
RESUME_BELOW: Final = 250
# Offsets from the first unsettled record of a partition to the last one read. What is settled in
# between is told with the commit, one bit each: 4096 bytes of metadata hold 24,000 of them.
WINDOW: Final = 16_000
IDLE: Final = 1.0  # seconds without a receive and with nothing in hand: the others may have it all
COMMIT_PAUSE: Final = 0.05  # seconds between attempts while a group is being rebalanced
BEATS: Final = 6  # per session: as often a member tells that it lives
PREFIX: Final = "ce_"  # of CloudEvents in the binding for Kafka
OWN: Final = "lex-"  # headers of the driver itself, never of a message
NOT_BEFORE: Final = "lex-not-before"
MARK: Final = "lex1:"  # begins the metadata of a commit that is ours

Place: TypeAlias = tuple[str, int]  # topic and partition, as Kafka names them
_log = logging.getLogger(__name__)


def library() -> Any:
    """The client library."""
    return require_library("confluent_kafka", extra="kafka")


@frozen
class Letter:
    """One record to be written."""

    topic: str
    value: bytes | None
    headers: Mapping[str, str]
    key: bytes | None = None
    partition: int = -1  # by key

    @property
    def size(self) -> int:
        """Bytes of the record, a little more than on the wire."""
        texts = sum(
            len(name.encode()) + len(text.encode()) + 8 for name, text in self.headers.items()
        )
        return len(self.value or b"") + len(self.key or b"") + texts + 64


class Pump:
    """The producer: one thread hears the confirms and completes the futures of who waits."""

    def __init__(self, settings: Mapping[str, Any], timeout: float) -> None:
        self.fatal: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self._timeout = timeout
        self._stopped = threading.Event()
        self.client: Producer = library().Producer({**settings, "error_cb": self._failed})
        self._thread = threading.Thread(target=self._run, name="kafka.producer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.client.poll(POLL)

    def _failed(self, error: KafkaError) -> None:
        self.last_error = error
        if error.fatal():
            self.fatal = error

    async def send(self, letters: Sequence[Letter]) -> dict[int, Exception]:
        """Write all and wait for all confirms; what failed, by place."""
        batch = _Confirms()
        deadline = time.monotonic() + self._timeout
        sent = 0
        for at, letter in enumerate(letters):
            sent += await self._write(letter, at, batch, deadline)
        batch.expect(sent)
        try:
            async with asyncio.timeout(self._timeout + 2.0):
                await batch.done
        except TimeoutError:
            late = TimeoutError("no confirm in time")
            return dict.fromkeys(set(range(len(letters))) - batch.told, late) | batch.failures
        return batch.failures

    async def _write(self, letter: Letter, at: int, batch: _Confirms, deadline: float) -> int:
        headers: list[tuple[str, str | bytes | None]] = [
            (name, text.encode("utf-8", "surrogatepass")) for name, text in letter.headers.items()
        ]
        while True:
            try:
                self.client.produce(
                    letter.topic,
                    letter.value,
                    letter.key,
                    letter.partition,
                    on_delivery=partial(batch.tell, at),
                    headers=headers,
                )
            except BufferError as error:
                # The client holds as much as it may: what is confirmed meanwhile makes room.
                if time.monotonic() > deadline:
                    batch.failures[at] = error
                    return 0
                await asyncio.sleep(0.01)
            except library().KafkaException as error:
                batch.failures[at] = error
                return 0
            else:
                return 1

    def stop(self) -> None:
        """Send what is left for a moment, then end the thread."""
        self.client.flush(min(1.0, self._timeout))
        self._stopped.set()
        self._thread.join()


class _Confirms:
    """The confirms of one call. ``tell`` runs in the thread of the producer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.failures: dict[int, Exception] = {}
        self.told: set[int] = set()
        self._expected = -1

    def tell(self, at: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[at] = library().KafkaException(error)
        self.told.add(at)
        if len(self.told) == self._expected:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish)

    def expect(self, number: int) -> None:
        """So many were written; they may have been confirmed meanwhile."""
        self._expected = number
        if len(self.told) == number:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


# Members of groups.


@define(eq=False)
class Record:
    """One record in hand; it is the receipt of its delivery."""

    part: Part
    offset: int
    message: BusMessage
    key: bytes | None
    rank: tuple[float, int]  # in which order records are handed out
    due: float = 0.0  # by the wall clock
    not_before: float = 0.0
    ticket: int | None = None  # of its settlement, until that is known to be written or not


@define(eq=False)
class Part:
    """One partition as long as this member has it."""

    place: Place
    delay: float | None  # of a topic for retries; None: the topic itself
    # The first offset that is not settled; None until the first record came.
    base: int | None
    done: set[int]  # settled, above the base
    known: int | None = None  # the base that Kafka has
    next: int = -1  # the offset after the last one that came
    order: deque[int] = field(factory=deque[int])  # what came and lies at or above the base
    waiting: int = 0  # records held here and not handed out
    in_flight: dict[int, Record] = field(factory=dict[int, Record])
    # A key that is here has a record in hand or ready; those behind it wait.
    keys: dict[bytes, deque[Record]] = field(factory=dict[bytes, "deque[Record]"])
    delayed: list[tuple[float, int, Record]] = field(factory=list[tuple[float, int, Record]])
    is_dirty: bool = False  # settled and not committed
    settled: int = 0  # so many settlements there were
    written: int = 0  # the last of them that a commit has told
    is_paused: bool = False
    is_closing: bool = False  # it goes to another member: nothing more is handed out
    is_gone: bool = False

    def came(self, offset: int) -> bool:
        """Note an offset; False for one that was settled before."""
        if self.base is None:
            self.base = offset
        self.next = max(self.next, offset + 1)
        if offset < self.base:
            return False
        self.order.append(offset)
        if offset in self.done:
            self._advance()
            return False
        return True

    def settle(self, offset: int) -> int:
        """Offsets without a record (compaction, transactions) do not hold the base back."""
        self.done.add(offset)
        self.is_dirty = True
        self.settled += 1
        self._advance()
        return self.settled

    def recall(self, old: Part) -> None:
        """What was settled when this member had it before, and never written."""
        if old.base is None:
            return
        if self.base is None and old.known is None:
            self.base = old.base  # still nothing is committed: all before it was settled here
        if self.base is None or self.base < (old.known or 0):
            return  # an operator has set the group back
        settled = {one for one in old.done if one >= self.base}
        settled.update(range(self.base, old.base))
        self.done |= settled
        while self.base in self.done:
            self.done.discard(self.base)
            self.base += 1
        self.next = self.base
        self.is_dirty = self.known != self.base or bool(settled)

    def _advance(self) -> None:
        order, done = self.order, self.done
        while order and order[0] in done:
            done.discard(order.popleft())
        base = order[0] if order else self.next
        if self.base is None or base > self.base:
            self.base = base
            self.is_dirty = True

    @property
    def is_written(self) -> bool:
        """True when Kafka knows all that is settled."""
        return not self.is_dirty and self.written == self.settled

    @property
    def span(self) -> int:
        """How far reading is ahead of settling."""
        return 0 if self.base is None else self.next - self.base


def pack(base: int, done: Iterable[int]) -> str:
    """What is settled above the base, as the metadata of a commit."""
    bits = 0
    for offset in done:
        if offset > base:
            bits |= 1 << (offset - base)
    if not bits:
        return ""
    raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return MARK + base64.b64encode(zlib.compress(raw)).decode()


def unpack(base: int, metadata: str | None) -> set[int]:
    """The inverse of ``pack``; metadata of others mean nothing."""
    if not metadata or not metadata.startswith(MARK):
        return set()
    try:
        bits = int.from_bytes(zlib.decompress(base64.b64decode(metadata[len(MARK) :])), "little")
    except (ValueError, binascii.Error, zlib.error):
        return set()
    found: set[int] = set()
    while bits:
        low = bits & -bits
        found.add(base + low.bit_length() - 1)
        bits ^= low
    return found


@frozen(kw_only=True)
class Membership:
    """What a member consumes, and from where."""

    group_id: str
    main: str  # the topic as Kafka names it; its partitions are shared among the members
    # The delay of topics for retries. The owner of a partition of the topic reads those of the same
    # number here: in the balance of the group they would count like partitions of the topic, and
    # one member could get all of that and the other all of these.
    retries: Mapping[str, float]
    partitions: Mapping[str, int]  # how many a topic for retries has
    marks: Mapping[str, Mapping[int, int]]  # where the group began, before its first commit
    topic: str  # of the bus
    settings: Mapping[str, Any]
    timeout: float
    session: float  # seconds after which a silent member is dead
    drain: float  # seconds handlers have when a partition goes to another member


class MovedError(Exception):
    """Partitions went to another member before it was written that their records are settled."""

    def __init__(self, places: Iterable[Place]) -> None:
        super().__init__(*sorted(set(places)))

    def __str__(self) -> str:
        names = ", ".join(f"{topic} [{number}]" for topic, number in self.args)
        return f"{names} went to another member before the commit was written"


class Member:
    """One member of a consumer group: a thread that polls, and all it knows in the loop."""

    def __init__(self, about: Membership, blocked: Callable[[], bool]) -> None:
        self.about = about
        self.parts: dict[Place, Part] = {}
        self.is_closed = False
        self.ended = asyncio.Event()
        self._blocked = blocked  # True while the group is paused by an operator
        self._loop = asyncio.get_running_loop()
        self._ready: list[tuple[tuple[float, int], Record]] = []
        self._early: deque[Record] = deque()  # to be moved to a topic for retries
        self._numbers = count()
        self._receiving = 0
        self._news = asyncio.Event()  # something became ready, or failed
        self._settled = asyncio.Event()
        self._committing = asyncio.Lock()
        # Parts that went with settlements nobody wrote: should they come back, these still hold.
        self._unwritten: dict[Place, Part] = {}
        self._failure: KafkaError | None = None
        self._is_at_work = False  # read by the thread
        self._fetched: set[Place] = set()  # of the thread: what its client reads
        self._trouble: Any = None  # of a rebalance; poll would raise something else instead
        self._committers = 0
        # Who leaves before the group has told its part stays in there as a shadow for a session.
        self._has_joined = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._idle: asyncio.TimerHandle | None = None
        # What the thread is to do: its client serves one thread at a time, and a commit from
        # another one would wait for the end of a poll that never ends.
        self._words: SimpleQueue[tuple[str, Any, Any]] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"kafka.{about.group_id}", daemon=True
        )
        self._thread.start()

    # In the loop: out.

    async def receive(self, limit: int, wait: float) -> tuple[list[Record], list[Record]]:
        """Records that are ready, and records that came too early and must be moved."""
        deadline = self._loop.time() + wait
        self._receiving += 1
        try:
            while True:
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise library().KafkaException(failure)
                early = self._take_early(limit)
                ready = [] if self._blocked() else self._take(limit)
                left = deadline - self._loop.time()
                if ready or early or left <= 0 or self.is_closed:
                    return ready, early
                self._news.clear()
                with suppress(TimeoutError):
                    # Not longer than a look at the pause: that one comes without news.
                    async with asyncio.timeout(min(left, 0.5)):
                        await self._news.wait()
        finally:
            self._receiving -= 1
            self._rest()

    def _take(self, limit: int) -> list[Record]:
        taken: list[Record] = []
        while self._ready and len(taken) < limit:
            _, record = heapq.heappop(self._ready)
            if not record.part.is_closing:
                self._hand_out(record)
                taken.append(record)
        return taken

    def _take_early(self, limit: int) -> list[Record]:
        taken: list[Record] = []
        while self._early and len(taken) < limit:
            record = self._early.popleft()
            if not record.part.is_closing:
                self._hand_out(record)
                taken.append(record)
        return taken

    def _hand_out(self, record: Record) -> None:
        part = record.part
        part.waiting -= 1
        part.in_flight[record.offset] = record
        self._is_at_work = True
        self._steer(part)

    @property
    def in_flight(self) -> Iterable[Record]:
        """What was handed out and is not settled."""
        return [one for part in self.parts.values() for one in part.in_flight.values()]

    # In the loop: in.

    def _came(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self._troubled(error)
                continue
            part = self.parts.get((str(message.topic()), int(message.partition() or 0)))
            offset = message.offset()
            if part is None or part.is_closing or offset is None or not part.came(offset):
                continue
            part.waiting += 1
            self._keep(self._record(part, offset, message))
        for part in self.parts.values():
            self._steer(part)
        self._news.set()

    def _troubled(self, error: KafkaError) -> None:
        if error.code() != library().KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            self._failure = error

    def _record(self, part: Part, offset: int, raw: Message) -> Record:
        read, not_before = read_message(raw, self.about.topic)
        at = raw.timestamp()[1] / 1000
        due = 0.0
        if part.delay is not None:
            due = min(not_before, at + part.delay)
        # A scheduled message stands where it was sent; its place is where it is due.
        rank = max(at, _moment(read.headers.get(DELIVER_AT)), due)
        key = raw.key() if part.delay is None else None
        return Record(part, offset, read, key, (rank, next(self._numbers)), due, not_before)

    def _keep(self, record: Record) -> None:
        part, now = record.part, clock.timestamp()
        if record.due > now:
            self._delay(record)
        elif record.not_before > now or delay_of(record.message) > 0:
            self._early.append(record)
        elif record.key is None:
            self._make_ready(record)
        elif record.key in part.keys:
            part.keys[record.key].append(record)
        else:
            part.keys[record.key] = deque()
            self._make_ready(record)

    def _make_ready(self, record: Record) -> None:
        heapq.heappush(self._ready, (record.rank, record))
        self._news.set()

    def _delay(self, record: Record) -> None:
        heapq.heappush(record.part.delayed, (record.due, record.rank[1], record))
        self._wake_at(record.due)

    def _wake_at(self, due: float) -> None:
        if self._timer is None or due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            later = max(0.0, due - clock.timestamp())
            self._timer = self._loop.call_later(later, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now, following = clock.timestamp(), 0.0
        for part in self.parts.values():
            while part.delayed and part.delayed[0][0] <= now:
                record = heapq.heappop(part.delayed)[2]
                record.due = 0.0
                if record.key is None:
                    self._keep(record)
                else:
                    self._make_ready(record)  # its key is still its own
            if part.delayed:
                first = part.delayed[0][0]
                following = min(following or first, first)
            self._steer(part)
        if following:
            self._wake_at(following)

    def _steer(self, part: Part) -> None:
        """Pause a partition that is far ahead, let it go on when there is room."""
        if part.is_closing:
            return
        if not part.is_paused:
            if part.waiting >= AHEAD or part.span >= WINDOW:
                part.is_paused = True
                self._words.put(("pause", part.place, None))
        elif part.waiting < RESUME_BELOW and part.span < WINDOW // 2:
            part.is_paused = False
            self._words.put(("resume", part.place, None))

    # In the loop: settled.

    def holds(self, record: Record) -> bool:
        """True while the record may be settled here."""
        return record.part.in_flight.get(record.offset) is record and not record.part.is_gone

    def settle(self, record: Record) -> None:
        """Done, in whatever way; told to Kafka by ``commit``."""
        part = record.part
        del part.in_flight[record.offset]
        record.ticket = part.settle(record.offset)
        if record.key is not None:
            self._pass_on(part, record.key)
        self._note_settled(part)

    def put_back(self, record: Record, message: BusMessage, delay: float) -> None:
        """Hand it out again, here, in its place; those of its key wait for it."""
        part = record.part
        del part.in_flight[record.offset]
        record.message = message
        part.waiting += 1
        if part.is_closing:
            pass
        elif delay > 0:
            record.due = clock.timestamp() + delay
            self._delay(record)
        else:
            self._make_ready(record)
        self._note_settled(part)

    def _pass_on(self, part: Part, key: bytes) -> None:
        behind = part.keys.get(key)
        if behind:
            self._make_ready(behind.popleft())
        else:
            part.keys.pop(key, None)

    def _note_settled(self, part: Part) -> None:
        self._settled.set()
        self._steer(part)
        self._rest()

    async def commit(self, records: Iterable[Record]) -> None:
        """Tell Kafka what is settled; returns when it is written for these records.

        Raises KafkaException, TimeoutError, or MovedError, once: they come again to another member.
        """
        self._committers += 1
        self._is_at_work = True
        try:
            await self._write(records)
        finally:
            self._committers -= 1
            self._rest()

    async def _write(self, records: Iterable[Record]) -> None:
        deadline = self._loop.time() + self.about.timeout
        while unwritten := [one for one in records if not _is_written(one)]:
            error = await self._commit()
            moved = [one for one in unwritten if one.part.is_gone and not _is_written(one)]
            if moved:
                for one in moved:
                    one.ticket = None
                raise MovedError(one.part.place for one in moved)
            if error is None:
                continue
            if not _passes(error.args[0]) or self._loop.time() > deadline:
                raise error
            # The generation changes: what is still ours then is committed in the new one.
            await asyncio.sleep(COMMIT_PAUSE)

    async def _commit(self, *asked: Part) -> Any:
        """One attempt for all that is settled, and for what is asked; the error, if there is one."""
        async with self._committing:
            parts = [
                part
                for part in self.parts.values()
                if part.base is not None and (part.is_dirty or part in asked)
            ]
            if not parts:
                return None
            offsets = [_committed(part) for part in parts]
            told = [(part, part.base, part.settled) for part in parts]
            for part in parts:
                part.is_dirty = False
            written = False
            answer: asyncio.Future[Any] = self._loop.create_future()
            try:
                self._words.put(("commit", offsets, answer))
                async with asyncio.timeout(self.about.timeout):
                    failure = await answer
                written = failure is None
                return failure
            finally:
                for part, base, number in told:
                    if written:
                        part.known, part.written = base, number
                    else:  # also when who waits is cancelled: another commit says it all again
                        part.is_dirty = True

    # Life.

    def _rest(self) -> None:
        """Leave the group when nobody asks: a member that holds partitions keeps others from them."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        busy = self._is_busy()
        self._is_at_work = busy
        if self._has_joined and not self._receiving and not busy:
            self._idle = self._loop.call_later(IDLE, self._leave_if_idle)

    def _is_busy(self) -> bool:
        return self._committers > 0 or any(
            part.in_flight or (part.delay is None and part.delayed) for part in self.parts.values()
        )

    def _leave_if_idle(self) -> None:
        self._idle = None
        if not self._receiving and not self._is_busy():
            self.stop()

    @property
    def is_stopping(self) -> bool:
        """True once it leaves: a receive needs another member then."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Leave the group soon; ``ended`` tells when."""
        self._stopped.set()
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()
        self._news.set()
        self._settled.set()

    async def _assigned(self, parts: Sequence[Part]) -> None:
        for part in parts:
            old = self._unwritten.pop(part.place, None)
            if old is not None:
                part.recall(old)
        self.parts.update((part.place, part) for part in parts)
        # What was recalled. When it fails, the next commit says it again.
        with suppress(TimeoutError):
            await self._commit()
        self._has_joined = True
        self._rest()

    async def _give_up(self, places: Sequence[Place]) -> None:
        """Partitions go to another member: finish what is in hand, commit, forget the rest."""
        going = [self.parts[place] for place in places if place in self.parts]
        for part in going:
            part.is_closing = True
        if await self._drain(going):
            await self._write_last(going)
        self._forget(going)

    async def _drain(self, going: Sequence[Part]) -> bool:
        """Wait for what is in hand, until the end; False when the group goes on without us."""
        deadline = self._loop.time() + self.about.drain
        beat = self.about.session / BEATS
        while any(part.in_flight for part in going) and not self.is_stopping:
            left = deadline - self._loop.time()
            if left <= 0:
                break
            self._settled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, beat)):
                    await self._settled.wait()
                    continue
            # The client tells nothing as long as a rebalance waits for us: a commit does.
            if await self._is_too_late(going):
                return False
        return True

    async def _is_too_late(self, going: Sequence[Part]) -> bool:
        """True when the group is past this generation: it takes no commit of it any more.

        Who joins it again soon keeps the rest; who waits is thrown out with all it has.
        """
        try:
            error = await self._commit(*going)
        except TimeoutError:
            return False
        if error is None or error.args[0].code() not in _rebalancing():
            return False
        self._tell_lost(going, error)
        return True

    async def _write_last(self, going: Sequence[Part]) -> None:
        """Commit while these are still ours; what cannot be written comes again."""
        deadline = self._loop.time() + self.about.timeout
        error: Any = None
        while not all(part.is_written for part in going) and self._loop.time() < deadline:
            try:
                error = await self._commit()
            except TimeoutError as late:
                error = late
                break
            if error is None:
                continue  # or it was that of another one that had begun before
            if error.args[0].code() not in _temporary():
                break
            await asyncio.sleep(COMMIT_PAUSE)
        if error is not None:
            _log.warning(
                "group %s: not committed before a rebalance: %s", self.about.group_id, error
            )

    async def _lost(self, places: Sequence[Place]) -> None:
        lost = [self.parts[place] for place in places if place in self.parts]
        self._tell_lost(lost, "thrown out")
        self._forget(lost)

    def _tell_lost(self, lost: Iterable[Part], why: Any) -> None:
        held = sum(len(part.in_flight) for part in lost)
        _log.warning("group %s: %d in hand go to others: %s", self.about.group_id, held, why)

    def _forget(self, parts: Iterable[Part]) -> None:
        for part in parts:
            part.is_closing = part.is_gone = True
            self.parts.pop(part.place, None)
            if not part.is_written:
                self._unwritten[part.place] = part
        self._rest()

    async def _closing(self) -> None:
        """The last word to Kafka; afterwards nobody uses the client but its thread."""
        parts = list(self.parts.values())
        for part in parts:
            part.is_closing = True
        try:
            # Nobody waits for it: the commit may wait until a rebalance is over.
            deadline = self._loop.time() + self.about.timeout
            while (error := await self._commit()) is not None:
                if not _passes(error.args[0]) or self._loop.time() > deadline:
                    raise error
                await asyncio.sleep(COMMIT_PAUSE)
        except (library().KafkaException, TimeoutError) as error:
            _log.warning("group %s: not committed at its end: %s", self.about.group_id, error)
        self._forget(parts)
        self.is_closed = True

    def _closed(self) -> None:
        self.is_closed = True
        self._stopped.set()
        self.ended.set()
        self._news.set()

    # In the thread.

    def _run(self) -> None:
        try:
            client: Consumer = library().Consumer({**self.about.settings})
        except library().KafkaException as error:
            self._post(self._broken, error.args[0])
            return
        try:
            client.subscribe(
                [self.about.main],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopped.is_set():
                self._obey(client)
                first = client.poll(POLL_BUSY if self._is_at_work else POLL)
                if self._trouble is not None:
                    raise self._trouble
                if first is not None:
                    self._post(self._came, [first, *client.consume(BATCH, timeout=0)])
        except library().KafkaException as error:
            self._post(self._broken, error.args[0])
        finally:
            self._ask(client, self._closing())
            try:
                client.close()
            finally:
                self._post(self._closed)

    def _broken(self, error: KafkaError) -> None:
        self._failure = error
        self.stop()
        self._closed()

    def _obey(self, client: Consumer, wait: float = 0.0) -> None:
        """Do what the loop wants of the client."""
        with suppress(Empty):
            while True:
                word, about, answer = self._words.get(block=wait > 0, timeout=wait or None)
                if word == "commit":
                    self._post(_answer, answer, _write_commit(client, about))
                    continue
                with suppress(library().KafkaException):  # it went to another member meanwhile
                    getattr(client, word)([library().TopicPartition(*about)])

    def _on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        try:
            known = self._known(client, self._with_retries(places)) if places else []
            parts = [self._part(one) for one in known]
        except library().KafkaException as error:
            self._trouble = error
            return
        beginning = library().OFFSET_BEGINNING
        self._ask(client, self._assigned(parts))
        client.incremental_assign(
            [
                library().TopicPartition(*part.place, beginning if part.base is None else part.base)
                for part in parts
            ]
        )
        self._fetched.update(part.place for part in parts)

    def _with_retries(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions of the topic, and those of the same number of its topics for retries."""
        made: list[TopicPartition] = []
        for one in places:
            made.append(library().TopicPartition(one.topic, one.partition))
            made.extend(
                library().TopicPartition(name, one.partition)
                for name in self.about.retries
                if one.partition < self.about.partitions[name]
            )
        return made

    def _known(self, client: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
        """Where the group stands. An answer that is missing is not "at the beginning"."""
        deadline = time.monotonic() + self.about.timeout
        while True:
            known = client.committed(places, timeout=self.about.timeout)
            wrong = [one.error for one in known if one.error is not None]
            if not wrong:
                return known
            if wrong[0].code() not in _temporary() or time.monotonic() > deadline:
                raise library().KafkaException(wrong[0])
            time.sleep(COMMIT_PAUSE)

    def _part(self, known: TopicPartition) -> Part:
        place = (known.topic, known.partition)
        mark = self.about.marks.get(known.topic, {}).get(known.partition)
        base = known.offset if known.offset >= 0 else None
        done = unpack(base, known.metadata) if base is not None else set[int]()
        if mark is not None and (base is None or base < mark):
            base, done = mark, set[int]()  # what a group of that name had before does not count
        return Part(place, self.about.retries.get(known.topic), base, done, base, next=base or 0)

    def _on_revoke(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._part_with(client, places, self._give_up)

    def _on_lost(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._part_with(client, places, self._lost)

    def _part_with(
        self,
        client: Consumer,
        places: Iterable[TopicPartition],
        how: Callable[[Sequence[Place]], Any],
    ) -> None:
        going = self._with_retries(places)
        self._ask(client, how([(one.topic, one.partition) for one in going]))
        # Not those that never were, as something went wrong before: it would be refused.
        there = [one for one in going if (one.topic, one.partition) in self._fetched]
        self._fetched.difference_update((one.topic, one.partition) for one in there)
        client.incremental_unassign(there)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(call, *args)

    def _ask(self, client: Consumer, work: Any) -> None:
        """Have the loop do something, and do what it wants meanwhile."""
        try:
            doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            return
        deadline = time.monotonic() + self.about.drain + 2 * self.about.timeout
        while not doing.done() and time.monotonic() < deadline:
            self._obey(client, POLL_BUSY)
        # What was asked for before is done before: a commit must not name what others have then.
        self._obey(client)
        if not doing.done():
            doing.cancel()
            _log.warning("group %s: the event loop did not answer", self.about.group_id)


def _write_commit(client: Consumer, offsets: list[TopicPartition]) -> Any:
    """The error, if there is one."""
    try:
        answers = client.commit(offsets=offsets, asynchronous=False)
    except library().KafkaException as error:
        return error
    wrong = [one.error for one in answers or () if one.error is not None]
    return library().KafkaException(wrong[0]) if wrong else None


def _answer(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _committed(part: Part) -> TopicPartition:
    base = part.base or 0
    made: TopicPartition = library().TopicPartition(*part.place, base, pack(base, part.done))
    return made


def _is_written(record: Record) -> bool:
    return record.ticket is None or record.ticket <= record.part.written


def _passes(error: KafkaError) -> bool:
    """True when a commit may succeed a moment later."""
    return error.code() in _rebalancing() | _temporary()


def _rebalancing() -> frozenset[int]:
    """What a commit is told while the members of the group change."""
    errors = library().KafkaError
    return frozenset(
        {errors.REBALANCE_IN_PROGRESS, errors.ILLEGAL_GENERATION, errors.UNKNOWN_MEMBER_ID}
    )


def _temporary() -> frozenset[int]:
    """What passes by itself, while a group moves to another broker or one is slow."""
    errors = library().KafkaError
    return frozenset(
        {
            errors.COORDINATOR_LOAD_IN_PROGRESS,
            errors.COORDINATOR_NOT_AVAILABLE,
            errors.NOT_COORDINATOR,
            errors.REQUEST_TIMED_OUT,
            errors.UNSTABLE_OFFSET_COMMIT,
            errors._TIMED_OUT,  # noqa: SLF001 - its name
            errors._TRANSPORT,  # noqa: SLF001 - its name
            errors._WAIT_COORD,  # noqa: SLF001 - its name
        }
    )


def read_message(raw: Message, topic: str) -> tuple[BusMessage, float]:
    """The message in a record, and when it may be delivered."""
    headers = headers_of(raw)
    not_before = 0.0
    if NOT_BEFORE in headers:
        not_before = _moment(headers[NOT_BEFORE])
    own = [name for name in headers if name.startswith(OWN)]
    for name in own:
        del headers[name]
    fallback = f"{raw.topic()}:{raw.partition()}:{raw.offset()}"
    message = from_headers(
        headers, raw.value() or b"", topic=topic, fallback_id=fallback, prefix=PREFIX
    )
    return message, not_before


def headers_of(raw: Message) -> dict[str, Any]:
    """As the last of equal names has it."""
    return dict(cast("Any", raw.headers() or ()))


def _moment(text: Any) -> float:
    if text is None:
        return 0.0
    try:
        return float(text)
    except ValueError:
        return 0.0


# Reading without a group.


def read_range(
    settings: Mapping[str, Any], ranges: Mapping[Place, tuple[int, int]], timeout: float
) -> list[Message]:
    """All records of the ranges (from, to); blocks, for a thread. Raises KafkaException."""
    module = library()
    wanted = {place: ends for place, ends in ranges.items() if ends[0] < ends[1]}
    if not wanted:
        return []
    reader: Consumer = module.Consumer({**settings, "enable.partition.eof": True})
    found: list[Message] = []
    deadline = time.monotonic() + timeout
    try:
        reader.assign([module.TopicPartition(*place, ends[0]) for place, ends in wanted.items()])
        while wanted and time.monotonic() < deadline:
            for message in _next(reader):
                _sort_in(message, wanted, found)
                deadline = time.monotonic() + timeout
    finally:
        reader.close()
    if wanted:
        raise TimeoutError(f"reading {next(iter(wanted))[0]} took too long")
    return found


def _next(reader: Consumer) -> list[Message]:
    first = reader.poll(POLL)
    return [] if first is None else [first, *reader.consume(BATCH, timeout=0)]


def _sort_in(message: Message, wanted: dict[Place, tuple[int, int]], found: list[Message]) -> None:
    place = (str(message.topic()), int(message.partition() or 0))
    error, ends = message.error(), wanted.get(place)
    if error is not None:
        if error.code() != library().KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            raise library().KafkaException(error)
        wanted.pop(place, None)
        return
    offset = message.offset()
    if ends is None or offset is None:
        return
    if offset < ends[1]:
        found.append(message)
    if offset + 1 >= ends[1]:
        del wanted[place]


class Tail:
    """Follows partition 0 of a topic from its beginning: one thread, told in the loop."""

    def __init__(
        self, settings: Mapping[str, Any], topic: str, told: Callable[[Message], None]
    ) -> None:
        self.position = 0  # the offset after the last record that was told
        self._loop = asyncio.get_running_loop()
        self._settings, self._topic, self._told = settings, topic, told
        self._moved = asyncio.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kafka.{topic}", daemon=True)
        self._thread.start()

    async def reach(self, offset: int, timeout: float) -> None:
        """Return when all before the offset was told; raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while self.position < offset:
                self._moved.clear()
                await self._moved.wait()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for its end; blocks, for a thread."""
        self._thread.join()

    def _run(self) -> None:
        module = library()
        reader: Consumer = module.Consumer({**self._settings, "enable.partition.eof": True})
        try:
            reader.assign([module.TopicPartition(self._topic, 0, 0)])
            while not self._stopped.is_set():
                messages = _next(reader)
                if messages:
                    self._loop.call_soon_threadsafe(self._came, messages)
        except RuntimeError:
            _log.debug("the loop of %s is closed", self._topic)
        finally:
            reader.close()

    def _came(self, messages: Sequence[Message]) -> None:
        end = library().KafkaError._PARTITION_EOF  # noqa: SLF001 - its name
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                self._told(message)
                self.position = offset + 1
            elif error is not None and error.code() == end and offset is not None:
                self.position = max(self.position, offset)  # past what was compacted away
            elif error is not None:
                _log.warning("reading %s: %s", self._topic, error)
        self._moved.set()
