"""Publishing by topic and ordering key, in as few requests as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lexigram import clock
from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.gcp_pubsub._errors import NAME, api_errors
from lexigram.queue.backends.gcp_pubsub._names import Place
from lexigram.queue.backends.gcp_pubsub._space import Space
from lexigram.queue.backends.gcp_pubsub._topology import Topology
from lexigram.queue.backends.gcp_pubsub._wire import (
    DUE,
    HEADERS,
    LONGEST_NAME,
    MAX_USER_ATTRIBUTES,
    MOST_ATTRIBUTES,
    MOST_BYTES,
    ONLY,
    SPARE,
    Out,
    chunks,
    fit_key,
    to_attributes,
)
from lexigram.queue.runtime.envelope import delay_of, to_headers


class Publisher:
    """Publishes to topics that keep what they get."""

    def __init__(
        self,
        topology: Topology,
        place: Callable[[str, str], Place],
        translate_errors: Callable[[str, str], AbstractContextManager[None]],
    ) -> None:
        """``place``: of a topic and a group. ``translate_errors``: for those of the client."""
        self._topology, self._place, self._translate_errors = topology, place, translate_errors

    async def publish_many(self, space: Space, messages: Sequence[BusMessage]) -> None:
        """Send by topic and, where it has one, by ordering key; as few requests as fit."""
        outs: dict[str, list[tuple[str, Out]]] = {}
        for message in messages:
            outs.setdefault(message.topic, []).append((message.id, self.encode(message)))
        left = {topic: [identity for identity, _ in pairs] for topic, pairs in outs.items()}
        for topic, pairs in outs.items():
            try:
                with self._translate_errors("publish", topic):
                    await self._topology.cover(space, self._place(topic, ""))
                    for chunk in chunks([out for _, out in pairs]):
                        await self.publish(space, topic, chunk)
                        del left[topic][: len(chunk)]
            except QueueError as error:
                error.details["unconfirmed"] = [one for ids in left.values() for one in ids]
                raise

    async def publish(self, space: Space, topic: str, chunk: Sequence[Out]) -> None:
        entity = self._place(topic, "").entity
        try:
            await space.send(entity, chunk)
        except api_errors().NotFound:
            # Deleted since we looked.
            space.covered.pop(topic, None)
            await self._topology.cover(space, self._place(topic, ""))
            await space.send(entity, chunk)

    def encode(self, message: BusMessage, *, delay: float = 0.0, only: str | None = None) -> Out:
        """A message for the wire: attributes beside the bare body."""
        headers, now = to_headers(message), clock.timestamp()
        delay = max(delay, delay_of(message, now))
        attributes = to_attributes(headers)
        if delay > 0:
            attributes[DUE] = repr(now + delay)
        if only:
            attributes[ONLY] = only
        key = message.headers.get(ORDERING_KEY, "")
        out = Out(body=message.payload, attributes=attributes, key=fit_key(key))
        self._check_size(out, message.topic, is_first=only is None)
        return out

    def _check_size(self, out: Out, topic: str, *, is_first: bool) -> None:
        """Raise where the service takes no more; at first there must be room for a retry, too."""
        names = [name for name in out.attributes if len(name.encode()) > LONGEST_NAME]
        count, most = len(out.attributes), MOST_BYTES - HEADERS
        attributes = MAX_USER_ATTRIBUTES if is_first else MOST_ATTRIBUTES
        is_large = len(out.body) > most if is_first else out.size > MOST_BYTES - SPARE
        if is_large or count > attributes or names:
            raise MessageTooLargeError(
                f"{len(out.body)} bytes with {count} attributes are more than Pub/Sub takes "
                f"({most} bytes, {attributes} attributes, names of {LONGEST_NAME} bytes)",
                backend=NAME,
                topic=topic,
                hint="send a reference to stored content, or fewer and shorter headers",
            )
