"""Streams and consumers on the server: how they are made, found and deleted."""

from __future__ import annotations

import json
import logging
from typing import Any, Final, cast

from attrs import frozen

from lexigram.queue.backends.clouds import json_object
from lexigram.queue.backends.nats._connection import NANOSECONDS, Connection, Listener
from lexigram.queue.backends.nats._errors import ApiError, Json
from lexigram.queue.backends.nats._names import Place, keeper_of, place_of, subject_of
from lexigram.queue.errors import NATSQueueError
from lexigram.queue.runtime.topics import is_pattern, matcher

OLDEST_SERVER: Final = (2, 9)
GRACE: Final = 0.25  # seconds by which the server's lease is longer than ours
RECORDS_KEPT: Final = 30 * 24 * 3600  # seconds; a record is gone long before, but for crashes
TEMPORARY_FOR: Final = 600  # seconds nobody has received
MAX_WAITING: Final = 4096  # receives that wait at one group; the server's default is 512
SENTINEL: Final = "sentinel"  # its subject is of no topic: a lone % is a part without text

_log = logging.getLogger(__name__)


class Topology:
    """The streams of one driver, and the consumers in them.

    ``stream``: of messages; ``records``: what changed about single messages, and marks of paused
    groups; ``dead``: dead letters.
    """

    def __init__(
        self,
        stream: str,
        *,
        lease: float,
        replicas: int,
        max_ack_pending: int,
        max_backlog: int,
        dedup_window: float,
    ) -> None:
        self._stream, self.records, self.dead = stream, f"{stream}-records", f"{stream}-dead"
        self._lease, self._replicas, self._max_ack_pending = lease, replicas, max_ack_pending
        self._max_backlog, self._dedup_window = max_backlog, dedup_window

    async def declare(self, connection: Connection, place: Place, *, temporary: bool) -> None:
        """Make the consumer exist; the first one of a topic begins with what was kept."""
        found = await connection.find(f"CONSUMER.INFO.{self._stream}.{place.name}")
        if found is None:
            await self._make(connection, place, temporary)
        else:
            await self._adjust(connection, found["config"])
        connection.declared.add(place.name)
        if not place.is_pattern:
            await self.delete(connection, keeper_of(place.topic))

    async def drop(self, connection: Connection, place: Place) -> None:
        """Delete the consumer, its dead letters and its records."""
        connection.declared.discard(place.name)
        connection.covered.pop(place.topic, None)
        found = await connection.find(f"CONSUMER.INFO.{self._stream}.{place.name}")
        # Nobody comes back for the topic of a temporary group, such as one for replies.
        lasting = found is not None and "inactive_threshold" not in found["config"]
        if place.is_pattern or not lasting:
            await self.delete(connection, place.name)
        else:
            await self._delete_lasting(connection, place)
        await connection.ask(f"STREAM.PURGE.{self.dead}", {"filter": f"{self.dead}.{place.name}.*"})
        for kind in (f"{place.name}.*", f"paused.{place.name}"):
            subject = f"{self.records}.{kind}"
            await connection.ask(f"STREAM.PURGE.{self.records}", {"filter": subject})
        connection.paused.pop(place.name, None)

    async def prepare(self, connection: Connection, listener: Listener) -> None:
        """Make the streams and the sentinel exist. ``listener``: gets the marks of paused groups."""
        window = max(self._dedup_window, 120.0)  # 120: the server's own
        subjects = {"subjects": [f"{self._stream}.>"], "retention": "interest"}
        main = await self._find_or_make_stream(
            connection, self._stream, **subjects, duplicate_window=int(window * NANOSECONDS)
        )
        if main["retention"] != "interest":
            raise NATSQueueError(
                f"stream {self._stream} exists and keeps messages by {main['retention']}",
                hint="give the driver a stream name of its own (setting nats.stream)",
            )
        if main["duplicate_window"] < self._dedup_window * NANOSECONDS:
            main["duplicate_window"] = int(self._dedup_window * NANOSECONDS)
            await connection.ask(f"STREAM.UPDATE.{self._stream}", main)
        if await connection.find(f"CONSUMER.INFO.{self._stream}.{SENTINEL}") is None:
            about = {"sentinel": "lexigram asks for it to know that the stream is alive"}
            await self._create(connection, self._consumer(SENTINEL, f"{self._stream}.%%", about))
        await self._find_or_make_stream(
            connection,
            self.records,
            subjects=[f"{self.records}.>"],
            max_msgs_per_subject=1,
            max_age=RECORDS_KEPT * NANOSECONDS,
        )
        await self._find_or_make_stream(
            connection, self.dead, subjects=[f"{self.dead}.>"], max_msgs_per_subject=1
        )
        await connection.subscribe(f"{self.records}.paused.*", listener)

    async def _find_or_make_stream(self, connection: Connection, name: str, **config: Any) -> Json:
        found = await connection.find(f"STREAM.INFO.{name}")
        if found is None:
            whole = STREAM | {"name": name, "num_replicas": self._replicas} | config
            found = await connection.ask(f"STREAM.CREATE.{name}", whole)
        return cast("Json", found["config"])

    async def _make(self, connection: Connection, place: Place, temporary: bool) -> None:
        config = self._consumer(
            place.name, place.subject, {"topic": place.topic, "group": place.group}
        )
        if temporary:
            config["inactive_threshold"] = TEMPORARY_FOR * NANOSECONDS
        kept = None
        if not place.is_pattern:
            kept = await connection.find(f"CONSUMER.INFO.{self._stream}.{keeper_of(place.topic)}")
        if kept is not None and not (await self.look(connection)).has_plain(place.topic):
            config["deliver_policy"] = "by_start_sequence"
            config["opt_start_seq"] = kept["delivered"]["stream_seq"] + 1
        try:
            await self._create(connection, config)
        except ApiError:
            # Another process was faster, with another beginning: that one counts.
            if await connection.find(f"CONSUMER.INFO.{self._stream}.{place.name}") is None:
                raise

    async def _adjust(self, connection: Connection, config: Json) -> None:
        mine = {"ack_wait": self._ack_wait(), "max_ack_pending": self._max_ack_pending}
        if any(config.get(key) != value for key, value in mine.items()):
            await self._create(connection, config | mine)

    def _consumer(self, name: str, subject: str, about: Json) -> Json:
        return CONSUMER | {
            "durable_name": name,
            "description": json.dumps(about),
            "filter_subject": subject,
            "ack_wait": self._ack_wait(),
            "max_ack_pending": self._max_ack_pending,
        }

    def _ack_wait(self) -> int:
        return int((self._lease + GRACE) * NANOSECONDS)

    async def _create(self, connection: Connection, config: Json) -> None:
        await connection.ask(
            f"CONSUMER.DURABLE.CREATE.{self._stream}.{config['durable_name']}",
            {"stream_name": self._stream, "config": config},
        )

    async def delete(self, connection: Connection, consumer: str) -> bool:
        return await connection.find(f"CONSUMER.DELETE.{self._stream}.{consumer}") is not None

    async def _delete_lasting(self, connection: Connection, place: Place) -> None:
        """Delete a group; a topic that has none then gets its keeper first."""
        if not (await self.look(connection)).covers(place.topic, but=place.name):
            await self.keep(connection, place.topic)
        await self.delete(connection, place.name)
        # Two that go at once may each have seen the other.
        if not (await self.look(connection)).covers(place.topic):
            await self.keep(connection, place.topic)

    async def keep(self, connection: Connection, topic: str) -> None:
        about = {"topic": topic, "kept": True}
        subject = f"{self._stream}.{subject_of(topic)}"
        await self._create(connection, self._consumer(keeper_of(topic), subject, about))

    async def look(self, connection: Connection) -> Seen:
        seen = Seen([], set())
        offset, total = 0, 1
        while offset < total:
            page = await connection.ask(f"CONSUMER.LIST.{self._stream}", {"offset": offset})
            consumers: list[Json] = page.get("consumers") or []
            total = page["total"]
            for one in consumers:
                seen.add(one["config"].get("description") or "")
            offset += len(consumers) or total
        return seen

    async def room(self, connection: Connection, topic: str, wanted: int) -> int | None:
        """How many more a topic without a group keeps; None: it has a group.

        Keeper and group are never both absent, and a keeper beside a group is deleted: adding
        one is followed by a check for the other.
        """
        keeper = keeper_of(topic)
        kept = await connection.find(f"CONSUMER.INFO.{self._stream}.{keeper}")
        if kept is None:
            if (await self.look(connection)).covers(topic):
                return None
            await self.keep(connection, topic)
            kept = await connection.ask(f"CONSUMER.INFO.{self._stream}.{keeper}")
            if (await self.look(connection)).covers(topic):
                await self.delete(connection, keeper)
                return None
        room = max(0, self._max_backlog - int(kept["num_pending"]))
        if room < wanted:
            seen = await self.look(connection)
            if seen.covers(topic):  # by a pattern only, or the group came just now
                if not seen.has_plain(topic):
                    _log.warning("topic %s keeps no more for a first group of its own", topic)
                await self.delete(connection, keeper)
                return None
        return room


@frozen
class Seen:
    """Which groups and keepers there are."""

    groups: list[tuple[str, str]]
    kept: set[str]

    def add(self, description: str) -> None:
        about = json_object(description)
        topic, group = about.get("topic"), about.get("group")
        if not isinstance(topic, str):
            return  # a consumer of another program on our stream
        if isinstance(group, str):
            self.groups.append((topic, group))
        elif group is None:
            self.kept.add(topic)

    def has_plain(self, topic: str) -> bool:
        return any(one == topic for one, _ in self.groups)

    def covers(self, topic: str, *, but: str | None = None) -> bool:
        """Whether a group gets this topic, by name or by pattern."""
        return any(
            (one == topic or (is_pattern(one) and matcher(one)(topic)))
            and (but is None or place_of("", one, group).name != but)
            for one, group in self.groups
        )


def check_version(version: tuple[int, int], address: str) -> None:
    if version < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        raise NATSQueueError(
            f"the NATS server at {address} is older than {wanted}", hint=f"use {wanted} or later"
        )


STREAM: Final[Json] = {
    "storage": "file",
    "retention": "limits",
    "discard": "old",
    "allow_direct": True,
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
}
CONSUMER: Final[Json] = {
    "deliver_policy": "new",
    "ack_policy": "explicit",
    "replay_policy": "instant",
    "max_deliver": -1,  # the runtime decides what is poison
    "max_waiting": MAX_WAITING,
}
