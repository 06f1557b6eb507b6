"""The thread of a member: it polls, and does with the client what the loop wants."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from attrs import frozen

from lexigram.queue.backends.kafka._errors import temporary
from lexigram.queue.backends.kafka._partition import CommitNote, Part, Place, unpack
from lexigram.queue.backends.kafka._producer import POLL
from lexigram.queue.backends.kafka._reading import BATCH
from lexigram.queue.backends.kafka._wire import library

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


POLL_BUSY: Final = 0.005  # the poll interval while something is in flight
COMMIT_PAUSE: Final = 0.05  # seconds between attempts while a group is being rebalanced

_log = logging.getLogger(__name__)


class Owner(Protocol):
    """Receives the events of the thread, in the loop."""

    def on_records(self, messages: Sequence[Message]) -> None:
        """Records were read."""

    def fail(self, error: KafkaError) -> None:
        """The thread cannot go on."""

    def on_closed(self) -> None:
        """The thread has ended."""

    async def on_assigned(self, parts: Sequence[Part]) -> None:
        """Partitions are ours."""

    async def give_up(self, places: Sequence[Place]) -> None:
        """Partitions go to another member."""

    async def on_lost(self, places: Sequence[Place]) -> None:
        """Partitions went to another member."""

    async def closing(self) -> None:
        """The client leaves the group after this."""


class Poller:
    """One consumer client and its thread; all of it may be used in the loop only."""

    def __init__(self, about: Membership, owner: Owner) -> None:
        self.is_busy = False  # something is in flight; read by the thread
        self._about, self._owner = about, owner
        self._loop = asyncio.get_running_loop()
        self._fetched: set[Place] = set()  # of the thread: what its client reads
        self._trouble: Any = None  # of a rebalance; poll would raise something else instead
        # What the thread is to do: its client serves one thread at a time, and a commit from
        # another one would wait for the end of a poll that never ends.
        self._words: SimpleQueue[tuple[str, Any, Any]] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"kafka.{about.group_id}", daemon=True
        )
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """True once it is to leave the group."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Leave the group soon."""
        self._stopped.set()

    def pause(self, place: Place) -> None:
        """Read no more of a partition for now."""
        self._words.put(("pause", place, None))

    def resume(self, place: Place) -> None:
        """Go on reading it."""
        self._words.put(("resume", place, None))

    def commit(self, offsets: Sequence[TopicPartition]) -> asyncio.Future[Any]:
        """Write offsets; the future gets the error, or None."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._words.put(("commit", list(offsets), answer))
        return answer

    # In the thread.

    def _run(self) -> None:
        try:
            client: Consumer = library().Consumer({**self._about.settings})
        except library().KafkaException as error:
            self._post(self._owner.fail, error.args[0])
            return
        try:
            client.subscribe(
                [self._about.main],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopped.is_set():
                self._obey(client)
                first = client.poll(POLL_BUSY if self.is_busy else POLL)
                if self._trouble is not None:
                    raise self._trouble
                if first is not None:
                    self._post(self._owner.on_records, [first, *client.consume(BATCH, timeout=0)])
        except library().KafkaException as error:
            self._post(self._owner.fail, error.args[0])
        finally:
            self._ask(client, self._owner.closing())
            try:
                client.close()
            finally:
                self._post(self._owner.on_closed)

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
            known = self._fetch_committed(client, self._with_retries(places)) if places else []
            parts = [self._part(client, one) for one in known]
        except library().KafkaException as error:
            self._trouble = error
            return
        beginning = library().OFFSET_BEGINNING
        self._ask(client, self._owner.on_assigned(parts))
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
                for name in self._about.retries
                if one.partition < self._about.partitions[name]
            )
        return made

    def _fetch_committed(
        self, client: Consumer, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Where the group stands. An answer that is missing is not "at the beginning"."""
        deadline = time.monotonic() + self._about.timeout
        while True:
            known = client.committed(places, timeout=self._about.timeout)
            wrong = [one.error for one in known if one.error is not None]
            if not wrong:
                return known
            if wrong[0].code() not in temporary() or time.monotonic() > deadline:
                raise library().KafkaException(wrong[0])
            time.sleep(COMMIT_PAUSE)

    def _part(self, client: Consumer, known: TopicPartition) -> Part:
        place = (known.topic, known.partition)
        mark = self._about.marks.get(known.topic, {}).get(known.partition)
        base = known.offset if known.offset >= 0 else None
        note = CommitNote() if base is None else unpack(base, known.metadata)
        if mark is not None and (base is None or base < mark):
            base, note = mark, CommitNote()  # what a group of that name had before does not count
        delay = self._about.retries.get(known.topic)
        part = Part(place, delay, base, note.done, base, next=base or 0, begun=note.begun)
        if base is not None and note.reserved > base:
            # What is written after the last owner died was not begun by it.
            ends = client.get_watermark_offsets(known, timeout=self._about.timeout)
            # None when the broker did not answer in time, whatever the client's types say.
            end = note.reserved if cast("Any", ends) is None else ends[1]
            part.suspect_until = min(note.reserved, end)
        return part

    def _on_revoke(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._part_with(client, places, self._owner.give_up)

    def _on_lost(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._part_with(client, places, self._owner.on_lost)

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
        deadline = time.monotonic() + self._about.drain + 2 * self._about.timeout
        while not doing.done() and time.monotonic() < deadline:
            self._obey(client, POLL_BUSY)
        # What was asked for before is done before: a commit must not name what others have then.
        self._obey(client)
        if not doing.done():
            doing.cancel()
            _log.warning("group %s: the event loop did not answer", self._about.group_id)


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
