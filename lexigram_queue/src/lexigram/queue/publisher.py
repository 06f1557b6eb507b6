"""Sends messages: one path for all of them, from the application's object to the confirm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    MessageTooLargeError,
    QueueDriverProtocol,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, ORDERING_KEY
from lexigram.queue.announce import Announcer
from lexigram.queue.constants import DEFAULT_MAX_RETRIES
from lexigram.queue.envelope import reserved
from lexigram.queue.link import Link
from lexigram.queue.messages import with_payload
from lexigram.queue.options import BusOptions
from lexigram.queue.payloads import Payloads
from lexigram.sql.leasing import Coalescer

if TYPE_CHECKING:
    from lexigram.contracts.observability.tracing import TracerProtocol

PUBLISHING: Final = "message.publishing"  # filters of this name may change or refuse a message
BATCH: Final = 500  # messages in one call of the driver

# What is wrong with the message or the room for it; the connection is fine.
_NOT_THE_LINK: Final = (QueueFullError, MessageTooLargeError, CapabilityError)


class Publisher:
    """The one way out of the process. ``send`` returns when the broker confirmed.

    Messages that many tasks send at the same moment travel together; a lone one does not wait
    for company. A driver in this process takes messages without a wait (``publish_nowait``).
    """

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        announcer: Announcer,
        payloads: Payloads,
        options: BusOptions,
    ) -> None:
        self._driver, self._link = driver, link
        self._announcer, self._payloads, self._options = announcer, payloads, options
        self._nowait: Callable[[BusMessage], bool] | None = getattr(driver, "publish_nowait", None)
        self._coalescer = Coalescer(self._write, limit=BATCH)
        self._has_defaults = not (
            options.default_ttl is None and options.max_retries == DEFAULT_MAX_RETRIES
        )
        self.tracer: TracerProtocol | None = None

    async def send(self, topic: str, message: BusMessage) -> BusMessage:
        """Send one message; returns it as sent. Raises QueueError, SerializationError."""
        hooks = self._announcer.hooks
        if hooks is not None and hooks.has_filter(PUBLISHING):
            message = await hooks.apply_filter(PUBLISHING, message, topic=topic)
        if self.tracer is not None:
            return await self._send_traced(self.tracer, topic, message)
        sent = message  # nearly always as it is: the way without a copy
        if message.headers or message.priority or message.topic != topic or self._has_defaults:
            sent = self._prepared(message, topic)
        wire = self._payloads.encode(sent, topic)
        if self._nowait is None or not self._nowait(wire):
            await self._confirmed(wire)
        if not self._announcer.nobody_listens():
            await self._announcer.published(sent)
        return sent

    async def send_many(self, messages: Sequence[BusMessage]) -> list[BusMessage]:
        """Send messages to their topics in as few calls as possible, in order.

        Raises QueueError; ``details["unconfirmed"]`` lists the ids that were not confirmed.
        """
        sent = [await self._ready(message) for message in messages]
        await self._send_all([self._payloads.encode(message, message.topic) for message in sent])
        await self._announce(sent)
        return sent

    async def wire(self, topic: str, message: BusMessage) -> BusMessage:
        """The message as it is sent, its payload in bytes, for somebody who sends it later."""
        ready = await self._ready(with_payload(message, message.payload, message.headers, topic))
        wire = self._payloads.as_bytes().encode(ready, topic)
        self._check_size(wire)
        return wire

    async def send_wires(self, wires: Sequence[BusMessage]) -> None:
        """Send what ``wire`` made; raises as ``send_many`` does."""
        await self._send_all(wires)
        await self._announce(wires)

    async def _send_all(self, wires: Sequence[BusMessage]) -> None:
        for wire in wires:
            self._check_size(wire)
        for start in range(0, len(wires), BATCH):
            try:
                await self._driver.publish_many(wires[start : start + BATCH])
            except QueueError as error:
                lost = set(error.details.get("unconfirmed") or _ids(wires[start : start + BATCH]))
                self._failed(error).details["unconfirmed"] = [
                    wire.id
                    for at, wire in enumerate(wires)
                    if wire.id in lost or at >= start + BATCH
                ]
                raise

    async def _announce(self, sent: Sequence[BusMessage]) -> None:
        if not self._announcer.nobody_listens():
            for message in sent:
                await self._announcer.published(message)

    async def send_wire(self, wire: BusMessage) -> None:
        """Send what is encoded already: a message that moves to another topic as it is."""
        if self._nowait is None or not self._nowait(wire):
            await self._confirmed(wire)

    async def _ready(self, message: BusMessage) -> BusMessage:
        hooks, topic = self._announcer.hooks, message.topic
        if hooks is not None and hooks.has_filter(PUBLISHING):
            message = await hooks.apply_filter(PUBLISHING, message, topic=topic)
        if self.tracer is not None:
            headers = dict(message.headers)
            self.tracer.inject_context(headers)
            message = with_payload(message, message.payload, headers, topic)
        return self._prepared(message, topic)

    async def _send_traced(
        self, tracer: TracerProtocol, topic: str, message: BusMessage
    ) -> BusMessage:
        facts = {"messaging.destination": topic, "messaging.system": self._driver.name}
        with tracer.start_span(f"queue.publish {topic}", facts) as span:
            headers = dict(message.headers)
            tracer.inject_context(headers, span.context)
            sent = self._prepared(with_payload(message, message.payload, headers, topic), topic)
            await self.send_wire(self._payloads.encode(sent, topic))
        if not self._announcer.nobody_listens():
            await self._announcer.published(sent)
        return sent

    def _prepared(self, message: BusMessage, topic: str) -> BusMessage:
        """With topic and defaults, and refused where the driver cannot do what it asks for."""
        if message.headers:
            self._check_headers(message)
        if message.priority and Capability.PRIORITY not in self._driver.capabilities:
            raise self._cannot(Capability.PRIORITY, topic, "leave priority at 0")
        if self._has_defaults:
            message = self._with_defaults(message)
        if message.topic != topic:
            message = with_payload(message, message.payload, message.headers, topic)
        return message

    def _with_defaults(self, message: BusMessage) -> BusMessage:
        ttl, most = message.ttl, message.max_retries
        return replace(
            message,
            ttl=self._options.default_ttl if ttl is None else ttl,
            max_retries=self._options.max_retries if most == DEFAULT_MAX_RETRIES else most,
        )

    def _check_headers(self, message: BusMessage) -> None:
        headers, able = message.headers, self._driver.capabilities
        if ORDERING_KEY in headers and Capability.ORDERING not in able:
            raise self._cannot(Capability.ORDERING, message.topic, f"no header {ORDERING_KEY}")
        if DELIVER_AT in headers and Capability.SCHEDULE not in able:
            raise self._cannot(Capability.SCHEDULE, message.topic, f"no header {DELIVER_AT}")
        wrong = [n for n, text in headers.items() if not (type(n) is str and type(text) is str)]
        if wrong:
            raise QueueError(
                f"headers are text by text; {wrong[0]!r} is not",
                backend=self._driver.name,
                topic=message.topic,
                hint="convert it with str(...)",
            )
        if taken := reserved(headers):
            raise QueueError(
                f"the header {min(taken)} is part of the message itself",
                backend=self._driver.name,
                topic=message.topic,
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

    async def _confirmed(self, wire: BusMessage) -> None:
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
            self._failed(error)
            lost = set(error.details.get("unconfirmed") or _ids(batch))
            if len(batch) > 1 and isinstance(error, _NOT_THE_LINK):
                # Not accepted, so nothing can double: those without fault go by themselves.
                return [await self._alone(one) if one.id in lost else None for one in batch]
            return [error if one.id in lost else None for one in batch]
        return [None] * len(batch)

    async def _alone(self, wire: BusMessage) -> QueueError | None:
        return (await self._write([wire]))[0]

    def _failed(self, error: QueueError) -> QueueError:
        if not isinstance(error, _NOT_THE_LINK):
            self._link.suspect(error)
        return error

    def _cannot(self, wanted: Capability, topic: str, instead: str) -> CapabilityError:
        return CapabilityError(
            f"driver {self._driver.name} cannot do {wanted.value}",
            backend=self._driver.name,
            topic=topic,
            details={"capability": wanted.value},
            hint=f"use a driver that can (docs/reference/queue-drivers.md), or {instead}",
        )


def _ids(wires: Sequence[BusMessage]) -> list[str]:
    return [wire.id for wire in wires]
