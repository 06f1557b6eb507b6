"""A member of a consumer group: records on their way to handlers, and their commits."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.kafka._errors import MovedError, passes, rebalancing, temporary
from lexigram.queue.backends.kafka._partition import WINDOW, Part, Place, Record, commit_of
from lexigram.queue.backends.kafka._poller import COMMIT_PAUSE, Membership, Poller
from lexigram.queue.backends.kafka._wire import library, read_message
from lexigram.queue.runtime.envelope import delay_of, due_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


AHEAD: Final = 1000  # records of a partition held here and not handed out; then it is paused
RESUME_BELOW: Final = 250
IDLE: Final = 1.0  # seconds without a receive and nothing in flight: other members may have it all
# Seconds a commit may take before nothing more is handed out. A group takes no commits from the
# moment a member asks to join again until all have: what is handled in this time comes again when
# the member is killed. Without a bound that would be all records held here.
COMMIT_LATE: Final = 0.2
BEATS: Final = 6  # heartbeats of a member per session

_log = logging.getLogger(__name__)


class Member:
    """One member of a consumer group, in the loop; its client runs in the thread of a poller."""

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
        # Parts that went with settlements nobody wrote: if they are assigned again, these still hold.
        self._unwritten: dict[Place, Part] = {}
        self._failure: KafkaError | None = None
        self._commits: dict[object, float] = {}  # when each call that waits for one began
        # A member that leaves before its assignment arrives stays in the group for a session.
        self._has_joined = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._poller = Poller(about, self)

    # Out.

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
                idle = self._blocked() or self.is_behind
                ready = [] if idle else await self._reserve(self._take(limit))
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

    async def _reserve(self, taken: list[Record]) -> list[Record]:
        """Those of the records that may be handed out: a commit has said so."""
        if all(one.offset < one.part.reserved for one in taken):
            return taken
        ready: list[Record] = []
        error: Any = None
        try:
            error = await self._commit(*{one.part: None for one in taken})
        except TimeoutError as late:
            error = late
        finally:
            for one in taken:
                if not self.holds(one):
                    continue
                if one.offset < one.part.reserved:
                    ready.append(one)
                else:
                    self.put_back(one, one.message, COMMIT_PAUSE)
        if error is not None and not (isinstance(error, TimeoutError) or passes(error.args[0])):
            for one in ready:
                self.put_back(one, one.message, 0.0)
            raise error
        return ready

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
        part.handed = max(part.handed, record.offset + 1)
        self._poller.is_busy = True
        self._steer(part)

    @property
    def is_behind(self) -> bool:
        """True while what was handled some time ago cannot be committed: the next ones wait."""
        begun = next(iter(self._commits.values()), None)
        return begun is not None and self._loop.time() - begun > COMMIT_LATE

    @property
    def in_flight(self) -> Iterable[Record]:
        """The records that were handed out and not settled yet."""
        return [one for part in self.parts.values() for one in part.in_flight.values()]

    # In.

    def on_records(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self._record_error(error)
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

    def _record_error(self, error: KafkaError) -> None:
        if error.code() != library().KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            self._failure = error

    def _record(self, part: Part, offset: int, raw: Message) -> Record:
        read, not_before = read_message(raw, self.about.topic)
        at = raw.timestamp()[1] / 1000
        due = 0.0
        if part.delay is not None:
            due = min(not_before, at + part.delay)
        # A scheduled message stands where it was sent; its place is where it is due.
        rank = max(at, due_of(read), due)
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
                self._poller.pause(part.place)
        elif part.waiting < RESUME_BELOW and part.span < WINDOW // 2:
            part.is_paused = False
            self._poller.resume(part.place)

    # Settled.

    def holds(self, record: Record) -> bool:
        """True while the record may be settled here."""
        return record.part.in_flight.get(record.offset) is record and not record.part.is_gone

    def settle(self, record: Record) -> None:
        """Mark a record as settled; ``commit`` writes it to Kafka."""
        part = record.part
        del part.in_flight[record.offset]
        record.ticket = part.settle(record.offset)
        if record.key is not None:
            self._pass_on(part, record.key)
        self._note_settled(part)

    async def mark_begun(self, record: Record) -> int:
        """Add one to the begins of a record; how many there are once that is written, 0 if lost."""
        part, deadline = record.part, self._loop.time() + self.about.timeout
        if not self.holds(record):
            return 0
        marks = part.begun[record.offset] = part.begun.get(record.offset, 0) + 1
        try:
            while (error := await self._commit(part)) is not None:
                if not passes(error.args[0]) or self._loop.time() > deadline:
                    raise error
                await asyncio.sleep(COMMIT_PAUSE)
        except BaseException:
            part.begun[record.offset] = marks - 1  # another attempt counts the same start
            raise
        return marks if self.holds(record) else 0

    def retry_here(self, record: Record, message: BusMessage, delay: float) -> None:
        """Its handler failed: hand it out again after a while, in its place."""
        record.part.begun.pop(record.offset, None)
        record.part.is_dirty = True
        self.put_back(record, message, delay)

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
        call = object()
        self._commits[call] = self._loop.time()
        self._poller.is_busy = True
        try:
            await self._write(records)
        finally:
            if self.is_behind:
                self._news.set()
            del self._commits[call]
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
            if not passes(error.args[0]) or self._loop.time() > deadline:
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
            offsets = [commit_of(part) for part in parts]
            snapshot = [(part, part.base, part.settled, part.reserves) for part in parts]
            for part in parts:
                part.is_dirty = False
            written = False
            try:
                answer = self._poller.commit(offsets)
                async with asyncio.timeout(self.about.timeout):
                    failure = await answer
                written = failure is None
                return failure
            finally:
                for part, base, number, reserved in snapshot:
                    if written:
                        part.known, part.written, part.reserved = base, number, reserved
                    else:  # also when the caller is cancelled: a later commit repeats all of it
                        part.is_dirty = True

    # Life.

    def _rest(self) -> None:
        """Leave the group when nobody asks: a member that holds partitions keeps others from them."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        busy = self._is_busy()
        self._poller.is_busy = busy
        if self._has_joined and not self._receiving and not busy:
            self._idle = self._loop.call_later(IDLE, self._leave_if_idle)

    def _is_busy(self) -> bool:
        return bool(self._commits) or any(
            part.in_flight or (part.delay is None and part.delayed) for part in self.parts.values()
        )

    def _leave_if_idle(self) -> None:
        self._idle = None
        if not self._receiving and not self._is_busy():
            self.stop()

    @property
    def is_stopping(self) -> bool:
        """True once it leaves: a receive needs another member then."""
        return self._poller.is_stopping

    def stop(self) -> None:
        """Leave the group soon; ``ended`` tells when."""
        self._poller.stop()
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()
        self._news.set()
        self._settled.set()

    async def on_assigned(self, parts: Sequence[Part]) -> None:
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

    async def give_up(self, places: Sequence[Place]) -> None:
        """Partitions go to another member: finish what is in flight, commit, forget the rest."""
        going = [self.parts[place] for place in places if place in self.parts]
        for part in going:
            part.close()
        if await self._drain(going):
            await self._write_last(going)
        self._forget(going)

    async def _drain(self, going: Sequence[Part]) -> bool:
        """Wait for records in flight, until a deadline; False when the group went on alone."""
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
            # While a rebalance waits for us, the client reports nothing: a commit shows its state.
            if await self._is_too_late(going):
                return False
        return True

    async def _is_too_late(self, going: Sequence[Part]) -> bool:
        """True when the group is past this generation: it takes no commit of it any more.

        A member that joins again soon keeps the rest; one that waits loses all its partitions.
        """
        try:
            error = await self._commit(*going)
        except TimeoutError:
            return False
        if error is None or error.args[0].code() not in rebalancing():
            return False
        self._log_lost(going, error)
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
            if error.args[0].code() not in temporary():
                break
            await asyncio.sleep(COMMIT_PAUSE)
        if error is not None:
            _log.warning(
                "group %s: not committed before a rebalance: %s", self.about.group_id, error
            )

    async def on_lost(self, places: Sequence[Place]) -> None:
        lost = [self.parts[place] for place in places if place in self.parts]
        self._log_lost(lost, "removed from the group")
        self._forget(lost)

    def _log_lost(self, lost: Iterable[Part], why: Any) -> None:
        held = sum(len(part.in_flight) for part in lost)
        _log.warning(
            "group %s: %d in-flight messages reassigned: %s", self.about.group_id, held, why
        )

    def _forget(self, parts: Iterable[Part]) -> None:
        for part in parts:
            part.is_closing = part.is_gone = True
            self.parts.pop(part.place, None)
            if not part.is_written:
                self._unwritten[part.place] = part
        self._rest()

    async def closing(self) -> None:
        """The last word to Kafka; afterwards nobody uses the client but its thread."""
        parts = list(self.parts.values())
        for part in parts:
            part.close()
        try:
            # Nobody waits for it: the commit may wait until a rebalance is over.
            deadline = self._loop.time() + self.about.timeout
            while (error := await self._commit()) is not None:
                if not passes(error.args[0]) or self._loop.time() > deadline:
                    raise error
                await asyncio.sleep(COMMIT_PAUSE)
        except (library().KafkaException, TimeoutError) as error:
            _log.warning("group %s: not committed at its end: %s", self.about.group_id, error)
        self._forget(parts)
        self.is_closed = True

    def on_closed(self) -> None:
        self.is_closed = True
        self._poller.stop()
        self.ended.set()
        self._news.set()

    def fail(self, error: KafkaError) -> None:
        """Its thread has ended by this error, which the next receive raises."""
        self._failure = error
        self.stop()
        self.on_closed()


def _is_written(record: Record) -> bool:
    return record.ticket is None or record.ticket <= record.part.written
