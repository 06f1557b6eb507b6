"""Publishing by topic, in as few batches as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError, QueueFullError
from lexigram.queue.backends.azure_servicebus._errors import NAME
from lexigram.queue.backends.azure_servicebus._links import EXTRA
from lexigram.queue.backends.azure_servicebus._names import Place
from lexigram.queue.backends.azure_servicebus._space import Space, if_there
from lexigram.queue.backends.azure_servicebus._topology import Topology
from lexigram.queue.backends.azure_servicebus._wire import encode, size_of
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.runtime.envelope import to_headers

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage
HEADERS: Final = 64 * 1024  # bytes of the headers, at most; of the service


class Publisher:
    """Publishes to topics that keep what they get."""

    def __init__(
        self,
        topology: Topology,
        *,
        sessions: bool,
        max_backlog: int,
        place: Callable[[str, str], Place],
        translate_errors: Callable[[str, str], AbstractContextManager[None]],
    ) -> None:
        """``place``: of a topic and a group. ``translate_errors``: for those of the client."""
        self._topology, self._sessions, self._max_backlog = topology, sessions, max_backlog
        self._place, self._translate_errors = place, translate_errors

    async def publish_many(self, space: Space, messages: Sequence[BusMessage]) -> None:
        """Send by topic, in as few batches as fit."""
        outs: dict[str, list[tuple[str, ServiceBusMessage]]] = {}
        for message in messages:
            self._check_size(message, space.max_size - HEADERS)
            outs.setdefault(message.topic, []).append(
                (message.id, encode(message, sessions=self._sessions))
            )
        left = {topic: [identity for identity, _ in pairs] for topic, pairs in outs.items()}
        for topic, pairs in outs.items():
            try:
                with self._translate_errors("publish", topic):
                    await self._publish(space, topic, pairs, left[topic])
            except QueueError as error:
                error.details["unconfirmed"] = [one for ids in left.values() for one in ids]
                raise

    async def _publish(
        self,
        space: Space,
        topic: str,
        pairs: Sequence[tuple[str, ServiceBusMessage]],
        left: list[str],
    ) -> None:
        room = await self._topology.room(space, self._place(topic, ""), len(pairs))
        outs = [out for _, out in pairs][:room]
        errors = require_library("azure.servicebus.exceptions", extra=EXTRA)
        entity = self._place(topic, "").entity

        def drop_sent(number: int) -> None:
            del left[:number]

        try:
            await space.senders.send(entity, outs, drop_sent)
        except (errors.MessagingEntityNotFoundError, errors.ServiceBusConnectionError):
            # The client may lose the reason when a link is refused, so the topic is asked for.
            if await if_there(space.admin.get_topic(entity)):
                raise
            # Deleted since we looked; what was confirmed before is not sent again.
            space.covered.pop(topic, None)
            await self._topology.room(space, self._place(topic, ""), len(left))
            await space.senders.send(entity, outs[len(pairs) - len(left) :], drop_sent)
        if room < len(pairs):
            raise QueueFullError(
                f"topic {topic} has no group and already keeps {self._max_backlog} messages",
                backend=NAME,
                topic=topic,
                hint="start a consumer of the topic, or raise max_backlog",
            )

    def _check_size(self, message: BusMessage, most: int) -> None:
        headers = size_of(to_headers(message))
        if len(message.payload) > most or headers > HEADERS // 2:
            raise MessageTooLargeError(
                f"{len(message.payload)} bytes and {headers} of headers are more than Service Bus "
                f"takes here ({most} and {HEADERS // 2})",
                backend=NAME,
                topic=message.topic,
                hint="use the Premium tier, or send a reference to stored content",
            )
