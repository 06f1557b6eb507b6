"""What becomes of a delivery: acknowledged, tried again later, set aside, or handed back."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from lexigram import clock
from lexigram.concurrency import as_failure
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
    MessageRejectedError,
    QueueDriverProtocol,
)
from lexigram.queue.announce import Announcer
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.link import PAUSES, Link
from lexigram.queue.options import RetryPolicy
from lexigram.sql.leasing import Backoff

if TYPE_CHECKING:
    from lexigram.queue.publisher import Publisher

PATIENCE: Final = 30.0  # seconds to insist on settling where a lease has no end
ACKS_AT_ONCE: Final = 1000

_log = logging.getLogger(__name__)


class Settler:
    """Settles the deliveries of one consumer. Acknowledgements travel in batches."""

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        announcer: Announcer,
        publisher: Publisher,
        policy: RetryPolicy,
        group: str,
        max_waiting: int,
    ) -> None:
        self._driver, self._link, self._announcer = driver, link, announcer
        self._publisher, self._policy, self._group = publisher, policy, group
        self._backoff = Backoff(first=policy.base, cap=policy.cap)
        self._acks: list[Delivery] = []
        self._writing = 0
        self._max_waiting = max_waiting
        self._news: asyncio.Future[None] | None = None
        self._quiet: list[asyncio.Future[None]] = []

    # Done.

    def done(self, delivery: Delivery) -> None:
        """A handler returned: acknowledge with the next batch."""
        self._acks.append(delivery)
        if self._news is not None:
            self._wake()

    @property
    def is_behind(self) -> bool:
        """True when the broker takes acknowledgements more slowly than they come."""
        return len(self._acks) > self._max_waiting

    async def settled(self) -> None:
        """Return when nothing waits to be acknowledged."""
        while self._acks or self._writing:
            waiter = asyncio.get_running_loop().create_future()
            self._quiet.append(waiter)
            await waiter

    async def run(self) -> None:
        """Acknowledge what comes, until cancelled."""
        while True:
            if not self._acks:
                self._news = asyncio.get_running_loop().create_future()
                try:
                    await self._news
                finally:
                    self._news = None
            batch, self._acks = self._acks[:ACKS_AT_ONCE], self._acks[ACKS_AT_ONCE:]
            self._writing = len(batch)
            try:
                await self._insist("acknowledge", lambda: self._driver.ack_many(batch))  # noqa: B023
            finally:
                self._writing = 0
                if not self._acks:
                    self._calm()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _calm(self) -> None:
        for waiter in self._quiet:
            if not waiter.done():
                waiter.set_result(None)
        self._quiet.clear()

    # Not done.

    async def failed(self, delivery: Delivery, error: Exception) -> None:
        """A handler raised: later again while retries are left, else aside."""
        message = delivery.message
        if isinstance(error, UndecodableMessageError):
            await self.set_aside(delivery, DeadLetterReason.UNDECODABLE, error)
        elif isinstance(error, MessageRejectedError):
            await self.set_aside(delivery, DeadLetterReason.REJECTED, error, attempts=1)
        elif is_expired(message):
            await self.set_aside(delivery, DeadLetterReason.EXPIRED, error, attempts=1)
        elif message.retry_count < self._most(message):
            await self._again(delivery, message)
        else:
            await self._exhausted(delivery, error)

    def _most(self, message: BusMessage) -> int:
        own = self._policy.max_retries
        return message.max_retries if own is None else own

    async def _again(self, delivery: Delivery, message: BusMessage) -> None:
        tries = message.retry_count + 1
        delay = self._backoff.delay(tries)
        later = replace(message, retry_count=tries)
        self._announcer.count("retried")
        await self._insist("retry", lambda: self._driver.nack(delivery, delay=delay, message=later))

    async def _exhausted(self, delivery: Delivery, error: Exception) -> None:
        topic = self._policy.publish_to
        if topic is None:
            await self.set_aside(delivery, DeadLetterReason.RETRIES_EXHAUSTED, error, attempts=1)
            return
        # The copy is confirmed before the original is acknowledged: it may double, never be lost.
        await self._insist(
            "publish", lambda: self._publisher.send_wire(replace(delivery.message, topic=topic))
        )
        self.done(delivery)

    async def set_aside(
        self,
        delivery: Delivery,
        reason: DeadLetterReason,
        error: BaseException | str,
        *,
        attempts: int = 0,
    ) -> None:
        """Make it a dead letter, and tell so once. ``attempts``: handler calls of this delivery."""
        message = delivery.message
        entry = DeadLetterEntry(
            message=message,
            error=error if isinstance(error, str) else f"{type(error).__name__}: {error}",
            failed_at=clock.now(),
            retry_count=message.retry_count,
            reason=reason,
            traceback=None if isinstance(error, str) else _trace(error),
            attempts=message.retry_count + attempts,
            group=self._group,
        )
        if await self._insist("dead letter", lambda: self._driver.dead_letter(delivery, entry)):
            await self._announcer.dead_lettered(message, reason)

    async def drop(self, delivery: Delivery) -> None:
        """Acknowledge something nobody handled, by policy."""
        self._announcer.count("dropped")
        self.done(delivery)

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not begun, or not finished in time."""
        if deliveries:
            await self._insist("release", lambda: self._driver.release_many(deliveries))

    async def _insist(self, what: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Try until the lease would be over; then the broker delivers it again anyway."""
        deadline = anyio.current_time() + (self._driver.visibility_timeout or PATIENCE)
        attempt = 0
        while True:
            try:
                await call()
            except BaseException as error:
                failure = as_failure(error)  # drivers of others: none stops the consumer
                if failure is None:
                    raise
                self._link.suspect(failure)
                attempt += 1
                pause = PAUSES.delay(attempt)
                if anyio.current_time() + pause > deadline:
                    self._announcer.count("unsettled", step=what)
                    _log.error("could not %s; it will be delivered again: %s", what, failure)
                    return False
                await anyio.sleep(pause)
            else:
                return True


def is_expired(message: BusMessage) -> bool:
    """By the clock in effect."""
    return message.ttl is not None and clock.timestamp() > message.timestamp + message.ttl


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
