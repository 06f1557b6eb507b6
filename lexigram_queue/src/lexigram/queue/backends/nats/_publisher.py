"""Publishing with confirms, and with certainty that what was confirmed is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError, QueueFullError
from lexigram.queue.backends.nats._connection import Connection
from lexigram.queue.backends.nats._errors import ClosedError, Failure, refusal
from lexigram.queue.backends.nats._names import subject_of
from lexigram.queue.backends.nats._topology import SENTINEL, Topology
from lexigram.queue.backends.nats._wire import (
    BLOCK_ROOM,
    MAX_BLOCK,
    MESSAGE_ID,
    OutboundMessage,
    chunks,
    to_line,
    to_native,
)
from lexigram.queue.runtime.envelope import to_headers

NAME: Final = "nats"
KNOWN_FOR: Final = 10.0  # seconds a topic is taken to have a group, without asking again
BEHIND: Final = 4  # turns of the loop from the arrival of a message to its handler
ONLY: Final = "Lex-Group"  # the one consumer a redriven message is for


class Publisher:
    """Publishes to the stream of messages."""

    def __init__(
        self,
        stream: str,
        topology: Topology,
        *,
        max_backlog: int,
        dedup_window: float,
        explain: Callable[[BaseException, str, str], QueueError],
    ) -> None:
        """``explain``: makes our error of one of the connection."""
        self._stream, self._topology = stream, topology
        self._max_backlog, self._dedup_window = max_backlog, dedup_window
        self._explain = explain

    async def publish_many(self, connection: Connection, messages: Sequence[BusMessage]) -> None:
        """Send all, then wait for the confirms; some megabytes at a time."""
        batch = [self._encode(connection, message) for message in messages]
        refused = await self._find_refused(connection, messages)
        at = [number for number in range(len(batch)) if number not in refused]
        lost: dict[int, Failure] = {}
        for chunk in chunks(at, batch):
            failures = await connection.publish([batch[number] for number in chunk])
            lost.update((chunk[place], why) for place, why in failures.items())
        if len(lost) < len(at) and (doubt := await self.doubt(connection)) is not None:
            lost = dict.fromkeys(at, doubt) | lost
        if lost or refused:
            unconfirmed = [messages[number].id for number in sorted({*lost, *refused})]
            raise self._not_published(messages, lost, refused, unconfirmed)

    async def doubt(self, connection: Connection) -> Failure | None:
        """Why what was confirmed so far may not be kept; None: it is."""
        for _ in range(BEHIND):
            # A consumer in this process that just got the message goes first: 0.4 ms on an
            # idle bus, which the write of the question would take from it.
            await asyncio.sleep(0)
        try:
            return refusal(
                await connection.request(f"$JS.API.CONSUMER.INFO.{self._stream}.{SENTINEL}")
            )
        except TimeoutError:
            return TimeoutError("no answer in time")
        except ClosedError as error:
            return error

    def _encode(self, connection: Connection, message: BusMessage) -> OutboundMessage:
        subject = f"{self._stream}.{subject_of(message.topic)}"
        headers = to_native(to_headers(message))
        if self._dedup_window:
            headers[MESSAGE_ID] = f"{subject}/{to_line(message.id)}"
        outbound = OutboundMessage(subject, cast("bytes", message.payload), headers)
        most = connection.max_payload - connection.dead_room
        if len(outbound.body) > most or outbound.size > most + connection.dead_room // 2:
            raise MessageTooLargeError(
                f"{outbound.size} bytes with headers are more than NATS takes here ({most})",
                backend=NAME,
                topic=message.topic,
                hint="raise max_payload of the server, or send a reference to stored content",
            )
        if outbound.block > MAX_BLOCK - BLOCK_ROOM:
            raise MessageTooLargeError(
                f"{outbound.block} bytes of headers are more than NATS takes "
                f"({MAX_BLOCK - BLOCK_ROOM}); a character beyond ASCII takes up to 12",
                backend=NAME,
                topic=message.topic,
                hint="move large values into the payload",
            )
        return outbound

    async def _find_refused(
        self, connection: Connection, messages: Sequence[BusMessage]
    ) -> set[int]:
        """Which messages find no room; those of a topic with a group always do."""
        now = asyncio.get_running_loop().time()
        covered = connection.covered
        if all(covered.get(message.topic, 0.0) > now for message in messages):
            return set()
        refused: set[int] = set()
        for topic in {message.topic for message in messages}:
            if covered.get(topic, 0.0) > now:
                continue
            places = [at for at, message in enumerate(messages) if message.topic == topic]
            room = await self._topology.room(connection, topic, len(places))
            if room is None:
                covered[topic] = now + KNOWN_FOR
            else:
                refused.update(places[room:])
        return refused

    def _not_published(
        self,
        messages: Sequence[BusMessage],
        lost: Mapping[int, Failure],
        refused: set[int],
        unconfirmed: list[str],
    ) -> QueueError:
        details = {"unconfirmed": unconfirmed}
        if lost:
            number, why = next(iter(lost.items()))
            topic = messages[number].topic
            error = self._explain(why, "publish", topic)
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
