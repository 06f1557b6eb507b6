"""Messages redelivered after a crash: the process that held them exited, perhaps because of one.

Such a message is a *suspect*; its ``delivery_count`` is above 1. Its handler runs while no other
suspect of this process runs, and only that counts: what was merely held when a process died is
not counted. Messages that come for the first time may run beside it; should the process end, they
come back as suspects with a count of 0.

The count is a mark that the driver keeps with the message (``BegunMarkProtocol``). For drivers that
keep none it is a header of a copy: a message that came back is sent once more, and the copy begins
as soon as it comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from attrs import frozen

from lexigram.concurrency import suspect_lock
from lexigram.contracts.queue import BusMessage, DeadLetterReason, Delivery
from lexigram.contracts.queue.headers import BEGUN
from lexigram.queue.runtime.leases import LeaseKeeper
from lexigram.queue.runtime.settle import Settler

# Seconds a copy has to come before the next one is sent: twice as long as the last one took, within
# bounds. How long that is shows when the first one comes.
FIRST_COPY: Final = 1.0
LEAST_PAUSE, MOST_PAUSE = 0.1, 5.0
# Copies that do not come are handled by others, or wait for others that are busy: each one doubles
# the pause, up to this.
OTHERS_PAUSE: Final = 1.0
SEND_BACK: Final = 2.0  # seconds until a copy that could not begin at once comes again
REMEMBERED: Final = 1000  # copies that are on their way, or were given up before they began
_DIGITS: Final = 10  # more than any count has

T = TypeVar("T")


class Suspects:
    """The suspects of one consumer, on a driver that keeps marks."""

    def __init__(
        self,
        settler: Settler,
        keeper: LeaseKeeper,
        max_deliveries: int,
        resume: Callable[[], None],
    ) -> None:
        """``resume``: give those in ``parked`` to workers again."""
        self._settler, self._keeper = settler, keeper
        self._max_deliveries, self._resume = max_deliveries, resume
        self.parked: deque[Delivery] = deque()  # they wait for the end of another suspect
        self.copies: dict[int, _Copy] = {}  # by id() of the delivery: held ones with the header

    def is_one(self, delivery: Delivery) -> bool:
        """Whether its handler must run alone."""
        return delivery.delivery_count > 1 or id(delivery) in self.copies

    async def begin(self, delivery: Delivery) -> bool:
        """Count that its handler begins now; False when it does not begin here, or not yet.

        After True its handler runs, and then ``end`` must be called.
        """
        if not self._acquire(delivery):
            self.parked.append(delivery)
            return False
        admitted = False
        try:
            admitted = await self._admit(delivery)
        finally:
            if not admitted:
                self._release()
        return admitted

    def end(self) -> None:
        """The handler of the suspect has ended."""
        self._release()

    def forget(self, gone: Iterable[Delivery]) -> None:
        """These are not held here any more."""
        ids = {id(delivery) for delivery in gone}
        self.parked = deque(one for one in self.parked if id(one) not in ids)

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not begun, or not finished in time."""
        self.forget(deliveries)
        await self._settler.hand_back(deliveries)

    def _acquire(self, delivery: Delivery) -> bool:
        return suspect_lock.try_acquire(self._resume)

    def _release(self) -> None:
        suspect_lock.release()
        if self.parked:
            self._resume()

    async def _admit(self, delivery: Delivery) -> bool:
        marks = await self._settler.mark_begun(delivery)
        if not marks:  # its lease is lost; or the broker took no mark, and it is delivered again
            await self._settler.hand_back((delivery,))
            return False
        return marks <= self._max_deliveries or await self._set_aside(delivery, marks - 1)

    async def _set_aside(self, delivery: Delivery, begun: int) -> bool:
        await self._settler.set_aside(
            delivery,
            DeadLetterReason.POISON,
            f"its handler was started {begun} times and never finished",
            attempts=begun,
        )
        return False


@frozen
class _Copy:
    """A delivery with the header."""

    delivery: Delivery
    begun: int
    is_paid: bool  # this delivery is counted: it must begin at once, or be sent back


@frozen
class _NotBegun:
    """Copies of one message that this consumer had and did not begin.

    When the delivery after the last one comes here too, no other process can have begun it.
    When another consumer received that one, the header counts too many from then on.
    """

    delivery_count: int  # of the last one
    counted: int  # how many of them the header counts as begun


class CopiedSuspects(Suspects):
    """The suspects of one consumer, on a driver that keeps no marks.

    A message that came back costs nothing while it is held; it is counted when its copy is sent.
    The copy must not be at risk together with another suspect: it takes the lock when it comes, and
    when the lock is not free it is sent back as it is, which counts nothing.
    """

    def __init__(
        self,
        settler: Settler,
        keeper: LeaseKeeper,
        max_deliveries: int,
        resume: Callable[[], None],
    ) -> None:
        super().__init__(settler, keeper, max_deliveries, resume)
        self._next: _Copy | None = None  # has the lock and waits for a worker
        self._next_copy_at = 0.0  # by the clock of the event loop
        self._pause = FIRST_COPY
        self._sent: dict[str, float] = {}  # by message: when its copy was sent
        self._missing = 0  # copies sent since the last one that came
        self._timer: asyncio.TimerHandle | None = None
        # By message: copies that were given up here before they began.
        self._not_begun: dict[str, _NotBegun] = {}

    async def sort_out(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """Of deliveries that just came, those to keep."""
        if not any(BEGUN in one.message.headers for one in batch):
            return batch
        kept: list[Delivery] = []
        for delivery in batch:
            copy = self._read(delivery)
            if copy is not None:
                self._note_arrival(delivery)
            if copy is None or not copy.is_paid:
                kept.append(delivery)
            elif self._next is None and suspect_lock.try_acquire(self._resume):
                self._next = copy
                self.parked.append(delivery)
            else:
                await self._send_back(copy, SEND_BACK)
                continue
            if copy is not None:
                self.copies[id(delivery)] = copy
        if self.parked:
            self._resume()  # before all that wait
        return kept

    def _read(self, delivery: Delivery) -> _Copy | None:
        message, count = delivery.message, delivery.delivery_count
        begun, issued = _counts(message.headers.get(BEGUN, ""))
        if not begun:
            return None
        # A driver may count on after ``nack``; the copy still comes for the first time.
        is_paid = count in (1, issued + 1) or self._is_next_of_not_begun(message.id, count)
        return _Copy(delivery, begun, is_paid)

    async def _send_back(self, copy: _Copy, delay: float) -> None:
        if await self._keeper.is_held(copy.delivery):
            await self._settler.retry(copy.delivery, _with_header(copy.delivery, copy.begun), delay)
        else:
            self._note_not_begun(copy.delivery)  # others have it: one more copy would double it

    def end(self) -> None:
        self._next_copy_at = 0.0
        super().end()

    def forget(self, gone: Iterable[Delivery]) -> None:
        gone = list(gone)
        super().forget(gone)
        for delivery in gone:
            copy = self.copies.pop(id(delivery), None)
            if copy is not None and copy is self._next:
                self._next = None
                self._note_not_begun(delivery)
                self._release()

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        copy = self._next
        others = [one for one in deliveries if copy is None or one is not copy.delivery]
        await super().hand_back(others)
        if copy is not None and len(others) < len(deliveries):
            self.forget((copy.delivery,))
            await self._send_back(copy, 0.0)

    def _acquire(self, delivery: Delivery) -> bool:
        if self._next is not None and delivery is self._next.delivery:
            self._next = None
            return True
        return not self._must_wait() and super()._acquire(delivery)

    def _must_wait(self) -> bool:
        """Copies are sent one after the other: many at once would be in each other's way."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_copy_at:
            return False
        if self._timer is None or self._timer.when() <= loop.time():
            self._timer = loop.call_at(self._next_copy_at, self._resume)
        return True

    async def _admit(self, delivery: Delivery) -> bool:
        copy = self.copies.pop(id(delivery), None)
        begun = 0 if copy is None else copy.begun
        is_paid = copy is not None and copy.is_paid and begun <= self._max_deliveries
        if not await self._keeper.is_held(delivery):
            if is_paid:
                self._note_not_begun(delivery)
            return False
        if is_paid:
            return True
        if (wrong := self._not_begun.pop(delivery.message.id, None)) is not None:
            begun -= wrong.counted
        if begun >= self._max_deliveries:
            return await self._set_aside(delivery, begun)
        self._note_departure(delivery)
        await self._settler.retry(delivery, _with_header(delivery, max(begun, 0) + 1))
        return False

    def _note_departure(self, delivery: Delivery) -> None:
        now = asyncio.get_running_loop().time()
        _remember(self._sent, delivery.message.id, now)
        pause = max(self._pause, min(self._pause * 2.0 ** min(self._missing, 10), OTHERS_PAUSE))
        self._next_copy_at = now + pause
        self._missing += 1

    def _note_arrival(self, delivery: Delivery) -> None:
        sent = self._sent.pop(delivery.message.id, None)
        if sent is not None:
            took = asyncio.get_running_loop().time() - sent
            # One that others sent back took longer than the way: it doubles the pause at most.
            self._pause = min(max(2 * took, LEAST_PAUSE), 2 * self._pause, MOST_PAUSE)
            self._missing = 0

    def _note_not_begun(self, delivery: Delivery) -> None:
        self._next_copy_at = 0.0
        key = delivery.message.id
        known = self._not_begun.get(key)
        counted = 1 if known is None else known.counted + 1
        _remember(self._not_begun, key, _NotBegun(delivery.delivery_count, counted))

    def _is_next_of_not_begun(self, key: str, count: int) -> bool:
        """Whether the delivery before this one was here, and nobody began it; then it is forgotten."""
        known = self._not_begun.get(key)
        if known is None or known.delivery_count != count - 1:
            return False
        if known.counted == 1:
            del self._not_begun[key]
        else:
            self._not_begun[key] = _NotBegun(0, known.counted - 1)
        return True


def _remember(memory: dict[str, T], key: str, value: T) -> None:
    """As the youngest; the oldest goes when there are too many."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]


def _with_header(delivery: Delivery, begun: int) -> BusMessage:
    message = delivery.message
    text = f"{begun}/{delivery.delivery_count}"
    return replace(message, headers={**message.headers, BEGUN: text})


def _counts(text: str) -> tuple[int, int]:
    """The numbers of the header; zeros where another producer wrote it."""
    begun, _, issued = text.partition("/")
    numbers = [
        int(one) if one.isascii() and one.isdecimal() and len(one) < _DIGITS else 0
        for one in (begun, issued)
    ]
    return (numbers[0], numbers[1]) if all(numbers) else (0, 0)
