"""The bus on Apache Kafka.

A topic of the bus is a topic of Kafka, a group is a consumer group for each of its topics, and
the ordering key is the key of the record. What Kafka has not, and how it is done here:

- *Settled one by one.* A group commits the first offset of a partition that is not settled, and
  with it, in the metadata of the commit, which of those behind it are. So the next owner of the
  partition hands out exactly what is not settled.
- *Again later, and to one group.* Every group has topics for retries of its own, by the length
  of the delay. Their consumer reads a bounded part ahead, hands out what is due and pauses the
  partition; nobody sleeps, and the topic itself is not held up. Who has a partition of the topic
  reads those of the same number of its topics for retries. A message with an ordering key waits
  in its place instead, with those of its key behind it.
- *Dead letters* are a compacted topic for each group, by message id; dropping one is a tombstone.
- *Who has declared what* is a compacted topic of the driver, its control topic: groups with the
  offsets they began at, and pauses. Every driver follows it.
- *Members that do not ask* leave their consumer group after a second: a partition has one owner,
  and what an idle one owns nobody would get.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from attrs import define, field, frozen

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.kafka_clients import (
    BEATS,
    NOT_BEFORE,
    OWN,
    PREFIX,
    Letter,
    Member,
    Membership,
    MovedError,
    Place,
    Pump,
    Record,
    Tail,
    headers_of,
    library,
    read_message,
    read_range,
    unpack,
)
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import KafkaDriverConfig, NamedQueueConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import (
    dead_headers,
    delay_of,
    from_dead_headers,
    redriven,
    to_headers,
)
from lexigram.queue.errors import KafkaQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from lexigram.contracts.observability.tracing import TracerProtocol

NAME: Final = "kafka"
DEFAULT_SERVERS: Final = "localhost:9092"
DEFAULT_GROUP_ID: Final = "lexigram-consumers"

# Not PRIORITY and FAIRNESS: a partition is read in its order. Not TTL: Kafka deletes by the age
# of a topic. Not DEDUP: an idempotent producer knows its own repetitions only. Not LEASE_EXTEND:
# a delivery is kept until it is settled. Not PURGE: what others own cannot be committed for them.
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.TTL,
    Capability.DEDUP,
    Capability.LEASE_EXTEND,
    Capability.PATTERN,
    Capability.PURGE,
}

RETRIES: Final = {"0s": 0.0, "5s": 5.0, "1m": 60.0, "10m": 600.0, "1h": 3600.0}
NAME_LENGTH: Final = 249  # characters of a topic
DEAD_ROOM: Final = 48 * 1024  # bytes kept free in a message for what a dead letter adds
STICKY: Final = 16  # messages without a key that go to one partition, one after the other
STICKY_SECONDS: Final = 1.0  # then too: what is sent at leisure is ordered by its time
WORKERS: Final = 8  # threads for calls of the client that wait for an answer
FETCH_WAIT: Final = 100  # milliseconds a broker without news keeps a question

_Marks = dict[str, dict[int, int]]
_T = TypeVar("_T")


class KafkaDriver:
    """One member on a Kafka cluster."""

    name = NAME
    capabilities = CAPABILITIES
    visibility_timeout: float | None = None

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_SERVERS,
        *,
        client_id: str = "lexigram",
        group_id: str = DEFAULT_GROUP_ID,
        auto_offset_reset: str = "latest",
        partitions: int = 6,
        replicas: int | None = None,
        timeout: float = 10.0,
        session_timeout: float = 10.0,
        rebalance_timeout: float = 10.0,
        max_message_bytes: int = 1_000_000,
        properties: Mapping[str, Any] | None = None,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
    ) -> None:
        self.servers, self.group_id = bootstrap_servers, group_id
        self._client_id, self._reset = client_id, auto_offset_reset
        self._new_partitions, self._replicas = partitions, replicas
        self._timeout, self._session, self._drain = timeout, session_timeout, rebalance_timeout
        self._largest, self._max_backlog = max_message_bytes, max_backlog
        self._properties = dict(properties or {})
        self._control = _legal(f"{group_id}.control")
        self._opening = asyncio.Lock()
        self._open: _Connection | None = None

    def __repr__(self) -> str:
        return f"KafkaDriver({self.servers}, group_id={self.group_id!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What the brokers take, less the room a dead letter needs."""
        return self._largest - DEAD_ROOM

    # Life.

    async def connect(self) -> None:
        """Make the clients and the control topic, or find them in order."""
        async with self._opening:
            there = self._open
            if there is not None:
                if there.pump.fatal is None and await there.answers(self._timeout):
                    return
                self._open = None
                await there.close()
            self._open = await self._connect()

    async def _connect(self) -> _Connection:
        executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="kafka.call")
        made: _Connection | None = None
        try:
            with self._translated("connect"):
                made = _Connection(
                    executor,
                    *await asyncio.get_running_loop().run_in_executor(executor, self._clients),
                )
                await self._ensure(made, [self._control])
                made.tail = Tail(self._reader(), self._control, made.state.apply)
                await self._sync(made)
        except BaseException:
            if made is None:
                executor.shutdown(wait=False)
            else:
                await made.close()
            raise
        return made

    def _clients(self) -> tuple[Pump, Any]:
        admin = require_library("confluent_kafka.admin", extra="kafka").AdminClient(
            self._settings()
        )
        milliseconds = int(self._timeout * 1000)
        pump = Pump(
            self._settings()
            | {
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": milliseconds,
                "message.max.bytes": self._largest,
                "partitioner": "murmur2_random",  # as the clients of others place keys
            },
            self._timeout,
        )
        try:
            # Asked by the producer: it then has its number for idempotence half a second earlier.
            pump.client.list_topics(timeout=self._timeout)
        except library().KafkaException as error:
            pump.stop()
            # Its own words are "transport failure"; what the brokers said is better.
            if pump.last_error is not None:
                raise library().KafkaException(pump.last_error) from error
            raise
        return pump, admin

    def _settings(self) -> dict[str, Any]:
        """What every client is told. Its own log would repeat what is raised here."""
        return {
            "bootstrap.servers": self.servers,
            "client.id": self._client_id,
            "log_level": 2,
            "reconnect.backoff.max.ms": 2000,
            "socket.timeout.ms": int(self._timeout * 1000),
            "topic.metadata.refresh.interval.ms": 30_000,
            **self._properties,
        }

    def _reader(self) -> dict[str, Any]:
        return self._settings() | {
            "group.id": f"{self.group_id}.readers",  # never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": FETCH_WAIT // 2,
        }

    async def close(self) -> None:
        """Leave the groups; what was not settled is delivered again."""
        there, self._open = self._open, None
        if there is not None:
            await there.close()

    def _there(self) -> _Connection:
        if self._open is None:
            raise NotConnectedError(
                "KafkaDriver not connected", backend=NAME, hint="await driver.connect() first"
            )
        return self._open

    # Topics of Kafka.

    async def _ensure_place(self, there: _Connection, place: _Place) -> None:
        """Topics for retries have as many partitions as the topic they follow."""
        await self._ensure(there, [place.main])
        await self._ensure(there, place.all_topics, there.partitions[place.main])

    async def _ensure(
        self, there: _Connection, names: Iterable[str], partitions: int | None = None
    ) -> None:
        """Make topics exist, and know their partitions."""
        missing = [name for name in names if name not in there.partitions]
        if missing:
            make = partial(self._make_topics, partitions=partitions)
            there.partitions.update(await there.call(make, there.admin, missing))

    def _make_topics(
        self, admin: Any, names: Sequence[str], partitions: int | None = None
    ) -> dict[str, int]:
        """Blocks, for a thread. Clusters that make topics by themselves are asked for them."""
        cluster = admin.list_topics(timeout=self._timeout)
        missing = [name for name in names if name not in cluster.topics]
        if missing and cluster.controller_id in cluster.brokers:
            new = [self._new_topic(name, partitions or self._new_partitions) for name in missing]
            for made in admin.create_topics(new, request_timeout=self._timeout).values():
                try:
                    made.result(self._timeout)
                except library().KafkaException as error:
                    errors = library().KafkaError
                    # Another process was faster, or the brokers cannot be asked.
                    if error.args[0].code() not in (
                        errors.TOPIC_ALREADY_EXISTS,
                        errors._UNSUPPORTED_FEATURE,  # noqa: SLF001 - its name
                    ):
                        raise
        return {name: self._count_partitions(admin, name) for name in names}

    def _new_topic(self, name: str, partitions: int) -> Any:
        module = require_library("confluent_kafka.admin", extra="kafka")
        compacted = name == self._control or name.endswith(".dlq")
        return module.NewTopic(
            name,
            num_partitions=1 if compacted else partitions,
            replication_factor=-1 if self._replicas is None else self._replicas,
            config={"cleanup.policy": "compact"} if compacted else {},
        )

    def _count_partitions(self, admin: Any, name: str) -> int:
        error: Any = None
        for _ in range(50):  # a new topic is known to all brokers a moment later
            found = admin.list_topics(name, timeout=self._timeout).topics.get(name)
            error = None if found is None else found.error
            if found is not None and error is None and found.partitions:
                return len(found.partitions)
            time.sleep(0.1)
        if error is not None:
            raise library().KafkaException(error)
        raise TimeoutError(f"topic {name} does not appear")

    async def _offsets(self, there: _Connection, names: Iterable[str], *, last: bool) -> _Marks:
        """The first or the next offset of all partitions."""
        places = [(name, number) for name in names for number in range(there.partitions[name])]
        found: _Marks = {}
        for (name, number), offset in (
            await there.call(_list_offsets, there.admin, places, self._timeout, last)
        ).items():
            found.setdefault(name, {})[number] = offset
        return found

    # Groups.

    async def _sync(self, there: _Connection) -> None:
        """Know all that was written to the control topic until now."""
        ends = await self._offsets(there, [self._control], last=True)
        await there.following.reach(ends[self._control][0], self._timeout)

    async def _tell(
        self, there: _Connection, kind: str, topic: str, group: str, value: Any
    ) -> None:
        key = json.dumps([kind, topic, group]).encode()
        letter = Letter(self._control, json.dumps(value).encode(), {}, key, 0)
        await self._send(there, [letter])
        await self._sync(there)

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topics and group exist; the first group begins with what was kept."""
        if is_pattern(topic):
            raise self._cannot(Capability.PATTERN, topic)
        there, place = self._there(), self._place(topic, group)
        with self._translated("declare", topic):
            await self._ensure_place(there, place)
            await self._sync(there)
            if (topic, group) in there.state.groups:
                return
            marks = await self._offsets(there, place.all_topics, last=True)
            if not there.state.covers(topic):
                marks[place.main] = there.state.kept.get(topic, {})
            value = {"marks": marks, "temporary": temporary}
            await self._tell(there, "group", topic, group, value)
            first = there.state.groups[topic, group]
            if first.value != json.loads(json.dumps(value)):
                # Another process was faster: its offsets count, also when the log is compacted.
                await self._tell(there, "group", topic, group, first.value)

    async def drop(self, topic: str, group: str) -> None:
        """Forget the group. Its topics stay, unless it was a temporary one."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("drop", topic):
            await self._sync(there)
            found = there.state.groups.get((topic, group))
            if found is None:
                return
            await there.leave(topic, group)
            await self._ensure_place(there, place)
            marks: dict[int, int] = {}
            if there.state.count(topic) == 1:
                marks = (await self._offsets(there, [place.main], last=True))[place.main]
            await self._tell(there, "group", topic, group, {"dropped": True, "marks": marks})
            there.dead.pop((topic, group), None)
            if found.value["temporary"]:
                names = [*place.retries, place.dead]
                await there.call(_delete_topics, there.admin, names, self._timeout)
                for name in names:
                    there.partitions.pop(name, None)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All that the control topic has."""
        there = self._there()
        with self._translated("list groups"):
            await self._sync(there)
        return list(there.state.groups)

    async def _declared(self, there: _Connection, place: _Place) -> _Declared:
        found = there.state.groups.get((place.topic, place.group))
        if found is None:
            await self._sync(there)
            found = there.state.groups.get((place.topic, place.group))
        if found is None:
            raise KafkaQueueError(
                f"group {place.group!r} of topic {place.topic!r} was never declared",
                topic=place.topic,
                hint="await driver.declare(topic, group) first",
            )
        return found

    def _place(self, topic: str, group: str) -> _Place:
        return _place(self.group_id, topic, group)

    # In.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Write all, then wait for the confirms of all replicas."""
        if not messages:
            self._there()
            return
        there = self._there()
        for message in messages:
            self._check_size(message)
        with self._translated("publish", messages[0].topic):
            await self._ensure(there, {_legal(message.topic) for message in messages})
            refused = await self._refused(there, messages)
        chosen: dict[str, int] = {}  # one partition for a batch: its order is kept
        sent = [at for at in range(len(messages)) if at not in refused]
        letters = [self._letter(there, messages[at], chosen) for at in sent]
        failures = await there.pump.send(letters)
        lost = {sent[place]: why for place, why in failures.items()}
        if lost or refused:
            unconfirmed = [messages[at].id for at in sorted({*lost, *refused})]
            raise self._not_published(messages, lost, refused, unconfirmed)

    def _letter(self, there: _Connection, message: BusMessage, chosen: dict[str, int]) -> Letter:
        name = _legal(message.topic)
        headers = to_headers(message, prefix=PREFIX)
        key = message.headers.get(ORDERING_KEY)
        if key is not None:
            return Letter(name, message.payload, headers, key.encode("utf-8", "surrogatepass"))
        if name not in chosen:
            chosen[name] = there.choose(name, there.partitions[name])
        there.count_choice(name)
        return Letter(name, message.payload, headers, None, chosen[name])

    def _check_size(self, message: BusMessage) -> None:
        size = Letter("", message.payload, to_headers(message, prefix=PREFIX)).size
        most = self._largest - DEAD_ROOM
        if len(message.payload) > most or size > most + DEAD_ROOM // 2:
            raise MessageTooLargeError(
                f"{size} bytes with headers are more than kafka takes here ({most})",
                backend=NAME,
                topic=message.topic,
                hint="raise kafka.max_message_bytes and max.message.bytes of the topic, "
                "or send a reference to stored content",
            )

    async def _refused(self, there: _Connection, messages: Sequence[BusMessage]) -> set[int]:
        """Which messages find no room; those of a topic with a group always do."""
        state = there.state
        topics = {message.topic for message in messages}
        if all(state.covers(topic) for topic in topics):
            return set()
        await self._sync(there)
        refused: set[int] = set()
        for topic in topics:
            if not state.covers(topic):
                room = max(0, self._max_backlog - await self._kept(there, topic))
                places = [at for at, message in enumerate(messages) if message.topic == topic]
                refused.update(places[room:])
        return refused

    async def _kept(self, there: _Connection, topic: str) -> int:
        name, marks = _legal(topic), there.state.kept.get(topic, {})
        first = await self._offsets(there, [name], last=False)
        ends = await self._offsets(there, [name], last=True)
        return sum(
            end - max(first[name][number], marks.get(number, 0))
            for number, end in ends[name].items()
        )

    def _not_published(
        self,
        messages: Sequence[BusMessage],
        lost: Mapping[int, Exception],
        refused: set[int],
        unconfirmed: list[str],
    ) -> QueueError:
        details = {"unconfirmed": unconfirmed}
        if lost:
            at, why = next(iter(lost.items()))
            error = self._error(why, "publish", messages[at].topic)
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

    async def _send(self, there: _Connection, letters: Sequence[Letter]) -> None:
        failures = await there.pump.send(letters)
        if failures:
            raise next(iter(failures.values()))

    # Out.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what the member of this group has; the first call joins."""
        there, place = self._there(), self._place(topic, group)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        with self._translated("receive", topic):
            declared = await self._declared(there, place)
            while True:
                member = await self._member(there, place, declared)
                ready, early = await member.receive(limit, max(0.0, until - loop.time()))
                if early:
                    await self._move(there, place, member, early)
                if ready or loop.time() >= until or there is not self._open:
                    return [
                        Delivery(one.message, topic, group, _Receipt(member, one)) for one in ready
                    ]

    async def _member(self, there: _Connection, place: _Place, declared: _Declared) -> Member:
        member = there.members.get((place.topic, place.group))
        if member is not None and not member.is_stopping:
            return member
        await self._ensure_place(there, place)
        return there.join(
            place.topic,
            place.group,
            Membership(
                group_id=place.group_id,
                main=place.main,
                retries=place.retries,
                partitions={name: there.partitions[name] for name in place.retries},
                marks=declared.marks,
                topic=place.topic,
                settings=self._settings()
                | {
                    "group.id": place.group_id,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "partition.assignment.strategy": "cooperative-sticky",
                    "auto.offset.reset": self._reset,
                    "session.timeout.ms": int(self._session * 1000),
                    "heartbeat.interval.ms": max(100, int(self._session * 1000 / BEATS)),
                    "max.poll.interval.ms": int((self._drain + self._session) * 1000) + 300_000,
                    "fetch.wait.max.ms": FETCH_WAIT,
                    "queued.max.messages.kbytes": 16_384,
                },
                timeout=self._timeout,
                session=self._session,
                drain=self._drain,
            ),
        )

    async def _move(
        self, there: _Connection, place: _Place, member: Member, early: Sequence[Record]
    ) -> None:
        """Messages before their time wait in a topic for retries; written first, then settled."""
        moved = False
        try:
            now = clock.timestamp()
            await self._send(
                there,
                [
                    self._retry(
                        there,
                        place,
                        one.message,
                        max(delay_of(one.message, now), one.not_before - now),
                    )
                    for one in early
                ],
            )
            moved = True
        finally:
            for one in early:
                if not member.holds(one):
                    continue
                if moved:
                    member.settle(one)
                else:
                    member.put_back(one, one.message, 0.1)  # looked at again
        await member.commit(early)

    def _retry(
        self, there: _Connection, place: _Place, message: BusMessage, delay: float
    ) -> Letter:
        """For the topic of the shortest delay that is long enough, else the longest."""
        name = next(
            (name for name, length in place.retries.items() if delay <= length),
            place.longest,
        )
        headers = to_headers(message, prefix=PREFIX)
        headers[NOT_BEFORE] = repr(clock.timestamp() + max(0.0, delay))
        # Who has a partition of the topic reads that of the same number here, and no other.
        readable = min(there.partitions[name], there.partitions[place.main])
        chosen = there.choose(name, readable)
        there.count_choice(name)
        return Letter(name, message.payload, headers, None, chosen)

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Note what is done and commit; returns when the commit is written."""
        settled: dict[Member, list[Record]] = {}
        for delivery in deliveries:
            receipt = cast("_Receipt", delivery.receipt)
            if receipt.is_valid:
                receipt.member.settle(receipt.record)
            if receipt.record.ticket is not None:  # perhaps of an attempt before this one
                settled.setdefault(receipt.member, []).append(receipt.record)
        with self._translated("acknowledge"):
            for member, records in settled.items():
                await member.commit(records)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Write the message to a topic for retries, then commit; with a key it waits here."""
        receipt = cast("_Receipt", delivery.receipt)
        if not receipt.is_valid:
            return
        again = delivery.message if message is None else message
        if receipt.record.key is not None:
            receipt.member.put_back(receipt.record, again, delay)
            return
        there, place = self._there(), self._place(delivery.topic, delivery.group)
        with self._translated("retry", delivery.topic):
            await self._send(there, [self._retry(there, place, again, delay)])
        await self.ack_many([delivery])

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Put the records back; a member nobody asks gives them to the others."""
        for delivery in deliveries:
            receipt = cast("_Receipt", delivery.receipt)
            if receipt.is_valid:
                receipt.member.put_back(receipt.record, receipt.record.message, 0.0)

    async def extend_many(
        self,
        deliveries: Sequence[Delivery],
        seconds: float,
    ) -> Sequence[Delivery]:
        """A delivery is kept until it is settled, or its partition has gone."""
        return [one for one in deliveries if not cast("_Receipt", one.receipt).is_valid]

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Write the entry with where it came from; then commit."""
        receipt = cast("_Receipt", delivery.receipt)
        if not receipt.is_valid:
            return
        there, place = self._there(), self._place(delivery.topic, delivery.group)
        (origin, number), offset = receipt.record.part.place, receipt.record.offset
        headers = dead_headers(entry, prefix=PREFIX) | {
            f"{OWN}origin-topic": origin,
            f"{OWN}origin-partition": str(number),
            f"{OWN}origin-offset": str(offset),
        }
        with self._translated("dead letter", delivery.topic):
            await self._ensure(there, [place.dead])
            letter = Letter(place.dead, entry.message.payload, headers, _key(entry.message.id), 0)
            await self._send(there, [letter])
        await self.ack_many([delivery])

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Read the entries, oldest first."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("list dead letters", topic):
            known = await self._dead(there, place)
            wanted = list(known.values())[offset : offset + limit]
            return await self._read_dead(there, place, wanted)

    async def count_dead(self, topic: str, group: str) -> int:
        """How many ids there are; only what is new since the last call is read."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("count dead letters", topic):
            return len(await self._dead(there, place))

    async def _dead(self, there: _Connection, place: _Place) -> dict[str, int]:
        """The offset of every entry by message id, oldest first."""
        await self._ensure(there, [place.dead])
        declared = there.state.groups.get((place.topic, place.group))
        begin = 0 if declared is None else declared.marks.get(place.dead, {}).get(0, 0)
        index = there.dead.setdefault((place.topic, place.group), _Index(begin))
        async with index.reading:
            ends = await self._offsets(there, [place.dead], last=True)
            span = {(place.dead, 0): (index.position, ends[place.dead][0])}
            for message in await there.call(read_range, self._reader(), span, self._timeout):
                index.apply(message)
            index.position = ends[place.dead][0]
            return dict(index.entries)

    async def _read_dead(
        self, there: _Connection, place: _Place, offsets: Sequence[int]
    ) -> list[DeadLetterEntry]:
        if not offsets:
            return []
        wanted = set(offsets)
        span = {(place.dead, 0): (min(wanted), max(wanted) + 1)}
        found = await there.call(read_range, self._reader(), span, self._timeout)
        return [_entry(one, place.topic) for one in found if one.offset() in wanted]

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Write the messages for their group alone, then the tombstones."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("redrive", topic):
            known = await self._dead(there, place)
            wanted = [at for one, at in known.items() if ids is None or one in ids]
            entries = await self._read_dead(there, place, wanted)
            await self._ensure_place(there, place)
            again = [self._retry(there, place, redriven(one.message), 0.0) for one in entries]
            await self._send(there, again)
            await self._bury(there, place, [one.message.id for one in entries])
        return len(entries)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Write tombstones."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("purge dead letters", topic):
            known = await self._dead(there, place)
            wanted = [one for one in known if ids is None or one in ids]
            await self._bury(there, place, wanted)
        return len(wanted)

    async def _bury(self, there: _Connection, place: _Place, ids: Iterable[str]) -> None:
        await self._send(there, [Letter(place.dead, None, {}, _key(one), 0) for one in ids])

    # For operators.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Read from where the group stands, of all partitions, by time."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("peek", topic):
            standing = await self._standing(there, place, [place.main, place.now])
            spans = {
                at: (one.base, min(one.end, one.base + limit + len(one.done)))
                for at, one in standing.items()
            }
            found = await there.call(read_range, self._reader(), spans, self._timeout)
        waiting = [
            one
            for one in found
            if one.offset() not in standing[str(one.topic()), int(one.partition() or 0)].done
        ]
        waiting.sort(key=lambda one: one.timestamp()[1])
        return [read_message(one, topic)[0] for one in waiting[:limit]]

    async def purge(self, topic: str, group: str) -> int:
        """Not on Kafka: offsets of other members cannot be committed for them."""
        raise self._cannot(Capability.PURGE, topic)

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Write it to the control topic; every driver follows that."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("pause", topic):
            await self._declared(there, place)
            await self._tell(there, "pause", topic, group, paused)

    async def is_paused(self, topic: str, group: str) -> bool:
        """What the control topic says now."""
        there = self._there()
        with self._translated("ask for a pause", topic):
            await self._sync(there)
        return (topic, group) in there.state.paused

    async def depth(self, topic: str, group: str) -> int:
        """All behind the commits of the group, in its topic and those for retries."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("measure", topic):
            standing = await self._standing(there, place, [place.main, *place.retries])
        return sum(one.left for one in standing.values())

    async def lag(self, topic: str, group: str) -> int:
        """What lies in the topic and is not in hand here; retries count while they are due now."""
        return sum((await self.lag_by_partition(topic, group)).values())

    async def lag_by_partition(self, topic: str, group: str) -> Mapping[int, int]:
        """The same for every partition of the topic; retries count to the same number."""
        there, place = self._there(), self._place(topic, group)
        with self._translated("measure", topic):
            standing = await self._standing(there, place, [place.main, place.now])
        lag = dict.fromkeys(range(there.partitions[place.main]), 0)
        member = there.members.get((topic, group))
        for at, one in standing.items():
            part = None if member is None else member.parts.get(at)
            held = 0 if part is None else len(part.in_flight)
            lag[at[1]] = lag.get(at[1], 0) + max(0, one.left - held)
        return lag

    async def _standing(
        self, there: _Connection, place: _Place, names: Sequence[str]
    ) -> dict[Place, _Standing]:
        """Where the group stands in each partition, and where that ends."""
        declared = await self._declared(there, place)
        await self._ensure_place(there, place)
        first = await self._offsets(there, names, last=False)
        ends = await self._offsets(there, names, last=True)
        places = [(name, number) for name in names for number in ends[name]]
        known = await there.call(_list_commits, there.admin, place.group_id, places, self._timeout)
        found: dict[Place, _Standing] = {}
        for name, number in places:
            base, metadata = known.get((name, number), (-1, None))
            mark = declared.marks.get(name, {}).get(number, 0)
            lowest = max(mark, first[name][number])
            done = unpack(base, metadata) if base >= lowest else set[int]()
            found[name, number] = _Standing(max(base, lowest), done, ends[name][number])
        return found

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Ask the brokers for their topics."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        there = self._open
        if there is None:
            return HealthCheckResult(NAME, HealthStatus.UNHEALTHY, "not connected")
        error: str | None = None
        brokers = 0
        try:
            async with asyncio.timeout(timeout):
                found = await there.call(
                    partial(there.admin.list_topics, self._control, timeout=timeout)
                )
                brokers = len(found.brokers)
        except (TimeoutError, library().KafkaException) as failure:
            error = str(self._error(failure, "ask for its health"))
        return HealthCheckResult(
            NAME,
            HealthStatus.HEALTHY if error is None else HealthStatus.UNHEALTHY,
            error=error,
            duration_ms=(loop.time() - started) * 1000,
            details={"servers": self.servers, "brokers": brokers},
        )

    # What went wrong.

    def _cannot(self, capability: Capability, topic: str) -> CapabilityError:
        return CapabilityError(
            f"driver kafka does not declare {capability.value}",
            backend=NAME,
            topic=topic,
            hint="docs/reference/queue-drivers.md lists what each driver can do",
        )

    @contextmanager
    def _translated(self, what: str, topic: str = "unknown") -> Generator[None]:
        try:
            yield
        except (library().KafkaException, MovedError, TimeoutError, BufferError) as error:
            raise self._error(error, what, topic) from error

    def _error(self, error: BaseException, what: str, topic: str = "unknown") -> KafkaQueueError:
        text, hint = _explained(error, topic)
        return KafkaQueueError(
            f"could not {what} on Kafka at {self.servers}: {text}", topic=topic, hint=hint
        )


@frozen(eq=False)
class _Receipt:
    member: Member
    record: Record

    @property
    def is_valid(self) -> bool:
        return self.member.holds(self.record)


class _Connection:
    """All that ends with ``close``: clients, members, and what was heard from the brokers."""

    def __init__(self, executor: ThreadPoolExecutor, pump: Pump, admin: Any) -> None:
        self.pump, self.admin = pump, admin
        self.state = _State()
        self.tail: Tail | None = None
        self.partitions: dict[str, int] = {}
        self.members: dict[tuple[str, str], Member] = {}
        self.dead: dict[tuple[str, str], _Index] = {}
        self._executor = executor
        self._leaving: set[Member] = set()
        self._choices: dict[str, _Choice] = {}

    @property
    def following(self) -> Tail:
        assert self.tail is not None
        return self.tail

    async def call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Something that waits for the brokers, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args))

    async def answers(self, timeout: float) -> bool:
        try:
            await self.call(partial(self.admin.list_topics, timeout=timeout))
        except library().KafkaException:
            return False
        return True

    def join(self, topic: str, group: str, about: Membership) -> Member:
        """A member of its own for every topic and group."""
        at = (topic, group)
        old = self.members.get(at)
        if old is not None and not old.is_stopping:
            return old
        if old is not None:
            self._leaving.add(old)
        self._leaving = {one for one in self._leaving if not one.ended.is_set()}
        self.members[at] = Member(about, lambda: at in self.state.paused)
        return self.members[at]

    async def leave(self, topic: str, group: str) -> None:
        member = self.members.pop((topic, group), None)
        if member is not None:
            member.stop()
            await member.ended.wait()

    def choose(self, topic: str, number: int) -> int:
        """One of the first partitions for messages without a key.

        Another one after some messages or a second.
        """
        now = asyncio.get_running_loop().time()
        choice = self._choices.get(topic)
        if choice is None:
            first = int.from_bytes(hashlib.sha256(topic.encode()).digest()[:4], "big")
            choice = self._choices[topic] = _Choice(first % number, now)
        elif choice.count >= STICKY or now - choice.since > STICKY_SECONDS:
            choice.partition = (choice.partition + 1) % number
            choice.count, choice.since = 0, now
        return choice.partition

    def count_choice(self, topic: str) -> None:
        self._choices[topic].count += 1

    async def close(self) -> None:
        members = {*self.members.values(), *self._leaving}
        for member in members:
            member.stop()
        if self.tail is not None:
            self.tail.stop()
        for member in members:
            await member.ended.wait()
        ends = [self.call(self.pump.stop)]
        if self.tail is not None:
            ends.append(self.call(self.tail.join))
        await asyncio.gather(*ends)
        self._executor.shutdown(wait=False)


@define
class _Choice:
    partition: int
    since: float
    count: int = 0


@frozen
class _Standing:
    base: int
    done: set[int]
    end: int

    @property
    def left(self) -> int:
        return max(0, self.end - self.base - len(self.done))


@frozen
class _Declared:
    value: dict[str, Any]

    @property
    def marks(self) -> _Marks:
        """JSON has no numbers as keys."""
        return {
            name: {int(number): offset for number, offset in offsets.items()}
            for name, offsets in self.value["marks"].items()
        }


@define
class _State:
    """What the control topic says."""

    groups: dict[tuple[str, str], _Declared] = field(factory=dict[tuple[str, str], _Declared])
    paused: set[tuple[str, str]] = field(factory=set[tuple[str, str]])
    # Where a topic was when its last group went: its next first group begins there.
    kept: dict[str, dict[int, int]] = field(factory=dict[str, dict[int, int]])

    def covers(self, topic: str) -> bool:
        return any(one == topic for one, _ in self.groups)

    def count(self, topic: str) -> int:
        return sum(one == topic for one, _ in self.groups)

    def apply(self, message: Message) -> None:
        try:
            kind, topic, group = json.loads(message.key() or b"")
            value = json.loads(message.value() or b"")
        except ValueError:
            return  # not of this driver
        at = (topic, group)
        if kind == "pause":
            (self.paused.add if value else self.paused.discard)(at)
        elif kind != "group":
            return
        elif not value.get("dropped"):
            self.groups.setdefault(at, _Declared(value))
        else:
            self.groups.pop(at, None)
            self.paused.discard(at)
            if value["marks"]:
                self.kept[topic] = {int(one): offset for one, offset in value["marks"].items()}


class _Index:
    """The dead letters of one group, as far as they were read."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.entries: dict[str, int] = {}
        self.reading = asyncio.Lock()

    def apply(self, message: Message) -> None:
        key, offset = message.key(), message.offset()
        if key is None or offset is None:
            return
        name = key.decode("utf-8", "surrogatepass")
        self.entries.pop(name, None)
        if message.value() is not None:
            self.entries[name] = offset


# Names.


@frozen
class _Place:
    topic: str
    group: str
    main: str
    group_id: str
    retries: dict[str, float]
    dead: str

    @property
    def all_topics(self) -> list[str]:
        return [self.main, *self.retries, self.dead]

    @property
    def now(self) -> str:
        """The topic for what comes again at once."""
        return next(iter(self.retries))

    @property
    def longest(self) -> str:
        return list(self.retries)[-1]


@lru_cache(maxsize=10_000)
def _place(prefix: str, topic: str, group: str) -> _Place:
    stem = f"{topic}.{prefix}.{group}"
    return _Place(
        topic=topic,
        group=group,
        main=_legal(topic),
        group_id=f"{prefix}.{group}.{topic}",
        retries={_legal(stem, f".retry.{name}"): length for name, length in RETRIES.items()},
        dead=_legal(stem, ".dlq"),
    )


_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+|_(?=x[0-9A-F]{2})")


@lru_cache(maxsize=10_000)
def _legal(text: str, suffix: str = "") -> str:
    """A name of Kafka: other characters become ``_xHH``; what is too long ends in a digest."""
    name = _ILLEGAL.sub(_hex, text) or "_x"
    if name in (".", ".."):
        name = name.replace(".", "_x2E")
    if len(name) + len(suffix) > NAME_LENGTH:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{name[: NAME_LENGTH - len(suffix) - 17]}.{digest}"
    return name + suffix


def _hex(found: re.Match[str]) -> str:
    return "".join(f"_x{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _key(identity: str) -> bytes:
    return identity.encode("utf-8", "surrogatepass")


def _entry(raw: Message, topic: str) -> DeadLetterEntry:
    headers = headers_of(raw)
    ours = {name: text for name, text in headers.items() if not name.startswith(OWN)}
    fallback = f"{raw.topic()}:{raw.offset()}"
    return from_dead_headers(
        ours, raw.value() or b"", topic=topic, fallback_id=fallback, prefix=PREFIX
    )


# Calls that wait, for a thread.


def _list_offsets(
    admin: Any, places: Sequence[Place], timeout: float, last: bool
) -> dict[Place, int]:
    module = require_library("confluent_kafka.admin", extra="kafka")
    spec = module.OffsetSpec.latest() if last else module.OffsetSpec.earliest()
    asked = {library().TopicPartition(*place): spec for place in places}
    answers = admin.list_offsets(asked, request_timeout=timeout)
    return {
        (one.topic, one.partition): max(0, answer.result(timeout).offset)
        for one, answer in answers.items()
    }


def _list_commits(
    admin: Any, group_id: str, places: Sequence[Place], timeout: float
) -> dict[Place, tuple[int, str | None]]:
    module = library()
    asked = module.ConsumerGroupTopicPartitions(
        group_id, [module.TopicPartition(*place) for place in places]
    )
    (answer,) = admin.list_consumer_group_offsets([asked], request_timeout=timeout).values()
    return {
        (one.topic, one.partition): (one.offset, one.metadata)
        for one in answer.result(timeout).topic_partitions or ()
    }


def _delete_topics(admin: Any, names: Sequence[str], timeout: float) -> None:
    """What a temporary group leaves; brokers that cannot be asked keep it."""
    for gone in admin.delete_topics(list(names), request_timeout=timeout).values():
        try:
            gone.result(timeout)
        except library().KafkaException as error:
            errors = library().KafkaError
            if error.args[0].code() not in (
                errors.UNKNOWN_TOPIC_OR_PART,
                errors._UNSUPPORTED_FEATURE,  # noqa: SLF001 - its name
            ):
                raise


def _explained(error: BaseException, topic: str) -> tuple[str, str]:
    """The text of an error, and what to do about it."""
    reach = "check that the brokers run and that bootstrap_servers names them"
    if isinstance(error, MovedError):
        return str(error), "nothing to do: what was not written is delivered again"
    if not isinstance(error, library().KafkaException):
        text = str(error) or "no answer in time"
        if isinstance(error, BufferError):
            return (
                text,
                "the brokers take messages more slowly than they come: publish fewer at once",
            )
        return text, reach
    told: KafkaError = error.args[0]
    return f"{told.str()} ({told.name()})", _hints(_legal(topic)).get(told.name(), reach)


def _hints(topic: str) -> dict[str, str]:
    """By the name of the error in librdkafka."""
    sign_in = "check sasl.username and sasl.password in kafka.properties"
    create = f"create topic {topic}, or allow the user to"
    return {
        "_AUTHENTICATION": sign_in,
        "SASL_AUTHENTICATION_FAILED": sign_in,
        "_SSL": "check security.protocol and ssl.ca.location in kafka.properties",
        "_INVALID_ARG": "check kafka.properties: these are settings of librdkafka",
        "TOPIC_AUTHORIZATION_FAILED": f"allow Read, Write, Describe and Create on topic {topic} "
        "and on those whose names begin with it",
        "CLUSTER_AUTHORIZATION_FAILED": "allow Create and IdempotentWrite on the cluster, or "
        "create the topics beforehand",
        "GROUP_AUTHORIZATION_FAILED": "allow Read on groups that begin with kafka.group_id",
        "UNKNOWN_TOPIC_OR_PART": create,
        "_UNKNOWN_TOPIC": create,
        "INVALID_REPLICATION_FACTOR": "set kafka.replicas to at most the number of brokers",
        "POLICY_VIOLATION": "create the topics beforehand: a policy of the cluster refuses it",
        "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic to kafka.max_message_bytes",
        "THROTTLING_QUOTA_EXCEEDED": "raise the quota of this client; it is tried again later",
        "NOT_ENOUGH_REPLICAS": "bring back brokers: fewer than min.insync.replicas run",
    }


class KafkaQueue(BusQueue):
    """The bus on Kafka, usable without a container: ``await KafkaQueue(servers).connect()``."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_SERVERS,
        client_id: str = "lexigram",
        group_id: str = DEFAULT_GROUP_ID,
        auto_offset_reset: str = "latest",
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        options: BusOptions | None = None,
        **settings: Any,
    ) -> None:
        """``settings``: those of KafkaDriver, such as ``session_timeout``.

        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        driver = KafkaDriver(
            bootstrap_servers,
            client_id=client_id,
            group_id=group_id,
            auto_offset_reset=auto_offset_reset,
            **settings,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> KafkaDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    own = entry.kafka or KafkaDriverConfig()
    return KafkaDriver(
        own.bootstrap_servers or DEFAULT_SERVERS,
        client_id=own.client_id,
        group_id=own.group_id,
        auto_offset_reset=own.auto_offset_reset,
        partitions=own.partitions,
        replicas=own.replicas,
        timeout=own.timeout,
        session_timeout=own.session_timeout,
        rebalance_timeout=own.rebalance_timeout,
        max_message_bytes=own.max_message_bytes,
        properties=own.properties,
        max_backlog=entry.max_backlog,
    )
