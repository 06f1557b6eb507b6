"""Sending to the queues of all groups of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import anyio
from attrs import define, field

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
)
from lexigram.queue.backends.sqs._bodies import Bodies
from lexigram.queue.backends.sqs._errors import NAME, cannot_error
from lexigram.queue.backends.sqs._space import Space
from lexigram.queue.backends.sqs._topology import find_keeper
from lexigram.queue.backends.sqs._wire import (
    BATCH,
    HEADERS,
    LARGEST,
    LATEST,
    OWN_HEADERS,
    Content,
    Json,
    Place,
    header_bytes,
    inline,
    wire,
)
from lexigram.queue.runtime.envelope import delay_of


class Publisher:
    """Sends messages, their bodies by claim check where they are large."""

    def __init__(
        self,
        bodies: Bodies,
        *,
        inline_bytes: int,
        max_backlog: int,
        place: Callable[[str, str], Place],
        translate_errors: Callable[[str, str], AbstractContextManager[None]],
    ) -> None:
        """``place``: of a topic and a group. ``translate_errors``: for those of the client."""
        self._bodies, self._inline_bytes, self._max_backlog = bodies, inline_bytes, max_backlog
        self._place, self._translate_errors = place, translate_errors

    async def publish_many(self, space: Space, messages: Sequence[BusMessage]) -> None:
        """Send to the queue of every group, in as few requests as fit."""
        contents = {id(message): self.check(message) for message in messages}
        left, gone = list(messages), set[str]()
        try:
            while left:
                with self._translate_errors("publish", left[0].topic):
                    plan = await self._plan(space, left, gone)
                sending = _Sending(contents=contents)
                async with anyio.create_task_group() as tasks:
                    for queue, share in plan.items():
                        tasks.start_soon(self._publish, space, queue, share, sending)
                gone |= sending.gone
                if sending.error is not None:
                    failed = sending.failed | _never_confirmed(left, sending)
                    sending.error.details["unconfirmed"] = [
                        message.id for message in left if message.id in failed
                    ]
                    raise sending.error
                # Groups dropped since they were listed get nothing; at least one group must.
                left = [message for message in left if message.id not in sending.confirmed]
                if sending.gone:
                    space.listed_until = 0.0
        except QueueError as error:
            error.details.setdefault("unconfirmed", [message.id for message in left])
            raise

    async def _plan(
        self, space: Space, messages: Sequence[BusMessage], gone: set[str]
    ) -> dict[str, list[BusMessage]]:
        """What goes to which queue, in order."""
        queues = await space.get_groups() - gone
        targets: dict[str, list[str]] = {}
        plan: dict[str, list[BusMessage]] = {}
        for message in messages:
            topic = message.topic
            if topic not in targets:
                found = await space.queues_for(queues, topic)
                targets[topic] = found or [
                    await find_keeper(space, self._place(topic, ""), self._max_backlog)
                ]
            for queue in targets[topic]:
                plan.setdefault(queue, []).append(message)
        return plan

    async def _publish(
        self, space: Space, queue: str, messages: Sequence[BusMessage], sending: _Sending
    ) -> None:
        """Send to one queue; errors go into ``sending``, so other queues are not interrupted."""
        room = space.rooms.pop(queue, None)
        waiting = list(messages[:room])
        try:
            with self._translate_errors("publish", messages[0].topic):
                # A page at a time: a claim check holds its body no longer than needed.
                for start in range(0, len(waiting), BATCH):
                    page = waiting[start : start + BATCH]
                    outs = [
                        await self._entry(
                            queue, one, sending.contents[id(one)], kept=room is not None
                        )
                        for one in page
                    ]
                    await space.send(queue, outs)
                    sending.confirmed.update(one.id for one in page)
                    sending.counts[queue] = start + len(page)
            if room is not None and room < len(messages):
                raise QueueFullError(
                    f"topic {messages[0].topic} has no group and keeps {self._max_backlog} messages",
                    backend=NAME,
                    topic=messages[0].topic,
                    hint="start a consumer of the topic, or raise max_backlog",
                )
        except QueueError as error:
            if error.details.get("gone") == queue:
                sending.gone.add(queue)
                space.urls.pop(queue, None)
                return
            done = sending.counts.get(queue, 0)
            sending.failed.update(one.id for one in messages[done:])
            sending.error = error

    async def _entry(
        self, queue: str, message: BusMessage, content: Content | None, *, kept: bool = False
    ) -> Json:
        """An entry; a body that is too large is put into the blob store first."""
        if content is None:
            content = await self._bodies.store(queue, message)
        made = wire(message, content, queue)
        if kept:
            made.pop("DelaySeconds", None)  # it could not be taken over while it waits
        return made

    def check(self, message: BusMessage) -> Content | None:
        """The body; None when it goes to the blob store. Raises before anything is sent."""
        if delay_of(message) > LATEST:
            raise cannot_error(
                Capability.SCHEDULE, message.topic, f"SQS keeps it for {LATEST / 86400:g} days"
            )
        content = inline(message.payload)
        length, headers = len(content.text.encode()), header_bytes(message)
        if headers <= OWN_HEADERS:
            if self._bodies.blobs is not None and length > self._inline_bytes:
                return None
            if length <= LARGEST - HEADERS:
                return content
        raise MessageTooLargeError(
            f"{length} bytes of body and {headers} of headers are more than SQS takes "
            f"({LARGEST - HEADERS} and {OWN_HEADERS}); bytes that are no text count 4 for 3",
            backend=NAME,
            topic=message.topic,
            hint="add BlobModule: large bodies go there; or send a reference to stored content",
        )


@define(eq=False, kw_only=True)
class _Sending:
    """How far one publish_many has come in all its queues."""

    contents: Mapping[int, Content | None]  # by the identity of the message
    confirmed: set[str] = field(factory=set[str])  # in one queue at least
    failed: set[str] = field(factory=set[str])
    gone: set[str] = field(factory=set[str])
    counts: dict[str, int] = field(factory=dict[str, int])
    error: QueueError | None = None


def _never_confirmed(messages: Sequence[BusMessage], sending: _Sending) -> set[str]:
    return {message.id for message in messages} - sending.confirmed
