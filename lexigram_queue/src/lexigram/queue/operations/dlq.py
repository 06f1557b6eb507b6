"""The dead letters of the bus as the one contract that jobs and workers share."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import anyio
from attrs import frozen

from lexigram.contracts.infra.tasks import DeadLetter
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
    QueueError,
)
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetterFilter, DeadLetters
from lexigram.queue.runtime.envelope import escape, unescape
from lexigram.queue.runtime.payloads import Payloads
from lexigram.serialization import SerializationError, dumps, loads

# Where dead letters from ``add`` are kept, and the topic of a retry when they name none.
ADDED_TOPIC: Final = "lexigram.dead-letters"
ADDED_GROUP: Final = "added"
RETRIED_TOPIC: Final = "lexigram.dead-letters.retried"
ADDED_WITHIN: Final = 60.0  # seconds; a dead letter takes two round trips

_ID, _REASON, _FACTS = "letter-id", "letter-reason", "letter-facts"


class BusDeadLetters:
    """Implements DLQProtocol over all backends; ``add`` stores in the primary one.

    A dead letter is a message: where it failed in several groups it is one dead letter, and
    ``retry`` sends it to each of them. One from ``add`` goes to the topic its metadata names
    (``topic``), or to RETRIED_TOPIC. Listing reads every entry: for large numbers use
    ``DeadLetters``.
    """

    def __init__(self, control: BusControl) -> None:
        self._control = control

    async def add(
        self,
        message_id: str,
        payload: Any,
        reason: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a dead letter; it replaces others of this id."""
        queue = self._control.queue()
        old = [one async for one in self._find() if one.id == message_id]
        facts = dumps(dict(metadata or {})).decode()
        # The id on the wire is new: a second dead letter of one id is no duplicate to the broker.
        message = BusMessage(
            id=uuid4().hex,
            payload=payload,
            headers={_ID: escape(message_id), _REASON: escape(reason), _FACTS: facts},
        )
        wire = Payloads(queue.options.serializer).encode(message, ADDED_TOPIC)
        await queue.driver.declare(ADDED_TOPIC, ADDED_GROUP)
        await queue.driver.publish_many([wire])
        await self._set_aside(wire.id)
        for one in old:
            await one.purge()

    async def get(self, message_id: str) -> DeadLetter | None:
        """The dead letter, or None."""
        latest: _Found | None = None
        async for one in self._find():
            if one.id == message_id and (latest is None or one.age >= latest.age):
                latest = one
        return None if latest is None else latest.to_dead_letter()

    async def retry(self, message_id: str) -> bool:
        """Send it back to its topic and delete it; False when unknown."""
        found = [one async for one in self._find() if one.id == message_id]
        added = [one for one in found if one.is_added]
        if added:
            latest = max(added, key=lambda one: one.age)
            topic = str(latest.facts().get("topic") or RETRIED_TOPIC)
            message = BusMessage(id=message_id, payload=latest.entry.message.payload)
            await self._control.queue().publish(topic, message)
        for one in found:
            await (one.purge() if one.is_added else one.redrive())
        return bool(found)

    async def purge(self, message_id: str) -> bool:
        """Delete the dead letter permanently; False when unknown."""
        found = [one async for one in self._find() if one.id == message_id]
        for one in found:
            await one.purge()
        return bool(found)

    async def clear(self) -> int:
        """Delete all dead letters permanently; how many."""
        count = await self.size()
        for queue in self._control.queues():
            await DeadLetters(queue).purge()
        return count

    async def size(self) -> int:
        """Number of dead letters; may already be stale."""
        return len({one.id async for one in self._find()})

    async def list_failed(self, limit: int = 100, offset: int = 0) -> Sequence[DeadLetter]:
        """Dead letters, latest first."""
        latest: dict[str, _Found] = {}
        async for one in self._find():
            if one.id not in latest or one.age >= latest[one.id].age:
                latest[one.id] = one
        page = heapq.nlargest(offset + limit, latest.values(), key=lambda one: one.age)
        return [one.to_dead_letter() for one in page[offset:]]

    async def _find(self) -> AsyncIterator[_Found]:
        number = 0
        for queue in self._control.queues():
            dead_letters = DeadLetters(queue)
            for topic, group in await dead_letters.places():
                async for entry in dead_letters.find(DeadLetterFilter(topic=topic, group=group)):
                    number += 1
                    yield _Found(dead_letters, topic, group, entry, number)

    async def _set_aside(self, wire_id: str) -> None:
        """Set aside the messages that wait in ADDED_TOPIC, those of other processes too.

        Another process may have received ours; it then sets it aside.
        """
        driver = self._control.queue().driver
        with anyio.move_on_after(ADDED_WITHIN):
            while True:
                batch = await driver.receive(ADDED_TOPIC, ADDED_GROUP, limit=10, wait=0.5)
                for delivery in batch:
                    await driver.dead_letter(delivery, _entry(delivery))
                if any(delivery.message.id == wire_id for delivery in batch):
                    return
                if not batch and await self._is_kept(wire_id):
                    return
        raise QueueError(
            f"the dead letter was published, but not stored within {ADDED_WITHIN:g} s",
            backend=driver.name,
            topic=ADDED_TOPIC,
            hint=f"resume {ADDED_TOPIC} if it is paused; the next call of add() stores it",
        )

    async def _is_kept(self, wire_id: str) -> bool:
        wanted = DeadLetterFilter(ids={wire_id}, topic=ADDED_TOPIC, group=ADDED_GROUP)
        return bool(await self._control.dead_letters().list(wanted, limit=1))


@frozen
class _Found:
    """One entry, and where it is."""

    dead_letters: DeadLetters
    topic: str
    group: str
    entry: DeadLetterEntry
    number: int

    @property
    def is_added(self) -> bool:
        """Whether ``add`` created it; anything else published to that topic is a message."""
        place = (self.topic, self.group)
        return place == (ADDED_TOPIC, ADDED_GROUP) and _FACTS in self.entry.message.headers

    @property
    def id(self) -> str:
        message = self.entry.message
        return unescape(message.headers.get(_ID, message.id)) if self.is_added else message.id

    @property
    def age(self) -> tuple[float, int]:
        return self.entry.failed_at.timestamp(), self.number

    def facts(self) -> dict[str, Any]:
        entry = self.entry
        if self.is_added:
            text = entry.message.headers[_FACTS]
            try:
                return dict(loads(text.encode(), dict[str, Any]))
            except SerializationError:
                return {"facts": text}  # another producer used our header names
        return {
            "backend": self.dead_letters.queue.name,
            "topic": entry.message.topic,
            "group": self.group,
            "error": entry.error,
            "traceback": entry.traceback,
            "headers": dict(entry.message.headers),
        }

    def to_dead_letter(self) -> DeadLetter:
        entry = self.entry
        reason = entry.reason.value
        return DeadLetter(
            message_id=self.id,
            payload=entry.message.payload,
            reason=_reason(entry.message, reason) if self.is_added else reason,
            failed_at=entry.failed_at,
            attempts=entry.attempts,
            metadata=self.facts(),
        )

    async def purge(self) -> None:
        await self.dead_letters.queue.driver.purge_dead(
            self.topic, self.group, [self.entry.message.id]
        )

    async def redrive(self) -> None:
        await self.dead_letters.queue.driver.redrive(
            self.topic, self.group, [self.entry.message.id]
        )


def _entry(delivery: Delivery) -> DeadLetterEntry:
    return DeadLetterEntry(
        message=delivery.message,
        error=_reason(delivery.message, ""),
        reason=DeadLetterReason.REJECTED,
        group=ADDED_GROUP,
    )


def _reason(message: BusMessage, default: str) -> str:
    return unescape(message.headers.get(_REASON, default))
