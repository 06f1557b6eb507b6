"""The stream of dead letters: one message per group and id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from lexigram.contracts.queue import DeadLetterEntry
from lexigram.queue.backends.nats._connection import NANOSECONDS, Connection
from lexigram.queue.backends.nats._names import Place, digest, subject_of
from lexigram.queue.backends.nats._publisher import ONLY, Publisher
from lexigram.queue.backends.nats._topology import CONSUMER
from lexigram.queue.backends.nats._wire import (
    SEQUENCE,
    OutboundMessage,
    chunks,
    from_native,
    is_message,
    receipt_of,
    to_native,
)
from lexigram.queue.runtime.envelope import dead_headers, from_dead_headers, redriven, to_headers

if TYPE_CHECKING:
    from nats.aio.msg import Msg
PAGE: Final = 250  # dead letters and purged messages read at once


class DeadLetters:
    """Dead letters of the groups of one stream."""

    def __init__(self, main: str, stream: str, publisher: Publisher) -> None:
        self._main, self._stream, self._publisher = main, stream, publisher

    def encode(self, consumer: str, entry: DeadLetterEntry) -> OutboundMessage:
        """The entry for the group of a consumer, as it is written."""
        subject = self.subject(consumer, entry.message.id)
        return OutboundMessage(
            subject, cast("bytes", entry.message.payload), to_native(dead_headers(entry))
        )

    async def read(
        self, connection: Connection, place: Place, number: int
    ) -> tuple[list[tuple[int, DeadLetterEntry]], int]:
        """Up to ``number`` entries with their sequences, and how many there are.

        By a consumer that lasts for this call.
        """
        config = CONSUMER | {
            "ack_policy": "none",
            "deliver_policy": "all",
            "filter_subject": f"{self._stream}.{place.name}.*",
            "mem_storage": True,
            "inactive_threshold": 30 * NANOSECONDS,
        }
        made = await connection.ask(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        found: list[Msg] = []
        try:
            while len(found) < number:
                page = await connection.pull(
                    self._stream, made["name"], min(PAGE, number - len(found))
                )
                found += page
                if not page:
                    break
        finally:
            await connection.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{made['name']}", b"")
        entries = [self._entry(place, receipt_of("", one, 0.0).sequence, one) for one in found]
        return entries, int(made["num_pending"])

    def _entry(self, place: Place, sequence: int, one: Msg) -> tuple[int, DeadLetterEntry]:
        fallback = f"{self._stream}:{sequence}"
        headers = from_native(one.headers or {})
        return sequence, from_dead_headers(
            headers, one.data, topic=place.topic, fallback_id=fallback
        )

    async def find(
        self, connection: Connection, place: Place, ids: Sequence[str]
    ) -> list[tuple[int, DeadLetterEntry]]:
        api = f"$JS.API.DIRECT.GET.{self._stream}"
        found = await asyncio.gather(
            *(connection.request(f"{api}.{self.subject(place.name, one)}") for one in ids)
        )
        return [
            self._entry(place, int((one.headers or {})[SEQUENCE]), one)
            for one in found
            if is_message(one)
        ]

    async def resend(
        self,
        connection: Connection,
        place: Place,
        entries: Sequence[tuple[int, DeadLetterEntry]],
    ) -> int:
        """Publish, be sure of it, then drop: a crash in between doubles, never loses."""
        batch: list[OutboundMessage] = []
        for _, entry in entries:
            message = redriven(entry.message)
            headers = to_native(to_headers(message)) | {ONLY: place.name}
            subject = f"{self._main}.{subject_of(message.topic)}"
            batch.append(OutboundMessage(subject, cast("bytes", message.payload), headers))
        for chunk in chunks(range(len(batch)), batch):
            failures = await connection.publish([batch[number] for number in chunk])
            for failure in failures.values():
                raise failure
        if (doubt := await self._publisher.doubt(connection)) is not None:
            raise doubt
        api = f"STREAM.MSG.DELETE.{self._stream}"
        await asyncio.gather(
            *(connection.find(api, {"seq": sequence, "no_erase": True}) for sequence, _ in entries)
        )
        return len(entries)

    def subject(self, consumer: str, message_id: str) -> str:
        return f"{self._stream}.{consumer}.{digest(message_id)}"

    async def purge(self, connection: Connection, place: Place, ids: Sequence[str] | None) -> int:
        """Drop entries; how many there were."""
        subjects = (
            [f"{self._stream}.{place.name}.*"]
            if ids is None
            else [self.subject(place.name, one) for one in dict.fromkeys(ids)]
        )
        answers = [
            await connection.ask(f"STREAM.PURGE.{self._stream}", {"filter": subject})
            for subject in subjects
        ]
        return sum(int(answer["purged"]) for answer in answers)
