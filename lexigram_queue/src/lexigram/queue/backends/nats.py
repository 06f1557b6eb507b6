"""The bus on NATS JetStream, from server 2.9 on.

One stream holds the messages of all topics, with retention by interest: a message leaves when the
last group has acknowledged it. A topic is a subject of that stream, a group a durable pull
consumer. One stream and not one per topic, because then a pattern is a consumer with a wider
filter, a batch to several topics is one conversation, and no stream is made while publishing.

What JetStream has not, and how it is done here:

- *Confirmed is kept.* A server that is being stopped forgets its consumers a moment before it
  stops taking messages; what comes in between is confirmed and dropped, for want of interest.
  So after the confirms of a batch the server is asked for a consumer that always exists, the
  *sentinel*: a server that still knows it had all the others when it took the batch.
- *Kept for the first group.* Without interest a message would vanish. A topic nobody consumes has
  a consumer that never reads, its *keeper*; the first group begins where the keeper did.
- *A changed message comes again.* ``nak`` with a delay brings back what is stored. The new
  headers (retry_count) are written to a second stream before that, by group and sequence, and
  looked up when a message is redelivered.
- *Later.* A message that came before its deliver-at is given back with the delay that is left;
  the server keeps that time on disk.
- *Dead letters* are a third stream, one message per group and id. A redriven one goes to its
  topic again, marked for one group; the others let it pass.
- *Paused* groups are marked in the second stream; members hear it at once.
- *Leases.* The server takes an acknowledgement from whoever sends it, also from a member that
  lost the message long ago. So the lease is watched here too, and it ends a little before the
  server's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from attrs import define, frozen

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, NATSDriverConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import (
    dead_headers,
    delay_of,
    escape,
    from_dead_headers,
    from_headers,
    redriven,
    to_headers,
    unescape,
)
from lexigram.queue.errors import NATSQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern, matcher

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

NAME: Final = "nats"
DEFAULT_URL: Final = "nats://localhost:4222"
OLDEST_SERVER: Final = (2, 9)

# Not ORDERING, PRIORITY and FAIRNESS: a consumer hands out in the order of the stream. Not TTL:
# servers before 2.11 have no time to live per message; the runtime sets expired ones aside.
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.ORDERING,
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.TTL,
}

CHUNK_BYTES: Final = 4 * 1024 * 1024  # sent before the confirms are waited for
CHUNK_MESSAGES: Final = 1000
HEADER_FRAME: Final = 64  # bytes of a message with headers that are in none of them, and spare
DEAD_ROOM: Final = 32 * 1024  # bytes kept free in a message for what a dead letter adds
GRACE: Final = 0.25  # seconds by which the server's lease is longer than ours
KNOWN_FOR: Final = 10.0  # seconds a topic is taken to have a group, without asking again
RECORDS_KEPT: Final = 30 * 24 * 3600  # seconds; a record is gone long before, but for crashes
TEMPORARY_FOR: Final = 600  # seconds nobody has received
MAX_WAITING: Final = 4096  # receives that wait at one group; the server's default is 512
PAGE: Final = 250  # dead letters and purged messages read at once
BEHIND: Final = 4  # turns of the loop from the arrival of a message to its handler
LATE: Final = 2.0  # seconds an answer may come after its time

NANOSECONDS: Final = 1_000_000_000
ACK, NAK, PROGRESS = b"+ACK", b"-NAK", b"+WPI"
SENTINEL: Final = "sentinel"  # its subject is of no topic: a lone % is a part without text
ONLY: Final = "Lex-Group"  # the one consumer a redriven message is for
NOT_BEFORE: Final = "Lex-Not-Before"
REPLACED: Final = "Lex-Body"  # the record has a body too
MESSAGE_ID: Final = "Nats-Msg-Id"
NOT_FOUND: Final = 404
CONFLICT: Final = 409  # the consumer or the server goes, or too many wait
HEARTBEAT: Final = 100
SHORT_REPLY: Final = 9  # parts of the subject that settles a message; newer ones have more

_log = logging.getLogger(__name__)
_Json: TypeAlias = dict[str, Any]


class NATSDriver:
    """One member on a NATS server or cluster. ``url`` may list several, separated by commas."""

    name = NAME
    capabilities = CAPABILITIES

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        stream: str = "lexigram",
        replicas: int = 1,
        max_ack_pending: int = -1,
        connect_timeout: float = 5.0,
        request_timeout: float = 5.0,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", stream):
            raise ValueError(f"stream must be letters, digits, - and _, not {stream!r}")
        self.visibility_timeout: float | None = visibility_timeout
        self.stream = stream
        self.address = _address(url)
        self._url, self._lease = url, visibility_timeout
        self._replicas, self._max_ack_pending = replicas, max_ack_pending
        self._connect_timeout, self._request_timeout = connect_timeout, request_timeout
        self._max_backlog, self._dedup_window = max_backlog, dedup_window
        self._records, self._dead = f"{stream}-records", f"{stream}-dead"
        self._opening = asyncio.Lock()
        self._conversation: _Conversation | None = None

    def __repr__(self) -> str:
        return f"NATSDriver({self.address}, stream={self.stream!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What the server takes, less the room for headers."""
        talk = self._conversation
        return None if talk is None else talk.max_payload - talk.dead_room

    # Life.

    async def connect(self) -> None:
        """Open the connection and make the streams exist, or find both in order."""
        async with self._opening:
            talk = self._conversation
            if talk is not None and await talk.answers():
                return
            if talk is not None:
                self._conversation = None
                await talk.close()
            with self._translated("connect"):
                talk = await _Conversation.open(
                    self._url, self._connect_timeout, self._request_timeout
                )
                try:
                    await self._prepare(talk)
                except BaseException:
                    await talk.close()
                    raise
            self._conversation = talk

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its lease ends."""
        talk, self._conversation = self._conversation, None
        if talk is not None:
            await talk.close()

    async def _prepare(self, talk: _Conversation) -> None:
        _check_version(talk.version, self.address)
        window = max(self._dedup_window, 120.0)  # 120: the server's own
        subjects = {"subjects": [f"{self.stream}.>"], "retention": "interest"}
        main = await self._stream(
            talk, self.stream, **subjects, duplicate_window=int(window * NANOSECONDS)
        )
        if main["retention"] != "interest":
            raise NATSQueueError(
                f"stream {self.stream} exists and keeps messages by {main['retention']}",
                hint="give the driver a stream name of its own (setting nats.stream)",
            )
        if main["duplicate_window"] < self._dedup_window * NANOSECONDS:
            main["duplicate_window"] = int(self._dedup_window * NANOSECONDS)
            await talk.ask(f"STREAM.UPDATE.{self.stream}", main)
        if await talk.find(f"CONSUMER.INFO.{self.stream}.{SENTINEL}") is None:
            about = {"sentinel": "lexigram asks for it to know that the stream is alive"}
            await self._create(talk, self._consumer(SENTINEL, f"{self.stream}.%%", about))
        await self._stream(
            talk,
            self._records,
            subjects=[f"{self._records}.>"],
            max_msgs_per_subject=1,
            max_age=RECORDS_KEPT * NANOSECONDS,
        )
        await self._stream(talk, self._dead, subjects=[f"{self._dead}.>"], max_msgs_per_subject=1)
        await talk.subscribe(f"{self._records}.paused.*", self._heard)

    async def _stream(self, talk: _Conversation, name: str, **config: Any) -> _Json:
        found = await talk.find(f"STREAM.INFO.{name}")
        if found is None:
            whole = _STREAM | {"name": name, "num_replicas": self._replicas} | config
            found = await talk.ask(f"STREAM.CREATE.{name}", whole)
        return cast("_Json", found["config"])

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make the consumer exist; the first one of a topic begins with what was kept."""
        talk = self._talk()
        place = _place(self.stream, topic, group)
        with self._translated("declare", topic):
            found = await talk.find(f"CONSUMER.INFO.{self.stream}.{place.name}")
            if found is None:
                await self._make(talk, place, temporary)
            else:
                await self._adjust(talk, found["config"])
            talk.declared.add(place.name)
            if not place.is_pattern:
                await self._delete(talk, _keeper(topic))

    async def _make(self, talk: _Conversation, place: _Place, temporary: bool) -> None:
        config = self._consumer(
            place.name, place.subject, {"topic": place.topic, "group": place.group}
        )
        if temporary:
            config["inactive_threshold"] = TEMPORARY_FOR * NANOSECONDS
        kept = None
        if not place.is_pattern:
            kept = await talk.find(f"CONSUMER.INFO.{self.stream}.{_keeper(place.topic)}")
        if kept is not None and not (await self._look(talk)).has_plain(place.topic):
            config["deliver_policy"] = "by_start_sequence"
            config["opt_start_seq"] = kept["delivered"]["stream_seq"] + 1
        try:
            await self._create(talk, config)
        except _ApiError:
            # Another process was faster, with another beginning: that one counts.
            if await talk.find(f"CONSUMER.INFO.{self.stream}.{place.name}") is None:
                raise

    async def _adjust(self, talk: _Conversation, config: _Json) -> None:
        mine = {"ack_wait": self._ack_wait(), "max_ack_pending": self._max_ack_pending}
        if any(config.get(key) != value for key, value in mine.items()):
            await self._create(talk, config | mine)

    def _consumer(self, name: str, subject: str, about: _Json) -> _Json:
        return _CONSUMER | {
            "durable_name": name,
            "description": json.dumps(about),
            "filter_subject": subject,
            "ack_wait": self._ack_wait(),
            "max_ack_pending": self._max_ack_pending,
        }

    def _ack_wait(self) -> int:
        return int((self._lease + GRACE) * NANOSECONDS)

    async def _create(self, talk: _Conversation, config: _Json) -> None:
        await talk.ask(
            f"CONSUMER.DURABLE.CREATE.{self.stream}.{config['durable_name']}",
            {"stream_name": self.stream, "config": config},
        )

    async def _delete(self, talk: _Conversation, consumer: str) -> bool:
        return await talk.find(f"CONSUMER.DELETE.{self.stream}.{consumer}") is not None

    async def drop(self, topic: str, group: str) -> None:
        """Delete the consumer, its dead letters and its records."""
        talk = self._talk()
        place = _place(self.stream, topic, group)
        with self._translated("drop", topic):
            talk.declared.discard(place.name)
            talk.covered.pop(topic, None)
            found = await talk.find(f"CONSUMER.INFO.{self.stream}.{place.name}")
            # Nobody comes back for the topic of a temporary group, such as one for replies.
            lasting = found is not None and "inactive_threshold" not in found["config"]
            if place.is_pattern or not lasting:
                await self._delete(talk, place.name)
            else:
                await self._delete_lasting(talk, place)
            await talk.ask(f"STREAM.PURGE.{self._dead}", {"filter": f"{self._dead}.{place.name}.*"})
            for kind in (f"{place.name}.*", f"paused.{place.name}"):
                subject = f"{self._records}.{kind}"
                await talk.ask(f"STREAM.PURGE.{self._records}", {"filter": subject})
            talk.paused.pop(place.name, None)

    async def _delete_lasting(self, talk: _Conversation, place: _Place) -> None:
        """Delete a group; a topic that has none then gets its keeper first."""
        if not (await self._look(talk)).covers(place.topic, but=place.name):
            await self._keep(talk, place.topic)
        await self._delete(talk, place.name)
        # Two that go at once may each have seen the other.
        if not (await self._look(talk)).covers(place.topic):
            await self._keep(talk, place.topic)

    async def _keep(self, talk: _Conversation, topic: str) -> None:
        about = {"topic": topic, "kept": True}
        subject = f"{self.stream}.{_subject(topic)}"
        await self._create(talk, self._consumer(_keeper(topic), subject, about))

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All consumers of the stream that were declared here."""
        with self._translated("list groups"):
            return (await self._look(self._talk())).groups

    async def _look(self, talk: _Conversation) -> _Seen:
        seen = _Seen([], set())
        offset, total = 0, 1
        while offset < total:
            page = await talk.ask(f"CONSUMER.LIST.{self.stream}", {"offset": offset})
            consumers: list[_Json] = page.get("consumers") or []
            total = page["total"]
            for one in consumers:
                seen.add(one["config"].get("description") or "")
            offset += len(consumers) or total
        return seen

    # In.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send all, then wait for the confirms; some megabytes at a time."""
        talk = self._talk()
        letters = [self._letter(talk, message) for message in messages]
        with self._translated("publish", messages[0].topic if messages else "unknown"):
            refused = await self._refused(talk, messages)
        at = [number for number in range(len(letters)) if number not in refused]
        lost: dict[int, _Failure] = {}
        for chunk in _chunks(at, letters):
            failures = await talk.publish([letters[number] for number in chunk])
            lost.update((chunk[place], why) for place, why in failures.items())
        if len(lost) < len(at) and (doubt := await self._doubt(talk)) is not None:
            lost = dict.fromkeys(at, doubt) | lost
        if lost or refused:
            unconfirmed = [messages[number].id for number in sorted({*lost, *refused})]
            raise self._not_published(messages, lost, refused, unconfirmed)

    async def _doubt(self, talk: _Conversation) -> _Failure | None:
        """Why what was confirmed so far may not be kept; None: it is."""
        for _ in range(BEHIND):
            # A consumer in this process that just got the message goes first: 0.4 ms on an
            # idle bus, which the write of the question would take from it.
            await asyncio.sleep(0)
        try:
            return _refusal(await talk.request(f"$JS.API.CONSUMER.INFO.{self.stream}.{SENTINEL}"))
        except TimeoutError:
            return TimeoutError("no answer in time")
        except _ClosedError as error:
            return error

    def _letter(self, talk: _Conversation, message: BusMessage) -> _Letter:
        subject = f"{self.stream}.{_subject(message.topic)}"
        headers = _native(to_headers(message))
        if self._dedup_window:
            headers[MESSAGE_ID] = f"{subject}/{_line(message.id)}"
        letter = _Letter(subject, cast("bytes", message.payload), headers)
        most = talk.max_payload - talk.dead_room
        if len(letter.body) > most or letter.size > most + talk.dead_room // 2:
            raise MessageTooLargeError(
                f"{letter.size} bytes with headers are more than NATS takes here ({most})",
                backend=NAME,
                topic=message.topic,
                hint="raise max_payload of the server, or send a reference to stored content",
            )
        return letter

    async def _refused(self, talk: _Conversation, messages: Sequence[BusMessage]) -> set[int]:
        """Which messages find no room; those of a topic with a group always do."""
        now = asyncio.get_running_loop().time()
        covered = talk.covered
        if all(covered.get(message.topic, 0.0) > now for message in messages):
            return set()
        refused: set[int] = set()
        for topic in {message.topic for message in messages}:
            if covered.get(topic, 0.0) > now:
                continue
            places = [at for at, message in enumerate(messages) if message.topic == topic]
            room = await self._room(talk, topic, len(places))
            if room is None:
                covered[topic] = now + KNOWN_FOR
            else:
                refused.update(places[room:])
        return refused

    async def _room(self, talk: _Conversation, topic: str, wanted: int) -> int | None:
        """How many more a topic without a group keeps; None: it has a group.

        Keeper and group are never both absent, and a keeper beside a group goes: whoever adds
        one looks for the other afterwards.
        """
        keeper = _keeper(topic)
        kept = await talk.find(f"CONSUMER.INFO.{self.stream}.{keeper}")
        if kept is None:
            if (await self._look(talk)).covers(topic):
                return None
            await self._keep(talk, topic)
            kept = await talk.ask(f"CONSUMER.INFO.{self.stream}.{keeper}")
            if (await self._look(talk)).covers(topic):
                await self._delete(talk, keeper)
                return None
        room = max(0, self._max_backlog - int(kept["num_pending"]))
        if room < wanted:
            seen = await self._look(talk)
            if seen.covers(topic):  # by a pattern only, or the group came just now
                if not seen.has_plain(topic):
                    _log.warning("topic %s keeps no more for a first group of its own", topic)
                await self._delete(talk, keeper)
                return None
        return room

    def _not_published(
        self,
        messages: Sequence[BusMessage],
        lost: Mapping[int, _Failure],
        refused: set[int],
        unconfirmed: list[str],
    ) -> QueueError:
        details = {"unconfirmed": unconfirmed}
        if lost:
            number, why = next(iter(lost.items()))
            topic = messages[number].topic
            error = self._error(why, "publish", topic)
            error.details.update(details)
            error.__cause__ = why
            return error
        topic = messages[min(refused)].topic
        return QueueFullError(
            f"topic {topic} has no group and already keeps {self._max_backlog} messages",
            backend=NAME,
            topic=topic,
            details=details,
            hint="start a consumer of the topic, or raise max_backlog",
        )

    # Out.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Pull what is there; when nothing is, wait for one."""
        talk = self._talk()
        place = _place(self.stream, topic, group)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        with self._translated("receive", topic):
            if place.name not in talk.declared:
                await self._check_declared(talk, place)
            if place.name not in talk.paused:
                # Not over what was heard meanwhile.
                talk.paused.setdefault(place.name, await self._read_paused(talk, place))
            while True:
                if talk.paused.get(place.name):
                    await talk.wait_resumed(place.name, max(0.0, until - loop.time()))
                    return []
                messages: list[Msg] = []
                left = until - loop.time()
                # The last message said that there was no other: no need to ask before waiting.
                if place.name not in talk.drained or left <= 0:
                    messages = await talk.pull(self.stream, place.name, limit)
                    left = until - loop.time()
                if not messages and left > 0:
                    messages = await self._linger(talk, place, left)
                if messages and messages[-1].reply.endswith(".0"):
                    talk.drained.add(place.name)
                else:
                    talk.drained.discard(place.name)
                taken = await self._take(talk, place, messages) if messages else []
                if taken or not messages:
                    return taken

    async def _linger(self, talk: _Conversation, place: _Place, left: float) -> list[Msg]:
        """Wait for one message. One: what else came would have to be held or given back."""
        try:
            return await talk.pull(self.stream, place.name, 1, wait=left)
        except TimeoutError:
            # The server answers nobody who asks a consumer that does not exist.
            talk.declared.discard(place.name)
            await self._check_declared(talk, place)
            raise

    async def _check_declared(self, talk: _Conversation, place: _Place) -> None:
        if await talk.find(f"CONSUMER.INFO.{self.stream}.{place.name}") is None:
            raise NATSQueueError(
                f"group {place.group!r} of topic {place.topic!r} was never declared",
                topic=place.topic,
                hint="await driver.declare(topic, group) first",
            )
        talk.declared.add(place.name)

    async def _take(
        self, talk: _Conversation, place: _Place, messages: Sequence[Msg]
    ) -> list[Delivery]:
        ends = asyncio.get_running_loop().time() + self._lease
        arrived = [_Arrived(message, _receipt(place.name, message, ends)) for message in messages]
        again = [one for one in arrived if one.receipt.delivered > 1]
        if again:
            await asyncio.gather(*(self._recall(talk, one) for one in again))
        taken: list[Delivery] = []
        scheduled = False
        for one in arrived:
            if not self._is_for(place, one):
                await talk.send(one.receipt.reply, ACK)
                continue
            message = self._read(one)
            early = max(delay_of(message), one.not_before - clock.timestamp())
            if early > 0:
                await talk.send(one.receipt.reply, _nak(early))
                continue
            # The look that came too early does not count.
            looks = 1 if one.receipt.delivered > 1 and DELIVER_AT in message.headers else 0
            taken.append(
                Delivery(
                    message, place.topic, place.group, one.receipt, one.receipt.delivered - looks
                )
            )
            scheduled = scheduled or DELIVER_AT in message.headers
        if scheduled:
            # They stand in the stream where they were sent; their place is where they are due.
            taken.sort(key=lambda one: float(one.message.headers.get(DELIVER_AT, 0.0)))
        return taken

    def _is_for(self, place: _Place, one: _Arrived) -> bool:
        headers = one.message.headers
        if headers is not None and headers.get(ONLY, place.name) != place.name:
            return False
        return not place.is_pattern or matcher(place.topic)(self._topic(one.message.subject))

    def _topic(self, subject: str) -> str:
        return _topic(subject[len(self.stream) + 1 :])

    def _read(self, one: _Arrived) -> BusMessage:
        native, record = one.message.headers or {}, one.record
        body = one.message.data
        if record is not None:
            native = record.headers or {}
            body = record.data if REPLACED in native else body
        return _decoded(native, body, self._topic(one.message.subject), self._fallback(one))

    def _fallback(self, one: _Arrived) -> str:
        """The id of a message that has none of ours: the producer's, else its place."""
        theirs = (one.message.headers or {}).get(MESSAGE_ID)
        return theirs or f"{self.stream}:{one.receipt.sequence}"

    async def _recall(self, talk: _Conversation, one: _Arrived) -> None:
        """Find what ``nack`` wrote about the message, if it did."""
        subject = self._record_of(one.receipt)
        found = await talk.request(f"$JS.API.DIRECT.GET.{self._records}.{subject}")
        status = _status(found)
        if status == NOT_FOUND:
            return
        if status:
            raise _ApiError(status, 0, f"reading a record: {_description(found)}")
        headers = found.headers or {}
        one.record = found
        one.receipt.record = int(headers["Nats-Sequence"])
        one.receipt.has_body = REPLACED in headers
        one.not_before = float(headers.get(NOT_BEFORE, 0.0))

    def _record_of(self, receipt: _Receipt) -> str:
        return f"{self._records}.{receipt.consumer}.{receipt.sequence}"

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; the last one of each consumer is confirmed, and with it all before it."""
        receipts = self._valid(deliveries)
        await self._settle(receipts, ACK, "acknowledge")
        talk = self._talk() if receipts else None
        for receipt in receipts:
            if receipt.record and talk is not None:
                body = json.dumps({"seq": receipt.record, "no_erase": True}).encode()
                await talk.send(f"$JS.API.STREAM.MSG.DELETE.{self._records}", body)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Write down what changed, then give the message back for later."""
        receipts = self._valid([delivery])
        if not receipts:
            return
        if message is not None:
            with self._translated("retry", delivery.topic):
                await self._record(receipts[0], delivery, message, delay)
        await self._settle(receipts, _nak(delay), "retry")

    async def _record(
        self, receipt: _Receipt, delivery: Delivery, message: BusMessage, delay: float
    ) -> None:
        headers = _native(to_headers(message))
        if delay > 0:
            headers[NOT_BEFORE] = repr(clock.timestamp() + delay)
        body = b""
        if message.payload != delivery.message.payload or receipt.has_body:
            headers[REPLACED], body = "replaced", cast("bytes", message.payload)
            receipt.has_body = True
        letter = _Letter(self._record_of(receipt), body, headers)
        receipt.record = await self._talk().publish_one(letter)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Give the messages back at once."""
        await self._settle(self._valid(deliveries), NAK, "release")

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Tell the server that work goes on: the lease begins anew.

        The server knows one length of a lease, so ``seconds`` above it do not make it longer.
        """
        receipts = self._valid(deliveries)
        await self._settle(receipts, PROGRESS, "extend")
        ends = asyncio.get_running_loop().time() + min(seconds, self._lease)
        for receipt in receipts:
            receipt.ends = max(receipt.ends, ends) if seconds >= self._lease else ends
        now = asyncio.get_running_loop().time()
        return [
            one
            for one in deliveries
            if not one.receipt.settled and cast("_Receipt", one.receipt).ends <= now
        ]

    async def _settle(self, receipts: Sequence[_Receipt], word: bytes, what: str) -> None:
        if not receipts:
            return
        talk = self._talk()
        # One consumer takes the words of one connection in order: the last answer is for all.
        last = {receipt.consumer: receipt for receipt in receipts}
        with self._translated(what):
            for receipt in receipts:
                if receipt is not last[receipt.consumer]:
                    await talk.send(receipt.reply, word)
            for receipt in last.values():
                await talk.request(receipt.reply, word)
        if word is not PROGRESS:
            for receipt in receipts:
                receipt.settled = True

    def _valid(self, deliveries: Sequence[Delivery]) -> list[_Receipt]:
        """Those that still belong to us."""
        now = asyncio.get_running_loop().time() if deliveries else 0.0
        receipts = (cast("_Receipt", delivery.receipt) for delivery in deliveries)
        return [one for one in receipts if not one.settled and one.ends > now]

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Write the entry, confirmed; then acknowledge."""
        receipts = self._valid([delivery])
        if not receipts:
            return
        talk = self._talk()
        subject = self._dead_subject(receipts[0].consumer, entry.message.id)
        letter = _Letter(
            subject, cast("bytes", entry.message.payload), _native(dead_headers(entry))
        )
        letter.cut(talk.max_payload)
        with self._translated("dead letter", delivery.topic):
            await talk.publish_one(letter)
        await self.ack_many([delivery])

    def _dead_subject(self, consumer: str, message_id: str) -> str:
        return f"{self._dead}.{consumer}.{_digest(message_id)}"

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Read the entries, oldest first."""
        place = _place(self.stream, topic, group)
        with self._translated("list dead letters", topic):
            found, _ = await self._read_dead(self._talk(), place, offset + limit)
        return [entry for _, entry in found[offset:]]

    async def count_dead(self, topic: str, group: str) -> int:
        """What a consumer of the entries would get; it gets none."""
        place = _place(self.stream, topic, group)
        with self._translated("count dead letters", topic):
            _, count = await self._read_dead(self._talk(), place, 0)
        return count

    async def _read_dead(
        self, talk: _Conversation, place: _Place, number: int
    ) -> tuple[list[tuple[int, DeadLetterEntry]], int]:
        """Up to ``number`` entries with their sequences, and how many there are.

        By a consumer that lasts for this call.
        """
        config = _CONSUMER | {
            "ack_policy": "none",
            "deliver_policy": "all",
            "filter_subject": f"{self._dead}.{place.name}.*",
            "mem_storage": True,
            "inactive_threshold": 30 * NANOSECONDS,
        }
        made = await talk.ask(
            f"CONSUMER.CREATE.{self._dead}", {"stream_name": self._dead, "config": config}
        )
        found: list[Msg] = []
        try:
            while len(found) < number:
                page = await talk.pull(self._dead, made["name"], min(PAGE, number - len(found)))
                found += page
                if not page:
                    break
        finally:
            await talk.send(f"$JS.API.CONSUMER.DELETE.{self._dead}.{made['name']}", b"")
        entries = [self._dead_entry(place, _receipt("", one, 0.0).sequence, one) for one in found]
        return entries, int(made["num_pending"])

    def _dead_entry(self, place: _Place, sequence: int, one: Msg) -> tuple[int, DeadLetterEntry]:
        fallback = f"{self._dead}:{sequence}"
        headers = _plain(one.headers or {})
        return sequence, from_dead_headers(
            headers, one.data, topic=place.topic, fallback_id=fallback
        )

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send entries to their topic again, marked for this group, and drop them."""
        place = _place(self.stream, topic, group)
        done = 0
        with self._translated("redrive", topic):
            talk = self._talk()
            if ids is not None:
                wanted = list(dict.fromkeys(ids))
                for start in range(0, len(wanted), PAGE):
                    entries = await self._find_dead(talk, place, wanted[start : start + PAGE])
                    done += await self._resend(talk, place, entries)
                return done
            # Those that fail again meanwhile are not for this call: it ends.
            entries, left = await self._read_dead(talk, place, PAGE)
            while entries:
                done += await self._resend(talk, place, entries)
                left -= len(entries)
                entries, _ = await self._read_dead(talk, place, min(PAGE, left))
        return done

    async def _find_dead(
        self, talk: _Conversation, place: _Place, ids: Sequence[str]
    ) -> list[tuple[int, DeadLetterEntry]]:
        api = f"$JS.API.DIRECT.GET.{self._dead}"
        found = await asyncio.gather(
            *(talk.request(f"{api}.{self._dead_subject(place.name, one)}") for one in ids)
        )
        return [
            self._dead_entry(place, int((one.headers or {})["Nats-Sequence"]), one)
            for one in found
            if not _status(one)
        ]

    async def _resend(
        self,
        talk: _Conversation,
        place: _Place,
        entries: Sequence[tuple[int, DeadLetterEntry]],
    ) -> int:
        """Publish, be sure of it, then drop: a crash in between doubles, never loses."""
        letters: list[_Letter] = []
        for _, entry in entries:
            message = redriven(entry.message)
            headers = _native(to_headers(message)) | {ONLY: place.name}
            subject = f"{self.stream}.{_subject(message.topic)}"
            letters.append(_Letter(subject, cast("bytes", message.payload), headers))
        for chunk in _chunks(range(len(letters)), letters):
            failures = await talk.publish([letters[number] for number in chunk])
            for failure in failures.values():
                raise failure
        if (doubt := await self._doubt(talk)) is not None:
            raise doubt
        api = f"STREAM.MSG.DELETE.{self._dead}"
        await asyncio.gather(
            *(talk.find(api, {"seq": sequence, "no_erase": True}) for sequence, _ in entries)
        )
        return len(entries)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Drop entries."""
        place = _place(self.stream, topic, group)
        talk = self._talk()
        subjects = (
            [f"{self._dead}.{place.name}.*"]
            if ids is None
            else [self._dead_subject(place.name, one) for one in dict.fromkeys(ids)]
        )
        with self._translated("purge dead letters", topic):
            answers = [
                await talk.ask(f"STREAM.PURGE.{self._dead}", {"filter": subject})
                for subject in subjects
            ]
        return sum(int(answer["purged"]) for answer in answers)

    # Watched and steered.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """What comes next for the first time; retries that wait are not among it."""
        place = _place(self.stream, topic, group)
        found: list[BusMessage] = []
        with self._translated("peek", topic):
            talk = self._talk()
            sequence = (await self._info(talk, place))["delivered"]["stream_seq"]
            while len(found) < limit:
                ask = json.dumps({"seq": sequence + 1, "next_by_subj": place.subject}).encode()
                one = await talk.request(f"$JS.API.DIRECT.GET.{self.stream}", ask)
                if _status(one):
                    break
                headers = one.headers or {}
                sequence = int(headers["Nats-Sequence"])
                one.subject = headers["Nats-Subject"]
                arrived = _Arrived(one, _Receipt("", place.name, sequence, 1, 0.0))
                if self._is_for(place, arrived):
                    found.append(self._read(arrived))
        return found

    async def purge(self, topic: str, group: str) -> int:
        """Take and acknowledge what waits. A retry whose delay is not over stays."""
        place = _place(self.stream, topic, group)
        dropped = 0
        with self._translated("purge", topic):
            talk = self._talk()
            await self._info(talk, place)
            while messages := await talk.pull(self.stream, place.name, PAGE):
                for one in messages[:-1]:
                    await talk.send(one.reply, ACK)
                await talk.request(messages[-1].reply, ACK)
                dropped += sum(
                    self._is_for(place, _Arrived(one, _receipt(place.name, one, 0.0)))
                    for one in messages
                )
        return dropped

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Write the mark; members that listen see it at once."""
        place = _place(self.stream, topic, group)
        subject = f"{self._records}.paused.{place.name}"
        talk = self._talk()
        with self._translated("pause", topic):
            await self._info(talk, place)
            await talk.publish_one(_Letter(subject, b"1" if paused else b"0", {}))
        talk.set_paused(place.name, paused)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Read the mark."""
        with self._translated("ask whether paused", topic):
            return await self._read_paused(self._talk(), _place(self.stream, topic, group))

    async def _read_paused(self, talk: _Conversation, place: _Place) -> bool:
        subject = f"{self._records}.paused.{place.name}"
        mark = await talk.request(f"$JS.API.DIRECT.GET.{self._records}.{subject}")
        return not _status(mark) and mark.data == b"1"

    def _heard(self, talk: _Conversation, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        talk.set_paused(name, message.data == b"1")

    async def depth(self, topic: str, group: str) -> int:
        """What was not delivered yet, and what was and is not acknowledged."""
        with self._translated("depth", topic):
            info = await self._info(self._talk(), _place(self.stream, topic, group))
        return int(info["num_pending"]) + int(info["num_ack_pending"])

    async def lag(self, topic: str, group: str) -> int:
        """What was not delivered yet. What was given back is counted by ``depth`` only."""
        with self._translated("lag", topic):
            info = await self._info(self._talk(), _place(self.stream, topic, group))
        return int(info["num_pending"])

    async def _info(self, talk: _Conversation, place: _Place) -> _Json:
        await self._check_declared(talk, place)
        return await talk.ask(f"CONSUMER.INFO.{self.stream}.{place.name}")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when JetStream tells about the stream in time."""
        begun = clock.monotonic()
        facts = {"address": self.address, "stream": self.stream}
        try:
            async with asyncio.timeout(timeout):
                talk = self._talk()
                with self._translated("health check"):
                    info = await talk.ask(f"STREAM.INFO.{self.stream}")
        except (QueueError, TimeoutError) as error:
            text = error.message if isinstance(error, QueueError) else f"no answer in {timeout} s"
            return HealthCheckResult(
                component="queue",
                status=HealthStatus.UNHEALTHY,
                error=text,
                details=facts,
                duration_ms=(clock.monotonic() - begun) * 1000,
            )
        state = info["state"]
        facts |= {"server": talk.version_text, "messages": state["messages"]}
        return HealthCheckResult(
            component="queue",
            message="NATS queue OK",
            details=facts,
            duration_ms=(clock.monotonic() - begun) * 1000,
        )

    # Errors.

    def _talk(self) -> _Conversation:
        talk = self._conversation
        if talk is None:
            raise NotConnectedError(
                "NATSDriver not connected", backend=NAME, hint="await driver.connect() first"
            )
        if talk.broken is not None:
            raise self._error(talk.broken, "use the connection")
        return talk

    @contextmanager
    def _translated(self, what: str, topic: str = "unknown") -> Generator[None]:
        """The one place where errors of the client and the server become ours."""
        try:
            yield
        except (_ApiError, _ClosedError, TimeoutError, OSError) as error:
            raise self._error(error, what, topic) from error

    def _error(self, error: BaseException, what: str, topic: str = "unknown") -> QueueError:
        text, hint = _explained(error)
        kind = QueueFullError if isinstance(error, _ApiError) and error.is_full else NATSQueueError
        return kind(
            f"could not {what} at {self.address}: {text}", backend=NAME, topic=topic, hint=hint
        )


# Names.


@frozen
class _Place:
    """A topic or pattern and a group, as the server knows them."""

    topic: str
    group: str
    name: str  # of the consumer
    subject: str  # that it filters by
    is_pattern: bool


@lru_cache(maxsize=10_000)
def _place(stream: str, topic: str, group: str) -> _Place:
    pattern = is_pattern(topic)
    name = f"{_slug(topic)}-{_slug(group)}-{_digest(topic, group)}"
    subject = _family(topic) if pattern else _subject(topic)
    return _Place(topic, group, name, f"{stream}.{subject}", pattern)


@lru_cache(maxsize=10_000)
def _keeper(topic: str) -> str:
    return f"kept-{_slug(topic)}-{_digest(topic)}"


@lru_cache(maxsize=10_000)
def _subject(topic: str) -> str:
    """A topic as subject: dots divide it, what a subject cannot hold is percent-encoded.

    A part without any text is a lone percent sign.
    """
    return ".".join(_UNFIT.sub(_percent, part) or "%" for part in topic.split("."))


@lru_cache(maxsize=10_000)
def _topic(subject: str) -> str:
    return ".".join("" if part == "%" else unquote(part) for part in subject.split("."))


def _family(pattern: str) -> str:
    """The narrowest subject with all topics of a pattern, whose star crosses dots too."""
    fixed = pattern.split("*", 1)[0].split(".")[:-1]
    return ".".join([*(_subject(part) for part in fixed), ">"])


def _slug(text: str) -> str:
    """Something an operator recognises; the digest makes it unique."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:40].strip("-")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


_UNFIT: Final = re.compile(r"[^!-$&-)+-=?-~]+")  # not printable, or one of space % * >


@frozen
class _Seen:
    """Which groups and keepers there are."""

    groups: list[tuple[str, str]]
    kept: set[str]

    def add(self, description: str) -> None:
        try:
            about = json.loads(description)
            topic = about["topic"]
        except (ValueError, TypeError, KeyError):
            return  # a consumer somebody else made on our stream
        if "group" in about:
            self.groups.append((topic, about["group"]))
        else:
            self.kept.add(topic)

    def has_plain(self, topic: str) -> bool:
        return any(one == topic for one, _ in self.groups)

    def covers(self, topic: str, *, but: str | None = None) -> bool:
        """Whether a group gets this topic, by name or by pattern."""
        return any(
            (one == topic or (is_pattern(one) and matcher(one)(topic)))
            and (but is None or _place("", one, group).name != but)
            for one, group in self.groups
        )


# Messages.


@define(slots=True, eq=False)
class _Receipt:
    """What settles a delivery, and until when that is ours to do."""

    reply: str
    consumer: str
    sequence: int
    delivered: int
    ends: float
    record: int = 0  # the sequence of what nack wrote about it
    has_body: bool = False
    settled: bool = False


@define(slots=True, eq=False)
class _Arrived:
    message: Msg
    receipt: _Receipt
    record: Msg | None = None
    not_before: float = 0.0


class _Letter:
    """What is published."""

    __slots__ = ("body", "headers", "size", "subject")

    def __init__(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        self.subject, self.body, self.headers = subject, body, headers
        # four bytes around each header, and the line before them
        text = len("".join(headers)) + len("".join(headers.values()))
        self.size = len(body) + text + 4 * len(headers) + HEADER_FRAME

    def cut(self, most: int) -> None:
        """Shorten trace and error until the dead letter fits; the message itself is kept whole."""
        for name in ("dead-traceback", "dead-error"):
            over = self.size - most
            if over > 0 and name in self.headers:
                whole = self.headers[name]
                self.headers[name] = whole[over:]
                self.size -= len(whole) - len(self.headers[name])


def _receipt(consumer: str, message: Msg, ends: float) -> _Receipt:
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.…, since 2.10 maybe with domain and account
    tokens = message.reply.split(".")
    at = 4 if len(tokens) == SHORT_REPLY else 6
    return _Receipt(message.reply, consumer, int(tokens[at + 1]), int(tokens[at]), ends)


def _native(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as NATS takes them: names are tokens, values one trimmed line of ASCII."""
    text = "".join(headers.values())
    if text.isascii() and text.isprintable() and " " not in text and "%" not in text:
        return {_header_name(name): value for name, value in headers.items()}
    return {_header_name(name): _line(value) for name, value in headers.items()}


def _plain(native: Mapping[str, str]) -> dict[str, str]:
    """The inverse, without what the server and the driver added."""
    headers = {name: value for name, value in native.items() if not name.startswith(_ADDED)}
    if "%" not in "".join(headers) and "%" not in "".join(headers.values()):
        return headers
    return {
        "" if name == "%" else unescape(name): unescape(value) for name, value in headers.items()
    }


def _line(value: str) -> str:
    is_plain = value.isascii() and value.isprintable() and "%" not in value
    text = value if is_plain else escape(value)
    if text[:1] == " " or text[-1:] == " ":
        inner = text.strip(" ")
        at = text.index(inner) if inner else len(text)
        text = "%20" * at + inner + "%20" * (len(text) - at - len(inner))
    return text


@lru_cache(maxsize=10_000)
def _header_name(name: str) -> str:
    text = _NO_TOKEN.sub(_percent, name) or "%"
    # What the server itself obeys must not come from an application.
    return f"%{ord(text[0]):02X}{text[1:]}" if text.lower().startswith(_TAKEN) else text


_NO_TOKEN: Final = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]+")
_TAKEN: Final = ("nats-", "lex-", "status", "description")
_ADDED: Final = ("Nats-", "Lex-")
_OURS: Final = "ce-lextopic"


def _decoded(native: Mapping[str, str], body: bytes, topic: str, fallback_id: str) -> BusMessage:
    if _OURS in native:
        headers = _plain(native)
    else:  # of a foreign producer, who escapes nothing
        headers = {name: value for name, value in native.items() if not name.startswith(_ADDED)}
    return from_headers(headers, body, topic=topic, fallback_id=fallback_id)


def _nak(delay: float) -> bytes:
    if delay <= 0:
        return NAK
    return NAK + b' {"delay": %d}' % int(delay * NANOSECONDS)


def _chunks(numbers: Sequence[int], letters: Sequence[_Letter]) -> Iterable[list[int]]:
    chunk: list[int] = []
    size = 0
    for number in numbers:
        chunk.append(number)
        size += letters[number].size
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_MESSAGES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _status(message: Msg) -> int:
    """The status of an answer without content; 0 for a message."""
    headers = message.headers
    return int(headers.get("Status", 0)) if headers and not message.data else 0


def _description(message: Msg) -> str:
    return str((message.headers or {}).get("Description", ""))


# The connection.


class _ApiError(Exception):
    """JetStream said no."""

    def __init__(self, code: int, number: int, text: str) -> None:
        super().__init__(text)
        self.code, self.number = code, number

    @property
    def is_full(self) -> bool:
        """A limit that an operator set on the stream or the account."""
        text = str(self)
        return "exceeded" in text or "insufficient" in text


class _ClosedError(Exception):
    """The connection is gone, was refused, or may not do this."""


_Failure: TypeAlias = _ApiError | _ClosedError | TimeoutError
_Listener: TypeAlias = Callable[["_Conversation", "Msg"], None]


class _Conversation:
    """One connection: sends, and brings answers to who asked.

    Answers come to subjects below one inbox, ``<inbox>.<number of the question>``. There is no
    reconnecting below the runtime: a connection that breaks fails all that wait, at once.
    """

    def __init__(self, client: Client, timeout: float) -> None:
        self.client = client
        self._timeout = timeout
        self.broken: _ClosedError | None = None
        self.declared: set[str] = set()  # consumers known to exist
        self.drained: set[str] = set()  # consumers that had nothing new behind the last message
        self.covered: dict[str, float] = {}  # topics with a group, and until when that is believed
        self.paused: dict[str, bool] = {}
        self._resumed: dict[str, asyncio.Event] = {}
        self._inbox = ""
        self._number = 0
        self._asked: dict[str, _Question] = {}
        self.readers: list[_Reader] = []  # those without a pull

    @classmethod
    async def open(cls, url: str, connect_timeout: float, timeout: float) -> _Conversation:
        """Connect to the first server that answers."""
        library = require_library("nats.aio.client", extra="nats")
        failed: list[BaseException] = []
        talk: _Conversation | None = None

        async def on_error(error: Exception) -> None:
            failed.append(error)
            if talk is not None:
                talk.refused(error)

        async def on_close() -> None:
            if talk is not None:
                talk.fail(_ClosedError("the connection was lost"))

        client: Client = library.Client()
        try:
            async with asyncio.timeout(connect_timeout):
                await client.connect(
                    _servers(url),
                    name="lexigram",
                    error_cb=on_error,
                    closed_cb=on_close,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=cast("int", 0.05),
                    connect_timeout=cast("int", connect_timeout),
                    # No buffer for bad times: what cannot be sent now is an error now.
                    pending_size=0,
                )
        except (library.errors.Error, OSError, TimeoutError, ValueError) as error:
            cause = next((one for one in reversed(failed) if str(one)), error)
            await _shut(client)
            raise _ClosedError(_scrubbed(str(cause) or "no answer in time", url)) from error
        talk = cls(client, timeout)
        talk._inbox = client.new_inbox()
        await talk.hear(f"{talk._inbox}.>", talk._answered)
        return talk

    @property
    def version_text(self) -> str:
        """Of the server."""
        found = self.client.connected_server_version
        return f"{found.major}.{found.minor}.{found.patch}"

    @property
    def version(self) -> tuple[int, int]:
        """Of the server, as far as it matters."""
        found = self.client.connected_server_version
        return found.major, found.minor

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together."""
        return self.client.max_payload

    @property
    def dead_room(self) -> int:
        """Bytes a message leaves free."""
        return min(DEAD_ROOM, self.max_payload // 4)

    async def answers(self) -> bool:
        """Whether it still works."""
        if self.broken is not None or not self.client.is_connected:
            return False
        try:
            await self.find("INFO")
        except (_ApiError, _ClosedError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        self.fail(_ClosedError("the connection was closed"))
        await _shut(self.client)

    async def subscribe(self, subject: str, listener: _Listener) -> None:
        """Hear what is published."""

        async def heard(message: Msg) -> None:
            listener(self, message)

        await self.hear(subject, heard)

    async def hear(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> None:
        """Subscribe, without the limits above which the client drops what has come."""
        client: Any = self.client
        await client.subscribe(subject, cb=heard, pending_msgs_limit=0, pending_bytes_limit=0)

    def fail(self, error: _ClosedError) -> None:
        """Nobody waits for a connection that is gone."""
        self.broken = self.broken or error
        asked, self._asked = self._asked, {}
        for question in asked.values():
            question.fail(error)
        for event in self._resumed.values():
            event.set()

    def refused(self, error: Exception) -> None:
        """The server forbids something: who asked for it is told, instead of waiting."""
        text = str(error)
        if "permissions violation" not in text.lower():
            return
        found = re.search(r'"([^"]+)"', text)
        for number, question in list(self._asked.items()):
            if found is None or question.subject == found[1]:
                del self._asked[number]
                question.fail(_ClosedError(text.removeprefix("nats: ")))

    # Talk.

    async def send(self, subject: str, body: bytes, reply: str = "") -> None:
        """Write without waiting for anything."""
        await self._publish(subject, body, reply, None)

    async def request(self, subject: str, body: bytes = b"") -> Msg:
        """Write and wait for the answer."""
        question = _One(subject)
        with self._asking(question) as reply:
            await self._publish(subject, body, reply, None)
            async with asyncio.timeout(self._timeout):
                return cast("Msg", await question.done)

    async def ask(self, api: str, body: _Json | None = None) -> _Json:
        """Ask JetStream; raises _ApiError."""
        text = b"" if body is None else json.dumps(body).encode()
        answer = await self.request(f"$JS.API.{api}", text)
        if _status(answer):
            raise _ApiError(_status(answer), 0, "nobody answers for JetStream")
        found = cast("_Json", json.loads(answer.data))
        if "error" in found:
            raise _api_error(found["error"])
        return found

    async def find(self, api: str, body: _Json | None = None) -> _Json | None:
        """Ask JetStream for something that may not exist."""
        try:
            return await self.ask(api, body)
        except _ApiError as error:
            if error.code == NOT_FOUND or error.number == _NO_MESSAGE:
                return None
            raise

    async def publish(self, letters: Sequence[_Letter]) -> dict[int, _Failure]:
        """Write all, then wait for all confirms; what failed, by place."""
        question = _Confirms(letters[0].subject, len(letters))
        with self._asking(question) as reply:
            try:
                for at, letter in enumerate(letters):
                    await self._publish(
                        letter.subject, letter.body, f"{reply}.{at}", letter.headers
                    )
                async with asyncio.timeout(self._timeout + len(letters) / 1000):
                    await question.done
            except (_ClosedError, TimeoutError) as error:
                failure: _Failure = error
                if isinstance(error, TimeoutError):
                    failure = TimeoutError("no confirm in time")
                return question.failures | dict.fromkeys(question.open, failure)
        return question.failures

    async def publish_one(self, letter: _Letter) -> int:
        """Write and wait for the confirm; the sequence."""
        question = _One(letter.subject)
        with self._asking(question) as reply:
            await self._publish(letter.subject, letter.body, reply, letter.headers)
            async with asyncio.timeout(self._timeout):
                answer = await question.done
        failure = _refusal(answer)
        if failure is not None:
            raise failure
        return int(json.loads(answer.data)["seq"])

    async def pull(
        self, stream: str, consumer: str, batch: int, *, wait: float | None = None
    ) -> list[Msg]:
        """Up to ``batch`` messages that are there; with ``wait``, those that come in time."""
        ask: _Json = {"batch": batch}
        if wait is None:
            ask["no_wait"] = True
        else:
            ask["expires"] = max(1, int(wait * NANOSECONDS))
        patience = self._timeout if wait is None else wait + LATE
        question = _Pull(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", consumer, batch)
        with self._asking(question):
            reader = self.readers.pop() if self.readers else await self._new_reader()
            reader.pull = question
            try:
                await self._publish(question.subject, json.dumps(ask).encode(), reader.inbox, None)
                async with asyncio.timeout(patience):
                    await question.done
            except BaseException:
                # What came is given back at once; what still comes is given back by the reader.
                for message in question.messages:
                    await self.hand_back(message)
                question.stop()
                raise
        return question.messages

    async def _new_reader(self) -> _Reader:
        reader = _Reader(self, self.client.new_inbox())
        await self.hear(reader.inbox, reader.heard)
        return reader

    async def _publish(
        self, subject: str, body: bytes, reply: str, headers: dict[str, str] | None
    ) -> None:
        if self.broken is not None:
            raise self.broken
        try:
            await self.client.publish(subject, body, reply, headers)
        except Exception as error:  # of the client, which has no base but Exception
            raise _ClosedError(f"{type(error).__name__}: {error}") from error

    @contextmanager
    def _asking(self, question: _Question) -> Generator[str]:
        self._number += 1
        number = str(self._number)
        self._asked[number] = question
        try:
            yield f"{self._inbox}.{number}"
        finally:
            self._asked.pop(number, None)

    async def _answered(self, message: Msg) -> None:
        number, _, rest = message.subject[len(self._inbox) + 1 :].partition(".")
        question = self._asked.get(number)
        if question is not None:
            question.answer(message, rest)

    async def hand_back(self, message: Msg) -> None:
        """Give back what nobody waits for any more."""
        if self.broken is None:
            await self.send(message.reply, NAK)

    # Pauses.

    def set_paused(self, consumer: str, paused: bool) -> None:
        self.paused[consumer] = paused
        if paused:
            for question in self._asked.values():
                if isinstance(question, _Pull) and question.consumer == consumer:
                    question.stop()
        elif consumer in self._resumed:
            self._resumed.pop(consumer).set()

    async def wait_resumed(self, consumer: str, wait: float) -> None:
        event = self._resumed.setdefault(consumer, asyncio.Event())
        try:
            async with asyncio.timeout(wait):
                await event.wait()
        except TimeoutError:
            return


class _Question:
    """Something that waits for answers."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, message: Msg, rest: str) -> None:
        """Take an answer; ``rest`` says which, where there are several."""

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # who asked may be gone: nobody must be warned of it


class _One(_Question):
    def answer(self, message: Msg, rest: str) -> None:
        if not self.done.done():
            self.done.set_result(message)


class _Confirms(_Question):
    def __init__(self, subject: str, number: int) -> None:
        super().__init__(subject)
        self.open = set(range(number))
        self.failures: dict[int, _Failure] = {}

    def answer(self, message: Msg, rest: str) -> None:
        at = int(rest)
        self.open.discard(at)
        failure = _refusal(message)
        if failure is not None:
            self.failures[at] = failure
        if not self.open and not self.done.done():
            self.done.set_result(None)


class _Pull(_Question):
    def __init__(self, subject: str, consumer: str, batch: int) -> None:
        super().__init__(subject)
        self.consumer, self.left = consumer, batch
        self.messages: list[Msg] = []

    def take(self, message: Msg) -> None:
        if message.reply:
            self.messages.append(message)
            if self.left <= 0:
                self.stop()
        elif _status(message) == CONFLICT and "deleted" in _description(message).lower():
            self.fail(_ApiError(CONFLICT, 0, _description(message)))
        else:
            self.stop()  # no more for now

    def is_end(self, message: Msg) -> bool:
        """Count; True when the server sends no more for this pull."""
        if message.reply:
            self.left -= 1
        elif _status(message) != HEARTBEAT:
            return True
        return self.left <= 0

    def stop(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Reader:
    """An inbox for the messages of one pull after the other.

    Messages come under their own subject, so that only the inbox tells whose they are. It takes
    the next pull when the server has ended the one before.
    """

    def __init__(self, talk: _Conversation, inbox: str) -> None:
        self._talk, self.inbox = talk, inbox
        self.pull: _Pull | None = None

    async def heard(self, message: Msg) -> None:
        pull = self.pull
        if pull is None:
            return
        ended = pull.is_end(message)
        if not pull.done.done():
            pull.take(message)
        elif message.reply:
            await self._talk.hand_back(message)
        if ended:
            self.pull = None
            self._talk.readers.append(self)


def _refusal(message: Msg) -> _Failure | None:
    """Why a publish was not confirmed; None when it was."""
    data = message.data
    if not data:
        return _ApiError(_status(message), 0, "no stream of JetStream answers")
    if b'"error"' not in data:
        return None
    found = json.loads(data)
    return _api_error(found["error"]) if "error" in found else None


def _api_error(error: _Json) -> _ApiError:
    return _ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))


async def _shut(client: Client) -> None:
    """Close the client; one that never was open, or that hangs, has nothing worth waiting for."""
    try:
        async with asyncio.timeout(LATE):
            await client.close()
    except (OSError, AssertionError, TimeoutError) as error:
        _log.debug("closing a connection: %r", error)


_NO_MESSAGE: Final = 10057  # deleting what is not there
_STREAM: Final[_Json] = {
    "storage": "file",
    "retention": "limits",
    "discard": "old",
    "allow_direct": True,
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
}
_CONSUMER: Final[_Json] = {
    "deliver_policy": "new",
    "ack_policy": "explicit",
    "replay_policy": "instant",
    "max_deliver": -1,  # the runtime decides what is poison
    "max_waiting": MAX_WAITING,
}


# What went wrong, for people.


def _servers(url: str) -> list[str]:
    servers = [one.strip() for one in url.split(",") if one.strip()]
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
            raise _ClosedError("the URL is not of the form nats://user:password@host:port")
        try:
            _ = parts.port
        except ValueError as error:
            raise _ClosedError("the port in the URL is not a number") from error
    if not servers:
        raise _ClosedError("the URL is empty")
    return servers


def _address(url: str) -> str:
    """Where it is, without who asks."""
    return ",".join(one.strip().rpartition("@")[2].rpartition("//")[2] for one in url.split(","))


def _scrubbed(text: str, url: str) -> str:
    for one in url.split(","):
        secret = one.rpartition("@")[0].rpartition("//")[2]
        for part in filter(None, [secret, *secret.split(":")[1:]]):
            text = text.replace(part, "***")
    return text


def _check_version(version: tuple[int, int], address: str) -> None:
    if version < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        raise NATSQueueError(
            f"the NATS server at {address} is older than {wanted}", hint=f"use {wanted} or later"
        )


def _explained(error: BaseException) -> tuple[str, str]:
    """The text of an error, and what to do about it."""
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
    low = text.lower()
    if "authorization" in low or "authentication" in low:
        return text, "check user and password or token in the URL"
    if "permissions violation" in low:
        return text, "allow the user $JS.API.>, $JS.ACK.>, _INBOX.> and the subjects of the stream"
    if "jetstream" in low or "no responders" in low:
        return text, "start the server with JetStream (nats-server -js) and allow it in the account"
    if "of the form" in text or "in the url" in low or "url is empty" in low:
        return text, "set url, such as nats://user:password@localhost:4222"
    if isinstance(error, _ApiError):
        if error.is_full:
            return text, "raise the limits of the stream or of the account"
        return text, "look at the streams with `nats stream report`"
    return text, "check that the server runs and that url names its host and port"


class NATSQueue(BusQueue):
    """The bus on NATS, usable without a container: ``await NATSQueue(url).connect()``."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        stream: str = "lexigram",
        *,
        options: BusOptions | None = None,
        **settings: Any,
    ) -> None:
        """``settings``: those of NATSDriver, such as ``visibility_timeout``."""
        super().__init__(NATSDriver(url, stream=stream, **settings), options=options)


def build(entry: NamedQueueConfig, services: Services) -> NATSDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    own = entry.nats or NATSDriverConfig()
    return NATSDriver(
        own.url or DEFAULT_URL,
        stream=own.stream,
        replicas=own.replicas,
        max_ack_pending=own.max_ack_pending,
        connect_timeout=own.connect_timeout,
        request_timeout=own.request_timeout,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )
