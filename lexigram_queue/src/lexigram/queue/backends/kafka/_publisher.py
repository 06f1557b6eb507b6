"""Publishing with the confirms of all replicas, and room for topics without a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError, QueueFullError
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.kafka._connection import Connection
from lexigram.queue.backends.kafka._names import legal_name
from lexigram.queue.backends.kafka._wire import NAME, PREFIX, OutboundRecord
from lexigram.queue.config import KafkaDriverConfig
from lexigram.queue.runtime.envelope import to_headers

DEAD_ROOM: Final = 48 * 1024  # bytes kept free in a message for what a dead letter adds


class Publisher:
    """Publishes messages to their topics."""

    def __init__(
        self,
        config: KafkaDriverConfig,
        max_backlog: int,
        explain: Callable[[BaseException, str, str], QueueError],
    ) -> None:
        """``explain``: makes our error of one of the client."""
        self._config, self._max_backlog, self._explain = config, max_backlog, explain

    async def publish_many(self, there: Connection, messages: Sequence[BusMessage]) -> None:
        """Write all, then wait for the confirms of all replicas."""
        for message in messages:
            self._check_size(message)
        await there.ensure({legal_name(message.topic) for message in messages})
        refused = await self._find_refused(there, messages)
        chosen: dict[str, int] = {}  # one partition for a batch: its order is kept
        sent = [at for at in range(len(messages)) if at not in refused]
        records = [self._encode(there, messages[at], chosen) for at in sent]
        failures = await there.pump.send(records)
        lost = {sent[place]: why for place, why in failures.items()}
        if lost or refused:
            unconfirmed = [messages[at].id for at in sorted({*lost, *refused})]
            raise self._not_published(messages, lost, refused, unconfirmed)

    def _encode(
        self, there: Connection, message: BusMessage, chosen: dict[str, int]
    ) -> OutboundRecord:
        name = legal_name(message.topic)
        headers = to_headers(message, prefix=PREFIX)
        key = message.headers.get(ORDERING_KEY)
        if key is not None:
            return OutboundRecord(
                name, message.payload, headers, key.encode("utf-8", "surrogatepass")
            )
        if name not in chosen:
            chosen[name] = there.choose(name, there.partitions[name])
        there.count_choice(name)
        return OutboundRecord(name, message.payload, headers, None, chosen[name])

    def _check_size(self, message: BusMessage) -> None:
        size = OutboundRecord("", message.payload, to_headers(message, prefix=PREFIX)).size
        most = self._config.max_message_bytes - DEAD_ROOM
        if len(message.payload) > most or size > most + DEAD_ROOM // 2:
            raise MessageTooLargeError(
                f"{size} bytes with headers are more than kafka takes here ({most})",
                backend=NAME,
                topic=message.topic,
                hint="raise kafka.max_message_bytes and max.message.bytes of the topic, "
                "or send a reference to stored content",
            )

    async def _find_refused(self, there: Connection, messages: Sequence[BusMessage]) -> set[int]:
        """Which messages find no room; those of a topic with a group always do."""
        state = there.state
        topics = {message.topic for message in messages}
        if all(state.covers(topic) for topic in topics):
            return set()
        await there.sync()
        refused: set[int] = set()
        for topic in topics:
            if not state.covers(topic):
                room = max(0, self._max_backlog - await self._count_kept(there, topic))
                places = [at for at, message in enumerate(messages) if message.topic == topic]
                refused.update(places[room:])
        return refused

    async def _count_kept(self, there: Connection, topic: str) -> int:
        name, marks = legal_name(topic), there.state.kept.get(topic, {})
        first = await there.offsets([name], last=False)
        ends = await there.offsets([name], last=True)
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
            error = self._explain(why, "publish", messages[at].topic)
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
