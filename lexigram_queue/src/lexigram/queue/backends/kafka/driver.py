"""The bus on Apache Kafka.

A topic of the bus is a topic of Kafka, a group is a consumer group for each of its topics, and
the ordering key is the key of the record. What Kafka has not, and how it is done here:

- *Settled one by one.* A group commits the first offset of a partition that is not settled, and
  with it, in the metadata of the commit, which of those behind it are. So the next owner of the
  partition hands out exactly what is not settled.
- *Begun, and came back.* The same metadata say up to which offset records may have been handed
  out, and a record is handed out only after a commit has said so. What lies before it and comes to
  the next owner is a suspect; how often its handler was begun is counted there too.
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
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, cast

from attrs import frozen

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    Delivery,
    NotConnectedError,
)
from lexigram.queue.backends.kafka._admin import delete_topics, list_commits
from lexigram.queue.backends.kafka._connection import Connection
from lexigram.queue.backends.kafka._dead_letters import (
    bury_entries,
    read_entries,
    read_index,
    select_entries,
)
from lexigram.queue.backends.kafka._errors import MovedError, explain
from lexigram.queue.backends.kafka._member import Member
from lexigram.queue.backends.kafka._names import GroupTopics, topics_of
from lexigram.queue.backends.kafka._partition import Place, Record, unpack
from lexigram.queue.backends.kafka._publisher import DEAD_ROOM, Publisher
from lexigram.queue.backends.kafka._reading import read_range
from lexigram.queue.backends.kafka._receiver import Receipt, find_member, make_retry, move_early
from lexigram.queue.backends.kafka._settings import DEFAULT_SERVERS, reader_settings
from lexigram.queue.backends.kafka._wire import (
    NAME,
    OWN,
    PREFIX,
    OutboundRecord,
    key_of,
    library,
    read_message,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import KafkaDriverConfig, NamedQueueConfig, override
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG
from lexigram.queue.errors import KafkaQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import cut_dead, dead_headers, redriven
from lexigram.queue.runtime.topics import is_pattern

if TYPE_CHECKING:
    from lexigram.contracts.observability.tracing import TracerProtocol

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


class KafkaDriver:
    """One member on a Kafka cluster."""

    name = NAME
    capabilities = CAPABILITIES
    visibility_timeout: float | None = None

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        config: KafkaDriverConfig | None = None,
        group_id: str | None = None,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
    ) -> None:
        """``bootstrap_servers`` and ``group_id`` come before those of ``config``, which has all
        other settings.
        """
        self._config = override(
            config or KafkaDriverConfig(), bootstrap_servers=bootstrap_servers, group_id=group_id
        )
        self.servers = self._config.bootstrap_servers or DEFAULT_SERVERS
        self.group_id = self._config.group_id
        self._publisher = Publisher(self._config, max_backlog, self._error)
        self._opening = asyncio.Lock()
        self._open: Connection | None = None

    def __repr__(self) -> str:
        return f"KafkaDriver({self.servers}, group_id={self.group_id!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What the brokers take, less the room a dead letter needs."""
        return self._config.max_message_bytes - DEAD_ROOM

    # Life.

    async def connect(self) -> None:
        """Make the clients and the control topic, or find them in order."""
        async with self._opening:
            there = self._open
            if there is not None:
                if there.pump.fatal is None and await there.answers(self._config.timeout):
                    return
                self._open = None
                await there.close()
            with self._translate_errors("connect"):
                self._open = await Connection.open(self._config)

    async def close(self) -> None:
        """Leave the groups; what was not settled is delivered again."""
        there, self._open = self._open, None
        if there is not None:
            await there.close()

    def _there(self) -> Connection:
        if self._open is None:
            raise NotConnectedError(
                "KafkaDriver not connected", backend=NAME, hint="await driver.connect() first"
            )
        return self._open

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topics and group exist; the first group begins with what was kept."""
        if is_pattern(topic):
            raise self._cannot(Capability.PATTERN, topic)
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("declare", topic):
            await there.ensure_place(place)
            await there.sync()
            if (topic, group) in there.state.groups:
                return
            marks = await there.offsets(place.all_topics, last=True)
            if not there.state.covers(topic):
                marks[place.main] = there.state.kept.get(topic, {})
            value = {"marks": marks, "temporary": temporary}
            await there.write_control("group", topic, group, value)
            first = there.state.groups[topic, group]
            if first.value != json.loads(json.dumps(value)):
                # Another process was faster: its offsets count, also when the log is compacted.
                await there.write_control("group", topic, group, first.value)

    async def drop(self, topic: str, group: str) -> None:
        """Forget the group. Its topics stay, unless it was a temporary one."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("drop", topic):
            await there.sync()
            found = there.state.groups.get((topic, group))
            if found is None:
                return
            await there.leave(topic, group)
            await there.ensure_place(place)
            marks: dict[int, int] = {}
            if there.state.count(topic) == 1:
                marks = (await there.offsets([place.main], last=True))[place.main]
            await there.write_control("group", topic, group, {"dropped": True, "marks": marks})
            there.dead.pop((topic, group), None)
            if found.value["temporary"]:
                names = [*place.retries, place.dead]
                await there.call(delete_topics, there.admin, names, self._config.timeout)
                for name in names:
                    there.partitions.pop(name, None)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All that the control topic has."""
        there = self._there()
        with self._translate_errors("list groups"):
            await there.sync()
        return list(there.state.groups)

    def _place(self, topic: str, group: str) -> GroupTopics:
        return topics_of(self.group_id, topic, group)

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Write all, then wait for the confirms of all replicas."""
        there = self._there()
        if messages:
            with self._translate_errors("publish", messages[0].topic):
                await self._publisher.publish_many(there, messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what the member of this group has; the first call joins."""
        there, place = self._there(), self._place(topic, group)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        with self._translate_errors("receive", topic):
            declared = await there.find_group(place)
            while True:
                member = await find_member(there, place, declared)
                ready, early = await member.receive(limit, max(0.0, until - loop.time()))
                if early:
                    await move_early(there, place, member, early)
                if ready or loop.time() >= until or there is not self._open:
                    return [
                        Delivery(
                            one.message,
                            topic,
                            group,
                            Receipt(member, one),
                            delivery_count=1 if one.offset >= one.part.suspect_until else 2,
                        )
                        for one in ready
                    ]

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Note what is done and commit; returns when the commit is written."""
        settled: dict[Member, list[Record]] = {}
        for delivery in deliveries:
            receipt = cast("Receipt", delivery.receipt)
            if receipt.is_valid:
                receipt.member.settle(receipt.record)
            if receipt.record.ticket is not None:  # perhaps of an attempt before this one
                settled.setdefault(receipt.member, []).append(receipt.record)
        with self._translate_errors("acknowledge"):
            for member, records in settled.items():
                await member.commit(records)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Write the message to a topic for retries, then commit; with a key it waits here."""
        receipt = cast("Receipt", delivery.receipt)
        if not receipt.is_valid:
            return
        again = delivery.message if message is None else message
        if receipt.record.key is not None:
            receipt.member.retry_here(receipt.record, again, delay)
            return
        there, place = self._there(), self._place(delivery.topic, delivery.group)
        record = make_retry(there, place, again, delay)
        if (
            record.size > self._config.max_message_bytes
        ):  # of another producer, who leaves no room for a copy
            receipt.member.retry_here(receipt.record, again, delay)
            return
        with self._translate_errors("retry", delivery.topic):
            await there.send([record])
        await self.ack_many([delivery])

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Put the records back; a member without receives passes them to the other members."""
        for delivery in deliveries:
            receipt = cast("Receipt", delivery.receipt)
            if receipt.is_valid:
                receipt.member.put_back(receipt.record, receipt.record.message, 0.0)

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count in the metadata of a commit; what settles the record removes it."""
        receipt = cast("Receipt", delivery.receipt)
        if not receipt.is_valid:
            return 0
        with self._translate_errors("mark", delivery.topic):
            return await receipt.member.mark_begun(receipt.record)

    async def extend_many(
        self,
        deliveries: Sequence[Delivery],
        seconds: float,
    ) -> Sequence[Delivery]:
        """A delivery is kept until it is settled, or its partition has gone."""
        return [one for one in deliveries if not cast("Receipt", one.receipt).is_valid]

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Write the entry with where it came from; then commit."""
        receipt = cast("Receipt", delivery.receipt)
        if not receipt.is_valid:
            return
        there, place = self._there(), self._place(delivery.topic, delivery.group)
        (origin, number), offset = receipt.record.part.place, receipt.record.offset
        headers = dead_headers(entry, prefix=PREFIX) | {
            f"{OWN}origin-topic": origin,
            f"{OWN}origin-partition": str(number),
            f"{OWN}origin-offset": str(offset),
        }
        with self._translate_errors("dead letter", delivery.topic):
            await there.ensure([place.dead])
            record = OutboundRecord(
                place.dead, entry.message.payload, headers, key_of(entry.message.id), 0
            )
            if record.size > self._config.max_message_bytes:
                body = cut_dead(
                    headers, record.value or b"", record.size - self._config.max_message_bytes
                )
                record = OutboundRecord(place.dead, body, headers, record.key, 0)
            await there.send([record])
        await self.ack_many([delivery])

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Read the entries, oldest first."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("list dead letters", topic):
            known = await read_index(there, place)
            wanted = list(known.values())[offset : offset + limit]
            return await read_entries(there, place, wanted)

    async def count_dead(self, topic: str, group: str) -> int:
        """How many ids there are; only what is new since the last call is read."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("count dead letters", topic):
            return len(await read_index(there, place))

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Write the messages for their group alone, then the tombstones."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("redrive", topic):
            known = await read_index(there, place)
            wanted = select_entries(known, ids)
            entries = await read_entries(there, place, list(wanted.values()))
            await there.ensure_place(place)
            again = [make_retry(there, place, redriven(one.message), 0.0) for one in entries]
            await there.send(again)
            await bury_entries(there, place, wanted)
        return len(entries)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Write tombstones."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("purge dead letters", topic):
            known = await read_index(there, place)
            wanted = select_entries(known, ids)
            await bury_entries(there, place, wanted)
        return len(wanted)

    # For operators.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Read from where the group stands, of all partitions, by time."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("peek", topic):
            standing = await self._standing(there, place, [place.main, place.now])
            spans = {
                at: (one.base, min(one.end, one.base + limit + len(one.done)))
                for at, one in standing.items()
            }
            found = await there.call(
                read_range, reader_settings(self._config), spans, self._config.timeout
            )
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
        with self._translate_errors("pause", topic):
            await there.find_group(place)
            await there.write_control("pause", topic, group, paused)

    async def is_paused(self, topic: str, group: str) -> bool:
        """What the control topic says now."""
        there = self._there()
        with self._translate_errors("ask for a pause", topic):
            await there.sync()
        return (topic, group) in there.state.paused

    async def depth(self, topic: str, group: str) -> int:
        """All behind the commits of the group, in its topic and those for retries."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("measure", topic):
            standing = await self._standing(there, place, [place.main, *place.retries])
        return sum(one.left for one in standing.values())

    async def lag(self, topic: str, group: str) -> int:
        """Records in the topic that are not in flight here; due retries count, later ones do not."""
        return sum((await self.lag_by_partition(topic, group)).values())

    async def lag_by_partition(self, topic: str, group: str) -> Mapping[int, int]:
        """The same for every partition of the topic; retries count to the same number."""
        there, place = self._there(), self._place(topic, group)
        with self._translate_errors("measure", topic):
            standing = await self._standing(there, place, [place.main, place.now])
        lag = dict.fromkeys(range(there.partitions[place.main]), 0)
        member = there.members.get((topic, group))
        for at, one in standing.items():
            part = None if member is None else member.parts.get(at)
            held = 0 if part is None else len(part.in_flight)
            lag[at[1]] = lag.get(at[1], 0) + max(0, one.left - held)
        return lag

    async def _standing(
        self, there: Connection, place: GroupTopics, names: Sequence[str]
    ) -> dict[Place, Standing]:
        """Where the group stands in each partition, and where that ends."""
        declared = await there.find_group(place)
        await there.ensure_place(place)
        first = await there.offsets(names, last=False)
        ends = await there.offsets(names, last=True)
        places = [(name, number) for name in names for number in ends[name]]
        known = await there.call(
            list_commits, there.admin, place.group_id, places, self._config.timeout
        )
        found: dict[Place, Standing] = {}
        for name, number in places:
            base, metadata = known.get((name, number), (-1, None))
            mark = declared.marks.get(name, {}).get(number, 0)
            lowest = max(mark, first[name][number])
            done = unpack(base, metadata).done if base >= lowest else set[int]()
            found[name, number] = Standing(max(base, lowest), done, ends[name][number])
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
                    partial(there.admin.list_topics, there.control, timeout=timeout)
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
    def _translate_errors(self, what: str, topic: str = "unknown") -> Generator[None]:
        try:
            yield
        except (library().KafkaException, MovedError, TimeoutError, BufferError) as error:
            raise self._error(error, what, topic) from error

    def _error(self, error: BaseException, what: str, topic: str = "unknown") -> KafkaQueueError:
        text, hint = explain(error, topic)
        return KafkaQueueError(
            f"could not {what} on Kafka at {self.servers}: {text}", topic=topic, hint=hint
        )


@frozen
class Standing:
    """Where a group stands in a partition, and where that ends."""

    base: int
    done: set[int]
    end: int

    @property
    def left(self) -> int:
        return max(0, self.end - self.base - len(self.done))


class KafkaQueue(BusQueue):
    """The bus on Kafka, usable without a container: ``await KafkaQueue(servers).connect()``."""

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        client_id: str | None = None,
        group_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest"] | None = None,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        config: KafkaDriverConfig | None = None,
        options: BusOptions | None = None,
    ) -> None:
        """``config``: all settings; those that are given by name come before them.

        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        config = override(
            config or KafkaDriverConfig(),
            client_id=client_id,
            auto_offset_reset=auto_offset_reset,
        )
        driver = KafkaDriver(bootstrap_servers, config=config, group_id=group_id)
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def build(entry: NamedQueueConfig, services: Services) -> KafkaDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return KafkaDriver(config=entry.kafka, max_backlog=entry.max_backlog)
