"""A group as one process has it: its consumer, and the messages it was sent."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from uuid import uuid4

import anyio
from attrs import define

from lexigram.contracts.queue import Delivery
from lexigram.queue.backends.rabbitmq._connection import close_channel
from lexigram.queue.runtime.topics import matcher

ACKNOWLEDGED_WITHIN: Final = 10.0  # seconds; a broker that takes longer has lost us
LINGER: Final = 0.5  # seconds an unwatched consumer keeps what the broker sent ahead
GRACE: Final = 0.05  # seconds until acknowledgements make room, before more is asked for

_log = logging.getLogger(__name__)


@define(eq=False)
class Receipt:
    """What settles one delivery."""

    member: Member
    channel: Any
    tag: int
    consumer: str | None
    raw: Any
    settled: bool = False
    is_marked: bool = False

    @property
    def is_void(self) -> bool:
        """True when there is nothing to settle any more."""
        return self.settled or self.channel.is_closed


class Member:
    """What this process has of one group: a consumer, what it was sent, and what is handed out.

    The quota of the consumer is what the caller of ``receive`` has room for: nothing is kept
    from other members without need.
    """

    def __init__(
        self, topic: str, group: str, queue: str, unwatched: Callable[[Member], None]
    ) -> None:
        self.topic, self.group, self.queue = topic, group, queue
        self.accepts = matcher(topic)
        self.paused = False
        self.channel: Any = None
        self.tag: str | None = None
        self.quota = 0
        self.unsettled = 0  # of this consumer, buffered ones included
        self.buffer: deque[Any] = deque()
        self.held: set[Receipt] = set()
        self._open: dict[int, None] = {}  # tags of the channel that are not settled, in order
        self._waiters: list[asyncio.Future[None]] = []
        self.changing = asyncio.Lock()
        self._watchers = 0
        self._unwatched = unwatched
        self._timer: asyncio.TimerHandle | None = None
        self._full_since = 0.0

    @contextmanager
    def watch(self) -> Generator[None]:
        """Count a receiver; some time after the last one left, the buffer is emptied."""
        self._watchers += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._full_since = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._timer = asyncio.get_running_loop().call_later(LINGER, self._let_go)

    def _let_go(self) -> None:
        self._timer = None
        if self.tag is not None:
            self._unwatched(self)

    async def wait(self, seconds: float) -> None:
        """Until something came or changed."""
        if self.buffer and not self.paused:
            return  # it came while something else was waited for
        if self.unsettled >= self.quota or (self.tag is None and not self.paused):
            seconds = min(seconds, GRACE)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_later(seconds, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.remove(waiter)

    def notify(self) -> None:
        """Wake every waiter: a message arrived, or the state changed."""
        for waiter in self._waiters:
            _finish(waiter)

    # The consumer.

    def has_room(self, limit: int) -> bool:
        """True when the consumer may be sent about as much as is asked for."""
        if self.tag is None or self.channel is None or self.channel.is_closed:
            return False
        if self.buffer:
            return True
        if limit > self.quota or 2 * (limit + self.unsettled) < self.quota:
            return False
        now = asyncio.get_running_loop().time()
        # Without room: acknowledgements on their way make some, else more is needed.
        return self.unsettled < self.quota or now - self._full_since < GRACE

    def use_channel(self, channel: Any) -> None:
        """Begin anew: what came by the old channel went back with it."""
        self.forget_channel()
        self.channel = channel
        channel.closing.add_done_callback(partial(self._on_closed, channel))
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)

    def _on_closed(self, channel: Any, _: object) -> None:
        if self.channel is channel:
            self.forget_channel()

    def _on_cancelled(self, cancel: Any) -> None:
        """The broker ended the consumer, for the queue was deleted or its node went away."""
        if cancel.consumer_tag == self.tag:
            self.tag = None
            self.notify()

    def forget_channel(self) -> None:
        """The broker delivers again what this channel held."""
        self.channel = self.tag = None
        self.buffer.clear()
        self.held.clear()
        self._open.clear()
        self.unsettled = 0
        self.notify()

    def begin(self, quota: int) -> None:
        """A new consumer, which may be sent ``quota`` messages before the first is settled."""
        self.tag, self.quota, self.unsettled = f"lexigram.{uuid4().hex}", quota, 0
        self._full_since = asyncio.get_running_loop().time()

    async def cancel(self) -> None:
        """No more is sent; all that was sent has come when this returns."""
        tag, self.tag = self.tag, None
        if tag is not None:
            await self.channel.basic_cancel(tag)

    async def close_channel(self) -> None:
        """Let the broker have back all it sent."""
        channel = self.channel
        self.forget_channel()
        if channel is not None:
            await close_channel(channel)

    async def came(self, raw: Any) -> None:
        """A message was sent to us."""
        if raw.channel is not self.channel:
            return
        if raw.delivery.consumer_tag == self.tag:
            self.unsettled += 1
        self._open[raw.delivery.delivery_tag] = None
        self.buffer.append(raw)
        self.notify()

    # Its messages.

    def pop(self, limit: int) -> list[Any]:
        buffer = self.buffer
        return [buffer.popleft() for _ in range(min(limit, len(buffer)))]

    def receipt(self, raw: Any) -> Receipt:
        delivery = raw.delivery
        return Receipt(self, raw.channel, delivery.delivery_tag, delivery.consumer_tag, raw)

    def hold(self, raw: Any) -> Receipt:
        receipt = self.receipt(raw)
        self.held.add(receipt)
        return receipt

    def take_back(self, deliveries: Sequence[Delivery]) -> None:
        """These were not handed out after all."""
        self.held.difference_update(delivery.receipt for delivery in deliveries)
        self.buffer.extendleft(delivery.receipt.raw for delivery in reversed(deliveries))

    async def ack(self, receipts: Iterable[Receipt]) -> None:
        """Acknowledge what is still ours; on a channel that is gone there is nothing to do."""
        channel = self.channel
        mine = {one.tag: one for one in receipts if not one.is_void and one.channel is channel}
        if not mine:
            return
        for receipt in mine.values():
            receipt.settled = True
            self.unsettled -= receipt.consumer == self.tag
        self.held.difference_update(mine.values())
        upto = 0  # all tags up to here are ours: one frame settles them
        for tag in self._open:
            if tag not in mine:
                break
            upto = tag
        single = [tag for tag in mine if tag > upto]
        for tag in mine:
            del self._open[tag]
        self.notify()
        # Half of it would leave messages at the broker that nobody has and nobody gets.
        with anyio.move_on_after(ACKNOWLEDGED_WITHIN, shield=True):
            try:
                if upto:
                    await channel.basic_ack(upto, multiple=True, wait=False)
                for tag in single:
                    await channel.basic_ack(tag, wait=False)
                # Acknowledgements have no answer. When a process is killed, what the broker has
                # not read of its last words may be lost, and with it what was acknowledged before
                # a handler ran (at most once). A question behind them is answered after them.
                await channel.queue_declare(self.queue, passive=True)
            except Exception as error:  # noqa: BLE001 - the boundary to the client
                # Only a channel that is going can fail here: the broker delivers these again.
                _log.debug("could not acknowledge on %s: %r", self.queue, error)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
