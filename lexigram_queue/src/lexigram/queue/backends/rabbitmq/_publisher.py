"""Publishing messages to topics, also to those that no group has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError, QueueFullError
from lexigram.queue.backends.rabbitmq._connection import Connection
from lexigram.queue.backends.rabbitmq._names import Names
from lexigram.queue.backends.rabbitmq._sender import Sender
from lexigram.queue.backends.rabbitmq._topology import Topology
from lexigram.queue.backends.rabbitmq._wire import NAME, Out, outgoing, size_of
from lexigram.queue.errors import RabbitMQQueueError
from lexigram.queue.runtime.envelope import delay_of

MAX_HEADER_BYTES: Final = 100_000  # properties must fit into one frame of 128 KiB


class Publisher:
    """Publishes to one exchange."""

    def __init__(
        self,
        connection: Connection,
        sender: Sender,
        topology: Topology,
        names: Names,
        *,
        max_backlog: int,
    ) -> None:
        self._connection, self._sender, self._topology = connection, sender, topology
        self._names, self._max_backlog = names, max_backlog

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Publish to the exchange, persistent and mandatory; returns with the last confirm."""
        self._connection.check()
        for message in messages:
            self._check_size(message)
        now = time.time()
        outs: list[Out] = []
        for message in messages:
            await self._topology.introduce(message.topic)
            delay = delay_of(message, now) if message.headers else 0.0
            if delay:
                outs.append(await self._topology.schedule(message, delay))
            else:
                outs.append(outgoing(self._names.exchange, message.topic, message))
        results = await self._sender.send(outs)
        if any(results):
            results = await self._send_returned(messages, outs, results)
        if any(results):
            raise await self._explain_refusal(messages, results)

    async def _send_returned(
        self,
        messages: Sequence[BusMessage],
        outs: list[Out],
        results: list[BaseException | None],
    ) -> list[BaseException | None]:
        """Once more what came back because no queue was bound."""
        returned = self._connection.client.exceptions.PublishError
        homeless: dict[str, list[int]] = {}
        for at, result in enumerate(results):
            if not isinstance(result, returned):
                continue
            if outs[at].exchange != self._names.exchange:  # a step of the ladder that is gone
                self._topology.forget_step(outs[at].key)
                outs[at] = await self._topology.schedule(messages[at], delay_of(messages[at]))
                results[at] = (await self._sender.send([outs[at]]))[0]
            else:
                homeless.setdefault(messages[at].topic, []).append(at)
        for topic, places in homeless.items():
            self._topology.forget_topic(topic)
            async with self._topology.registry(topic):
                # While we hold it no group comes; one may have come before.
                await self._resend(places, outs, results)
                left = [at for at in places if isinstance(results[at], returned)]
                if left:
                    await self._topology.keep(topic)
                    await self._resend(left, outs, results)
        return results

    async def _resend(
        self, places: Sequence[int], outs: Sequence[Out], results: list[BaseException | None]
    ) -> None:
        again = await self._sender.send([outs[at] for at in places])
        for at, result in zip(places, again, strict=True):
            results[at] = result

    async def _explain_refusal(
        self, messages: Sequence[BusMessage], results: Sequence[BaseException | None]
    ) -> QueueError:
        """The error for what was not confirmed; a broken connection comes before a full topic."""
        failed = [(one, result) for one, result in zip(messages, results, strict=True) if result]
        nacked = self._connection.client.exceptions.DeliveryError
        message, failure = next(
            (pair for pair in failed if not isinstance(pair[1], nacked)), failed[0]
        )
        error = await self._refusal(message, failure)
        error.details["unconfirmed"] = [one.id for one, _ in failed]
        return error

    async def _refusal(self, message: BusMessage, failure: BaseException | None) -> QueueError:
        topic = message.topic
        if isinstance(failure, self._connection.client.exceptions.DeliveryError):
            kept = await self._connection.count(self._names.backlog(topic))
            if kept is not None:
                return QueueFullError(
                    f"topic {topic!r} holds {kept} messages for no group",
                    backend=NAME,
                    topic=topic,
                    details={"max_backlog": self._max_backlog},
                    hint="start a consumer, or raise max_backlog",
                )
        return self._connection.error(f"publish to {topic}", failure, topic)

    def _check_size(self, message: BusMessage) -> None:
        limit = self._connection.max_message_bytes
        if limit is not None and len(message.payload) > limit:
            raise MessageTooLargeError(
                f"{len(message.payload)} bytes are more than the {limit} RabbitMQ takes",
                backend=NAME,
                topic=message.topic,
                hint="store large content elsewhere (lexigram.blobs) and send a reference",
            )
        if len(message.headers) and size_of(message.headers) > MAX_HEADER_BYTES:
            raise MessageTooLargeError(
                f"the headers are larger than the {MAX_HEADER_BYTES} bytes of a frame",
                backend=NAME,
                topic=message.topic,
                hint="put large values into the payload",
            )
        if len(message.topic.encode()) > 255:
            raise RabbitMQQueueError(
                "a topic has at most 255 bytes on RabbitMQ",
                topic=message.topic,
                hint="shorten the name of the topic",
            )
