"""Receiving: a consumer for each group that is watched, and what may not be handed out as it came."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio

from lexigram.contracts.queue import Delivery, QueueError
from lexigram.queue.backends.rabbitmq._connection import Connection, make_undeclared_error
from lexigram.queue.backends.rabbitmq._member import GRACE, Member
from lexigram.queue.backends.rabbitmq._names import Names
from lexigram.queue.backends.rabbitmq._sender import Sender
from lexigram.queue.backends.rabbitmq._topology import Topology, step_within
from lexigram.queue.backends.rabbitmq._wire import (
    DELIVERIES,
    DUE,
    Out,
    delay_left,
    native_headers,
    note_deliveries,
    outgoing,
    read_message,
    whole,
)
from lexigram.queue.errors import RabbitMQQueueError
from lexigram.queue.runtime.background import Background

_log = logging.getLogger(__name__)


class Receiver:
    """The consumers of one process."""

    def __init__(
        self,
        connection: Connection,
        sender: Sender,
        topology: Topology,
        names: Names,
        prefetch_count: int | None,
    ) -> None:
        self._connection, self._sender, self._topology = connection, sender, topology
        self._names, self._prefetch_count = names, prefetch_count
        self._background = Background("queue.rabbitmq")
        self.members: dict[tuple[str, str], Member] = {}

    async def open(self) -> None:
        """From now on consumers that nobody watches are ended."""
        await self._background.open()

    async def close(self) -> None:
        """Give back what was sent ahead."""
        await self._background.close()
        for member in self.members.values():
            await self.let_go(member)

    def lose_channels(self) -> None:
        """The connection is gone, and with it all that was sent."""
        for member in self.members.values():
            member.forget_channel()

    async def drop(self, topic: str, group: str) -> None:
        """The group is gone."""
        member = self.members.pop((topic, group), None)
        if member is not None:
            await member.close_channel()

    def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """The group was paused, or goes on."""
        member = self.members.get((topic, group))
        if member is not None:
            member.paused = paused
            member.notify()

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what the broker sent to the consumer of this member, which lives while watched."""
        self._connection.check()
        member = self.members.get((topic, group)) or await self._find_member(topic, group)
        loop = asyncio.get_running_loop()
        # A consumer that has just begun gets its first messages a moment later.
        until = loop.time() + max(wait, GRACE)
        with member.watch():
            while True:
                if member.paused:
                    await self._give_back(member)
                else:
                    await self._want(member, limit)
                    taken = await self._sort_out(member, member.pop(limit))
                    if taken:
                        return taken
                left = until - loop.time()
                if left <= 0:
                    return ()
                await member.wait(left)
                self._connection.check()

    async def _find_member(self, topic: str, group: str) -> Member:
        async with self._topology.registry(topic) as registry:
            entry = registry.entries.get((topic, group))
        if entry is None:
            raise make_undeclared_error(topic, group)
        member = self.member(topic, group)
        member.paused = entry.paused
        return member

    def member(self, topic: str, group: str) -> Member:
        member = self.members.get((topic, group))
        if member is None:
            queue = self._names.queue(topic, group)
            member = self.members[topic, group] = Member(topic, group, queue, self._linger)
        return member

    def _linger(self, member: Member) -> None:
        if self._background.is_open:
            self._background.start(self.let_go, member, name=f"give back {member.queue}")

    async def let_go(self, member: Member) -> None:
        if not self._connection.is_open:
            return  # the broker has it all back
        try:
            await self._give_back(member)
        except QueueError as error:
            # It stays in the buffer for the next receive, or goes back with the channel.
            _log.warning("could not give back messages of %s: %s", member.queue, error.message)

    async def _want(self, member: Member, limit: int) -> None:
        """Have a consumer that may hold ``limit`` more."""
        if self._prefetch_count is not None:
            limit = min(limit, self._prefetch_count - len(member.held) - len(member.buffer))
        if limit <= 0 or member.has_room(limit):
            return
        async with member.changing:
            if member.has_room(limit):
                return
            try:
                with self._connection.translate_errors(f"consume {member.queue}", member.topic):
                    async with asyncio.timeout(self._connection.timeout):
                        # aiormq closes the channel of a call that is cancelled, a moment later:
                        # who receives next would still find it open, and fail.
                        with anyio.CancelScope(shield=True):
                            await self._consume(member, limit)
            except RabbitMQQueueError as error:
                if self._connection.is_missing(error):
                    raise make_undeclared_error(member.topic, member.group) from error
                raise

    async def _consume(self, member: Member, quota: int) -> None:
        if member.channel is None or member.channel.is_closed:
            member.use_channel(await self._connection.open_channel())
        elif member.tag is not None:
            await member.cancel()
        channel: Any = member.channel
        await channel.basic_qos(prefetch_count=min(quota, 65_535))
        member.begin(quota)
        try:
            await channel.basic_consume(member.queue, member.came, consumer_tag=member.tag)
        except BaseException:
            member.tag = None
            raise

    async def _give_back(self, member: Member) -> None:
        """Stop consuming, and let others have what was sent ahead.

        Copies go back, not the messages: the broker would mark those as delivered before.
        """
        async with member.changing:
            if member.channel is None or member.channel.is_closed:
                return
            with self._connection.translate_errors(f"cancel {member.queue}", member.topic):
                async with asyncio.timeout(self._connection.timeout):
                    with anyio.CancelScope(shield=True):  # as in _want
                        await member.cancel()
            ahead = member.pop(len(member.buffer))
            await self._replace(member, ahead, [self._copy(member, one) for one in ahead])

    async def _replace(self, member: Member, old: Sequence[Any], new: Sequence[Out]) -> None:
        """Confirm the new messages, then acknowledge the old ones, which nobody was given."""
        try:
            await self._sender.send_confirmed(new, member.topic)
        except BaseException:
            member.buffer.extendleft(reversed(old))
            raise
        await member.ack([member.receipt(one) for one in old])

    def _copy(self, member: Member, raw: Any, queue: str | None = None) -> Out:
        """The message once more, for the queue of the group; says how often it was delivered."""
        message = read_message(raw, member.topic, self._names.exchange)
        if not message.id:
            message = replace(message, id=str(uuid4()))  # from now on it has a name
        out = outgoing("", queue or member.queue, message)
        note_deliveries(out.properties, self._deliveries_before(raw))
        return out

    def _deliveries_before(self, raw: Any) -> int:
        """Deliveries that ended without being settled; a classic queue only marks them."""
        headers = native_headers(raw)
        marked = not self._names.is_quorum and raw.delivery.redelivered
        native = whole(headers.get("x-delivery-count"))
        return whole(headers.get(DELIVERIES)) + native + int(marked)

    async def _sort_out(self, member: Member, taken: Sequence[Any]) -> list[Delivery]:
        """Deliveries of what can be handled now; the rest is moved to where it belongs."""
        ready: list[Delivery] = []
        moved: list[Any] = []
        for raw in taken:
            delivery = self._delivery(member, raw)
            if delivery is None:
                moved.append(raw)
            else:
                ready.append(delivery)
        if moved:
            try:
                await self._move(member, moved)
            except BaseException:
                member.take_back(ready)
                raise
        return ready

    def _delivery(self, member: Member, raw: Any) -> Delivery | None:
        """The delivery; None for what must not be handed out as it is."""
        headers = native_headers(raw)
        if raw.delivery.redelivered and not self._names.is_quorum:
            return None  # a classic queue does not count: a copy will say how often
        message = read_message(raw, member.topic, self._names.exchange)
        if not message.id or not member.accepts(message.topic):
            return None
        if (DUE in headers or message.headers) and delay_left(message, headers):
            return None
        before = (
            self._deliveries_before(raw) if DELIVERIES in headers or self._names.is_quorum else 0
        )
        return Delivery(message, member.topic, member.group, member.hold(raw), 1 + before)

    async def _move(self, member: Member, moved: Sequence[Any]) -> None:
        """Not for this group: away. Not due: wait on. Delivered before, or nameless: a new copy."""
        outs: list[Out] = []
        for raw in moved:
            message = read_message(raw, member.topic, self._names.exchange)
            if not member.accepts(message.topic):
                continue
            native = native_headers(raw)
            delay = delay_left(message, native)
            queue = member.queue
            if delay:
                queue = await self._topology.step(queue, step_within(delay), "", queue)
            out = self._copy(member, raw, queue)
            if delay and DUE in native:
                out.properties.headers[DUE] = native[DUE]
            outs.append(out)
        await self._replace(member, moved, outs)
