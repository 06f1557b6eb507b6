"""The clients of one driver, and what was heard from the brokers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define

from lexigram.queue.backends.kafka._admin import list_offsets, make_topics
from lexigram.queue.backends.kafka._control import Declared, Marks, State
from lexigram.queue.backends.kafka._dead_letters import Index
from lexigram.queue.backends.kafka._member import Member
from lexigram.queue.backends.kafka._names import GroupTopics, control_topic
from lexigram.queue.backends.kafka._poller import Membership
from lexigram.queue.backends.kafka._producer import Pump
from lexigram.queue.backends.kafka._reading import Tail
from lexigram.queue.backends.kafka._settings import client_settings, reader_settings
from lexigram.queue.backends.kafka._wire import OutboundRecord, library
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.config import KafkaDriverConfig
from lexigram.queue.errors import KafkaQueueError

STICKY: Final = 16  # messages without a key that go to one partition, one after the other
STICKY_SECONDS: Final = 1.0  # then too: what is sent at leisure is ordered by its time
WORKERS: Final = 8  # threads for calls of the client that wait for an answer

T = TypeVar("T")


class Connection:
    """All that ends with ``close``: clients, members, and what was heard from the brokers."""

    def __init__(
        self, config: KafkaDriverConfig, executor: ThreadPoolExecutor, pump: Pump, admin: Any
    ) -> None:
        self.config, self.pump, self.admin = config, pump, admin
        self.control = control_topic(config.group_id)
        self.state = State()
        self.tail: Tail | None = None
        self.partitions: dict[str, int] = {}
        self.members: dict[tuple[str, str], Member] = {}
        self.dead: dict[tuple[str, str], Index] = {}
        self._executor = executor
        self._leaving: set[Member] = set()
        self._choices: dict[str, Choice] = {}

    @classmethod
    async def open(cls, config: KafkaDriverConfig) -> Connection:
        """Make the clients and the control topic, and read that."""
        executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="kafka.call")
        made: Connection | None = None
        loop = asyncio.get_running_loop()
        try:
            clients = await loop.run_in_executor(executor, _clients, config)
            made = cls(config, executor, *clients)
            await made.ensure([made.control])
            made.tail = Tail(reader_settings(config), made.control, made.state.apply)
            await made.sync()
        except BaseException:
            if made is None:
                executor.shutdown(wait=False)
            else:
                await made.close()
            raise
        return made

    @property
    def following(self) -> Tail:
        assert self.tail is not None
        return self.tail

    async def call(self, function: Callable[..., T], *args: Any) -> T:
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
            choice = self._choices[topic] = Choice(first % number, now)
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

    # Topics of Kafka, and the control topic.

    async def ensure_place(self, place: GroupTopics) -> None:
        """Topics for retries have as many partitions as the topic they follow."""
        await self.ensure([place.main])
        await self.ensure(place.all_topics, self.partitions[place.main])

    async def ensure(self, names: Iterable[str], partitions: int | None = None) -> None:
        """Make topics exist, and know their partitions."""
        missing = [name for name in names if name not in self.partitions]
        if missing:
            make = partial(make_topics, config=self.config, partitions=partitions)
            self.partitions.update(await self.call(make, self.admin, missing))

    async def offsets(self, names: Iterable[str], *, last: bool) -> Marks:
        """The first or the next offset of all partitions."""
        places = [(name, number) for name in names for number in range(self.partitions[name])]
        found: Marks = {}
        for (name, number), offset in (
            await self.call(list_offsets, self.admin, places, self.config.timeout, last)
        ).items():
            found.setdefault(name, {})[number] = offset
        return found

    async def sync(self) -> None:
        """Know all that was written to the control topic until now."""
        ends = await self.offsets([self.control], last=True)
        await self.following.reach(ends[self.control][0], self.config.timeout)

    async def write_control(self, kind: str, topic: str, group: str, value: Any) -> None:
        key = json.dumps([kind, topic, group]).encode()
        record = OutboundRecord(self.control, json.dumps(value).encode(), {}, key, 0)
        await self.send([record])
        await self.sync()

    async def find_group(self, place: GroupTopics) -> Declared:
        found = self.state.groups.get((place.topic, place.group))
        if found is None:
            await self.sync()
            found = self.state.groups.get((place.topic, place.group))
        if found is None:
            raise KafkaQueueError(
                f"group {place.group!r} of topic {place.topic!r} was never declared",
                topic=place.topic,
                hint="await driver.declare(topic, group) first",
            )
        return found

    async def send(self, records: Sequence[OutboundRecord]) -> None:
        failures = await self.pump.send(records)
        if failures:
            raise next(iter(failures.values()))


@define
class Choice:
    partition: int
    since: float
    count: int = 0


def _clients(config: KafkaDriverConfig) -> tuple[Pump, Any]:
    admin = require_library("confluent_kafka.admin", extra="kafka").AdminClient(
        client_settings(config)
    )
    milliseconds = int(config.timeout * 1000)
    pump = Pump(
        client_settings(config)
        | {
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": milliseconds,
            "message.max.bytes": config.max_message_bytes,
            "partitioner": "murmur2_random",  # as the clients of others place keys
        },
        config.timeout,
    )
    try:
        # Asked by the producer: it then has its number for idempotence half a second earlier.
        pump.client.list_topics(timeout=config.timeout)
    except library().KafkaException as error:
        pump.stop()
        # Its own words are "transport failure"; what the brokers said is better.
        if pump.last_error is not None:
            raise library().KafkaException(pump.last_error) from error
        raise
    return pump, admin
