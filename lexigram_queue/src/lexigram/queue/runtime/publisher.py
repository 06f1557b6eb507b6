"""Sends messages: one path for all of them, from the application's object to the confirm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    InvalidMessageError,
    MessageTooLargeError,
    QueueDriverProtocol,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY
from lexigram.contracts.queue.limits import check_message, check_topic
from lexigram.leasing import Coalescer
from lexigram.queue.constants import DEFAULT_MAX_RETRIES
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.emitter import QueueEmitter
from lexigram.queue.runtime.envelope import find_reserved, strip_begun_count
from lexigram.queue.runtime.link import Link
from lexigram.queue.runtime.payloads import Payloads, with_payload

if TYPE_CHECKING:
    from lexigram.contracts.observability.tracing import TracerProtocol

PUBLISHING: Final = "message.publishing"  # filters of this name may change or refuse a message
BATCH: Final = 500  # messages in one call of the driver
KNOWN_TOPICS: Final = 10_000  # topics remembered as checked

# Headers that mean something to a driver, with the capability that they need.
_NEEDS: Final = {
    ORDERING_KEY: Capability.ORDERING,
    FAIRNESS_KEY: Capability.FAIRNESS,
    DELIVER_AT: Capability.SCHEDULE,
}

# What is wrong with the message or the room for it; the connection is fine.
_NOT_THE_LINK: Final = (QueueFullError, MessageTooLargeError, CapabilityError)


class Publisher:
    """The one way out of the process. ``send`` returns when the broker confirmed.

    Messages that many tasks send at the same moment travel together; a single one does not
    wait for others. A driver in this process takes messages without a wait (``publish_nowait``).
    """

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        emitter: QueueEmitter,
        payloads: Payloads,
        options: BusOptions,
    ) -> None:
        self._driver, self._link = driver, link
        self._emitter, self._payloads, self._options = emitter, payloads, options
        self._nowait: Callable[[BusMessage], bool] | None = getattr(driver, "publish_nowait", None)
        self._coalescer = Coalescer(self._write, limit=BATCH)
        self._topics: set[str] = set()  # those that passed check_topic
        self._has_defaults = not (
            options.default_ttl is None and options.max_retries == DEFAULT_MAX_RETRIES
        )
        self.tracer: TracerProtocol | None = None

    async def send(self, topic: str, message: BusMessage) -> BusMessage:
        """Send one message; returns it as sent.

        Raises InvalidMessageError, CapabilityError and other QueueErrors, SerializationError.
        """
        hooks = self._emitter.hooks
        if hooks is not None and hooks.has_filter(PUBLISHING):
            message = await hooks.apply_filter(PUBLISHING, message, topic=topic)
        if self.tracer is not None:
            return await self._send_traced(self.tracer, topic, message)
        sent = self._prepare(message, topic)
        wire = self._payloads.encode(sent, topic)
        if self._nowait is None or not self._nowait(wire):
            await self._confirm(wire)
        if not self._emitter.is_idle:
            await self._emitter.emit_published(sent)
        return sent

    async def send_many(self, messages: Sequence[BusMessage]) -> list[BusMessage]:
        """Send messages to their topics in as few calls as possible, in order.

        Raises QueueError; ``details["unconfirmed"]`` lists the ids that were not confirmed.
        """
        sent = [await self._filter_and_prepare(message) for message in messages]
        await self._send_all([self._payloads.encode(message, message.topic) for message in sent])
        await self._emit_published(sent)
        return sent

    def check(self, topic: str, message: BusMessage) -> None:
        """Raise InvalidMessageError or CapabilityError where ``send`` would."""
        self._prepare(message, topic)

    async def wire(self, topic: str, message: BusMessage) -> BusMessage:
        """The message as it is sent, its payload in bytes, to be sent later."""
        ready = await self._filter_and_prepare(
            with_payload(message, message.payload, message.headers, topic)
        )
        wire = self._payloads.as_bytes().encode(ready, topic)
        self._check_size(wire)
        return wire

    async def send_wires(self, wires: Sequence[BusMessage]) -> None:
        """Send what ``wire`` made; raises as ``send_many`` does."""
        await self._send_all(wires)
        await self._emit_published(wires)

    async def _send_all(self, wires: Sequence[BusMessage]) -> None:
        for wire in wires:
            self._check_size(wire)
        for start in range(0, len(wires), BATCH):
            try:
                await self._driver.publish_many(wires[start : start + BATCH])
            except QueueError as error:
                lost = set(error.details.get("unconfirmed") or _ids(wires[start : start + BATCH]))
                self._note_failure(error).details["unconfirmed"] = [
                    wire.id
                    for at, wire in enumerate(wires)
                    if wire.id in lost or at >= start + BATCH
                ]
                raise

    async def _emit_published(self, sent: Sequence[BusMessage]) -> None:
        if not self._emitter.is_idle:
            for message in sent:
                await self._emitter.emit_published(message)

    async def send_wire(self, wire: BusMessage) -> None:
        """Send what is encoded already: a message that moves to another topic as it is."""
        if self._nowait is None or not self._nowait(wire):
            await self._confirm(wire)

    async def _filter_and_prepare(self, message: BusMessage) -> BusMessage:
        hooks, topic = self._emitter.hooks, message.topic
        if hooks is not None and hooks.has_filter(PUBLISHING):
            message = await hooks.apply_filter(PUBLISHING, message, topic=topic)
        if self.tracer is not None:
            headers = dict(message.headers)
            self.tracer.inject_context(headers)
            message = with_payload(message, message.payload, headers, topic)
        return self._prepare(message, topic)

    async def _send_traced(
        self, tracer: TracerProtocol, topic: str, message: BusMessage
    ) -> BusMessage:
        facts = {"messaging.destination": topic, "messaging.system": self._driver.name}
        with tracer.start_span(f"queue.publish {topic}", facts) as span:
            headers = dict(message.headers)
            tracer.inject_context(headers, span.context)
            sent = self._prepare(with_payload(message, message.payload, headers, topic), topic)
            await self.send_wire(self._payloads.encode(sent, topic))
        if not self._emitter.is_idle:
            await self._emitter.emit_published(sent)
        return sent

    def _prepare(self, message: BusMessage, topic: str) -> BusMessage:
        """With topic and defaults; refused where it is out of bounds or the driver cannot do it."""
        if topic not in self._topics:
            self._check_topic(topic)
        if self._has_defaults:
            message = self._with_defaults(message)
        if message.topic != topic:
            message = with_payload(message, message.payload, message.headers, topic)
        check_message(message)
        if message.headers:
            self._check_headers(message)
            message = strip_begun_count(message)
        if message.priority and Capability.PRIORITY not in self._driver.capabilities:
            raise self._missing_capability(Capability.PRIORITY, topic, "leave priority at 0")
        return message

    def _check_topic(self, topic: str) -> None:
        check_topic(topic)
        if len(self._topics) >= KNOWN_TOPICS:
            self._topics.clear()
        self._topics.add(topic)

    def _with_defaults(self, message: BusMessage) -> BusMessage:
        ttl, most = message.ttl, message.max_retries
        return replace(
            message,
            ttl=self._options.default_ttl if ttl is None else ttl,
            max_retries=self._options.max_retries if most == DEFAULT_MAX_RETRIES else most,
        )

    def _check_headers(self, message: BusMessage) -> None:
        headers = message.headers
        for name, wanted in _NEEDS.items():
            if name in headers and wanted not in self._driver.capabilities:
                raise self._missing_capability(
                    wanted, message.topic, f"leave out the header {name}"
                )
        if taken := find_reserved(headers):
            raise InvalidMessageError(
                f"header {min(taken)} is part of the message itself",
                backend=self._driver.name,
                topic=message.topic,
                details={"field": f"header {min(taken)}", "message_id": message.id},
                hint="set the field of BusMessage instead",
            )

    def _check_size(self, wire: BusMessage) -> None:
        limit = self._driver.max_message_bytes
        if limit is not None and len(wire.payload) > limit:  # bytes, where there is a limit
            raise MessageTooLargeError(
                f"{len(wire.payload)} bytes are more than the {limit} {self._driver.name} takes",
                backend=self._driver.name,
                topic=wire.topic,
                hint="store large content elsewhere (lexigram.blobs) and send a reference",
            )

    async def _confirm(self, wire: BusMessage) -> None:
        self._check_size(wire)
        # A driver whose messages may belong to a transaction of this task: not with those of others.
        if self._nowait is not None or getattr(self._driver, "joins_transaction", False):
            await self._driver.publish_many((wire,))
            return
        error = await self._coalescer.add(wire)
        if error is not None:
            raise error

    async def _write(self, batch: Sequence[BusMessage]) -> Sequence[QueueError | None]:
        """One call for the batch; an answer for each message."""
        try:
            await self._driver.publish_many(batch)
        except QueueError as error:
            self._note_failure(error)
            lost = set(error.details.get("unconfirmed") or _ids(batch))
            if len(batch) > 1 and isinstance(error, _NOT_THE_LINK):
                # Not accepted, so nothing can double: those without fault go by themselves.
                return [await self._write_one(one) if one.id in lost else None for one in batch]
            return [error if one.id in lost else None for one in batch]
        return [None] * len(batch)

    async def _write_one(self, wire: BusMessage) -> QueueError | None:
        return (await self._write([wire]))[0]

    def _note_failure(self, error: QueueError) -> QueueError:
        if not isinstance(error, _NOT_THE_LINK):
            self._link.suspect(error)
        return error

    def _missing_capability(self, wanted: Capability, topic: str, instead: str) -> CapabilityError:
        return CapabilityError(
            f"driver {self._driver.name} does not support {wanted.value}",
            backend=self._driver.name,
            topic=topic,
            details={"capability": wanted.value},
            hint=f"use a driver that supports it (docs/reference/queue-drivers.md), or {instead}",
        )


def _ids(wires: Sequence[BusMessage]) -> list[str]:
    return [wire.id for wire in wires]
