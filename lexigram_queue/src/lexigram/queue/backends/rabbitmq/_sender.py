"""Publishing with confirms, many messages at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import uuid4

import anyio

from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.rabbitmq._connection import Connection, close_channel
from lexigram.queue.backends.rabbitmq._wire import NAME, Out


class Sender:
    """Publishes on the channel with confirms."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Any = None
        self._sending: set[str] = set()  # ids on their way on this channel

    async def send_confirmed(self, outs: Sequence[Out], topic: str) -> None:
        """Send; raise unless all were confirmed."""
        for result in await self.send(outs):
            if result is not None:
                raise self._connection.error(f"publish to {topic}", result, topic)

    async def send(self, outs: Sequence[Out]) -> list[BaseException | None]:
        """Publish; None for what was confirmed, else what happened."""
        if not outs:
            return []
        channel = self._connection.check()
        if channel is not self._channel:
            self._channel = channel
            self._sending.clear()
        for out in outs:
            self._name_apart(out.properties)
        ids = [out.properties.message_id for out in outs]
        try:
            waiting = await self._write(channel, outs)
            late = (await asyncio.wait(waiting, timeout=self._connection.timeout))[1]
        finally:
            self._sending.difference_update(ids)
            for identity in ids:
                channel.message_id_delivery_tag.pop(identity, None)
        return [_outcome(one, one in late) for one in waiting]

    async def _write(self, channel: Any, outs: Sequence[Out]) -> list[asyncio.Future[Any]]:
        """Give the messages to the channel in few pieces; a future of each for its confirm.

        This is ``basic_publish`` of aiormq for many at once. That one costs a task and a write
        to the socket per message: 785 instead of 453 µs of processor time from publish to ack.
        """
        frame = self._connection.client.abc.ChannelFrame
        waiting: list[asyncio.Future[Any]] = []
        with self._connection.translate_errors(f"publish to {self._connection}"):
            # What cannot be put into frames fails here, before anything is sent.
            pieces = [
                frame.marshall(channel.number, _frames(out, channel.max_content_size)).payload
                for out in outs
            ]
            # Half of it would leave the channel with numbers that the broker never saw.
            with anyio.CancelScope(shield=True):
                try:
                    async with asyncio.timeout(self._connection.timeout), channel.lock:
                        for out in outs:
                            channel.delivery_tag += 1
                            number, confirm = channel.delivery_tag, channel.create_future()
                            channel.confirmations[number] = confirm
                            channel.message_id_delivery_tag[out.properties.message_id] = number
                            waiting.append(confirm)
                        await channel.write_queue.put(
                            frame(payload=b"".join(pieces), should_close=False)
                        )
                except TimeoutError:
                    await close_channel(channel)
                    raise
        return waiting

    def _name_apart(self, properties: Any) -> None:
        """Make the id unique in flight: returned messages are identified by it."""
        identity = properties.message_id or ""
        if identity in self._sending or not identity or len(identity.encode()) > 200:
            # A short text of AMQP has 255 bytes; a character has up to four.
            properties.message_id = f"{identity[:50]}#{uuid4().hex}"
        self._sending.add(properties.message_id)


def _frames(out: Out, limit: int) -> list[Any]:
    """One message in AMQP: what to do with it, its properties, its body in pieces."""
    publish, header, body = _parts()
    return [
        publish(exchange=out.exchange, routing_key=out.key, mandatory=True),
        header(properties=out.properties, body_size=len(out.body)),
        *(body(out.body[start : start + limit]) for start in range(0, len(out.body), limit)),
    ]


def _outcome(confirm: asyncio.Future[Any], late: bool) -> BaseException | None:
    if late:
        return TimeoutError()
    if confirm.cancelled():
        return asyncio.CancelledError()
    return confirm.exception()


@lru_cache
def _parts() -> tuple[Any, Any, Any]:
    return (
        require_library("pamqp.commands", extra=NAME).Basic.Publish,
        require_library("pamqp.header", extra=NAME).ContentHeader,
        require_library("pamqp.body", extra=NAME).ContentBody,
    )
