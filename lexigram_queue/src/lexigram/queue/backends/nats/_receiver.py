"""Receiving: pulls, and what was written about messages that come again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lexigram import clock
from lexigram.contracts.queue import BusMessage, Delivery
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.contracts.queue.limits import MAX_ID_BYTES, is_text, read_moment
from lexigram.queue.backends.nats._connection import Connection
from lexigram.queue.backends.nats._errors import NOT_FOUND, ApiError, description_of, status_of
from lexigram.queue.backends.nats._names import Place, topic_of
from lexigram.queue.backends.nats._publisher import ONLY
from lexigram.queue.backends.nats._wire import (
    ACK,
    MESSAGE_ID,
    SEQUENCE,
    Arrived,
    Receipt,
    is_message,
    nak,
    read_count,
    read_message,
    receipt_of,
)
from lexigram.queue.errors import NATSQueueError
from lexigram.queue.runtime.envelope import delay_of, due_of
from lexigram.queue.runtime.topics import matcher

if TYPE_CHECKING:
    from nats.aio.msg import Msg
NOT_BEFORE: Final = "Lex-Not-Before"
REPLACED: Final = "Lex-Body"  # the record has a body too
SETTLED: Final = "Lex-Settled"  # so many deliveries do not count: retries and what was released
BEGUN: Final = "Lex-Begun"


class Receiver:
    """Receives from the stream of messages."""

    def __init__(self, stream: str, records: str, lease: float) -> None:
        self._stream, self._records, self._lease = stream, records, lease

    async def receive(
        self, connection: Connection, place: Place, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Pull what is there; when nothing is, wait for one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        if place.name not in connection.declared:
            await self.check_declared(connection, place)
        if place.name not in connection.paused:
            # Not over what was heard meanwhile.
            connection.paused.setdefault(place.name, await self.read_paused(connection, place))
        while True:
            if connection.paused.get(place.name):
                await connection.wait_resumed(place.name, max(0.0, until - loop.time()))
                return []
            messages: list[Msg] = []
            left = until - loop.time()
            # The last message said that there was no other: no need to ask before waiting.
            if place.name not in connection.drained or left <= 0:
                messages = await connection.pull(self._stream, place.name, limit)
                left = until - loop.time()
            if not messages and left > 0:
                messages = await self._linger(connection, place, left)
            if messages and messages[-1].reply.endswith(".0"):
                connection.drained.add(place.name)
            else:
                connection.drained.discard(place.name)
            taken = await self._take(connection, place, messages) if messages else []
            if taken or not messages:
                return taken

    async def _linger(self, connection: Connection, place: Place, left: float) -> list[Msg]:
        """Wait for one message. One: what else came would have to be held or given back."""
        try:
            return await connection.pull(self._stream, place.name, 1, wait=left)
        except TimeoutError:
            # The server answers nobody who asks a consumer that does not exist.
            connection.declared.discard(place.name)
            await self.check_declared(connection, place)
            raise

    async def check_declared(self, connection: Connection, place: Place) -> None:
        if await connection.find(f"CONSUMER.INFO.{self._stream}.{place.name}") is None:
            raise NATSQueueError(
                f"group {place.group!r} of topic {place.topic!r} was never declared",
                topic=place.topic,
                hint="await driver.declare(topic, group) first",
            )
        connection.declared.add(place.name)

    async def _take(
        self, connection: Connection, place: Place, messages: Sequence[Msg]
    ) -> list[Delivery]:
        ends = asyncio.get_running_loop().time() + self._lease
        arrived = [Arrived(message, receipt_of(place.name, message, ends)) for message in messages]
        again = [one for one in arrived if one.receipt.delivered > 1]
        if again:
            await asyncio.gather(*(self._recall(connection, one) for one in again))
        taken: list[Delivery] = []
        scheduled = False
        for one in arrived:
            if not self.is_for(place, one):
                await connection.send(one.receipt.reply, ACK)
                continue
            message = self.read(one)
            early = max(delay_of(message), one.not_before - clock.timestamp())
            if early > 0:
                await connection.send(one.receipt.reply, nak(early))
                continue
            receipt = one.receipt
            if receipt.delivered > 1 and one.record is None and DELIVER_AT in message.headers:
                receipt.uncounted = 1  # the look that came too early
            count = receipt.delivered - receipt.uncounted
            taken.append(Delivery(message, place.topic, place.group, receipt, count))
            scheduled = scheduled or DELIVER_AT in message.headers
        if scheduled:
            # They stand in the stream where they were sent; their place is where they are due.
            taken.sort(key=lambda one: due_of(one.message))
        return taken

    def is_for(self, place: Place, one: Arrived) -> bool:
        headers = one.message.headers
        if headers is not None and headers.get(ONLY, place.name) != place.name:
            return False
        return not place.is_pattern or matcher(place.topic)(self._topic(one.message.subject))

    def _topic(self, subject: str) -> str:
        return topic_of(subject[len(self._stream) + 1 :])

    def read(self, one: Arrived) -> BusMessage:
        native, record = one.message.headers or {}, one.record
        body = one.message.data
        if record is not None:
            native = record.headers or {}
            body = record.data if REPLACED in native else body
        return read_message(native, body, self._topic(one.message.subject), self._fallback(one))

    def _fallback(self, one: Arrived) -> str:
        """The id of a message that has none of ours: the producer's, else its place."""
        theirs = (one.message.headers or {}).get(MESSAGE_ID, "")
        if is_text(theirs, MAX_ID_BYTES):
            return theirs
        return f"{self._stream}:{one.receipt.sequence}"

    async def _recall(self, connection: Connection, one: Arrived) -> None:
        """Find what was written about the message, if anything was."""
        subject = self.record_of(one.receipt)
        found = await connection.request(f"$JS.API.DIRECT.GET.{self._records}.{subject}")
        if not is_message(found):
            if (status := status_of(found)) != NOT_FOUND:
                raise ApiError(status, 0, f"reading a record: {description_of(found)}")
            return
        headers = found.headers or {}
        one.record = found
        one.receipt.record = int(headers[SEQUENCE])
        one.receipt.has_body = REPLACED in headers
        one.receipt.uncounted = read_count(headers.get(SETTLED))
        one.receipt.begun = read_count(headers.get(BEGUN))
        one.not_before = read_moment(headers.get(NOT_BEFORE, "")) or 0.0

    def record_of(self, receipt: Receipt) -> str:
        return f"{self._records}.{receipt.consumer}.{receipt.sequence}"

    async def read_paused(self, connection: Connection, place: Place) -> bool:
        subject = f"{self._records}.paused.{place.name}"
        mark = await connection.request(f"$JS.API.DIRECT.GET.{self._records}.{subject}")
        return is_message(mark) and mark.data == b"1"
