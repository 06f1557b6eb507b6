"""Settle a delivery: acknowledge, retry later, dead-letter or release it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import anyio

from lexigram import clock
from lexigram.concurrency import as_failure, is_retryable
from lexigram.contracts.queue import (
    BegunMarkProtocol,
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    Delivery,
    MessageRejectedError,
    MessageTooLargeError,
    QueueDriverProtocol,
    QueueError,
)
from lexigram.leasing import Backoff
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.options import RetryPolicy
from lexigram.queue.runtime.emitter import QueueEmitter
from lexigram.queue.runtime.envelope import as_text, strip_begun_count
from lexigram.queue.runtime.link import PAUSES, Link

if TYPE_CHECKING:
    from lexigram.queue.runtime.publisher import Publisher

PATIENCE: Final = 30.0  # seconds to retry settling where leases do not expire
ACKS_AT_ONCE: Final = 1000

_log = logging.getLogger(__name__)


class Settler:
    """Settles the deliveries of one consumer. Acknowledgements travel in batches."""

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        emitter: QueueEmitter,
        publisher: Publisher,
        policy: RetryPolicy,
        group: str,
        max_waiting: int,
    ) -> None:
        self._driver, self._link, self._emitter = driver, link, emitter
        self._publisher, self._policy, self._group = publisher, policy, group
        self._backoff = Backoff(first=policy.base, cap=policy.cap)
        self._acks: list[Delivery] = []
        self._writing = 0
        self._max_waiting = max_waiting
        self._news: asyncio.Future[None] | None = None
        self._quiet: list[asyncio.Future[None]] = []

    # Done.

    def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge with the next batch: the handler returned."""
        self._acks.append(delivery)
        if self._news is not None:
            self._wake()

    @property
    def is_behind(self) -> bool:
        """True when the broker takes acknowledgements more slowly than they come."""
        return len(self._acks) > self._max_waiting

    async def wait_settled(self) -> None:
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

    async def fail(self, delivery: Delivery, error: Exception) -> None:
        """Retry later while retries are left, else make it a dead letter: the handler raised."""
        message = delivery.message
        if isinstance(error, UndecodableMessageError):
            await self.set_aside(delivery, DeadLetterReason.UNDECODABLE, error)
        elif isinstance(error, MessageRejectedError):
            await self.set_aside(delivery, DeadLetterReason.REJECTED, error, attempts=1)
        elif not is_retryable(error):
            await self.set_aside(delivery, DeadLetterReason.NOT_RETRYABLE, error, attempts=1)
        elif is_expired(message):
            await self.set_aside(delivery, DeadLetterReason.EXPIRED, error, attempts=1)
        elif message.retry_count < self._most(message):
            await self._schedule_retry(delivery, message, error)
        else:
            await self._give_up(delivery, error)

    def _most(self, message: BusMessage) -> int:
        own = self._policy.max_retries
        return message.max_retries if own is None else own

    async def _schedule_retry(
        self, delivery: Delivery, message: BusMessage, error: Exception
    ) -> None:
        tries = message.retry_count + 1
        delay = self._backoff.delay(tries)
        self._emitter.count("retried")
        again = replace(strip_begun_count(message), retry_count=tries)
        await self.retry(delivery, again, delay, error=error)

    async def retry(
        self,
        delivery: Delivery,
        message: BusMessage,
        delay: float = 0.0,
        *,
        error: Exception | None = None,
    ) -> None:
        """Have ``message`` delivered to this group instead, after ``delay`` seconds.

        One of another producer may be as large as the broker takes, and leave no room for what a
        retry adds: it is set aside, with the ``error`` of its handler.
        """
        try:
            await self._insist(
                "retry",
                lambda: self._driver.nack(delivery, delay=delay, message=message),
                final=MessageTooLargeError,
            )
        except MessageTooLargeError as refused:
            _log.warning("message %s cannot be retried: %s", message.id, refused)
            reason = DeadLetterReason.RETRIES_EXHAUSTED
            await self.set_aside(delivery, reason, error or refused, attempts=1)

    async def _give_up(self, delivery: Delivery, error: Exception) -> None:
        topic = self._policy.publish_to
        if topic is None:
            await self.set_aside(delivery, DeadLetterReason.RETRIES_EXHAUSTED, error, attempts=1)
            return
        message = replace(strip_begun_count(delivery.message), topic=topic)
        # The copy is confirmed before the original is acknowledged: it may double, never be lost.
        await self._insist("publish", lambda: self._publisher.send_wire(message))
        self.acknowledge(delivery)

    async def set_aside(
        self,
        delivery: Delivery,
        reason: DeadLetterReason,
        error: BaseException | str,
        *,
        attempts: int = 0,
    ) -> None:
        """Make it a dead letter, and report it once. ``attempts``: handler calls of this delivery."""
        message = delivery.message
        entry = DeadLetterEntry(
            message=message,
            error=as_text(error if isinstance(error, str) else f"{type(error).__name__}: {error}"),
            failed_at=clock.now(),
            retry_count=message.retry_count,
            reason=reason,
            traceback=None if isinstance(error, str) else as_text(_trace(error)),
            attempts=message.retry_count + attempts,
            group=self._group,
        )
        if await self._insist("dead letter", lambda: self._driver.dead_letter(delivery, entry)):
            await self._emitter.emit_dead_lettered(message, reason)

    async def drop(self, delivery: Delivery) -> None:
        """Acknowledge an expired message without handling it."""
        self._emitter.count("dropped")
        self.acknowledge(delivery)

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count that a handler begins, where the driver keeps marks; how often it began by now.

        0: the delivery is lost, or the broker took no mark.
        """
        driver, marks, failed = cast("BegunMarkProtocol", self._driver), 0, 0

        async def mark() -> None:
            nonlocal marks, failed
            failed += 1
            marks = await driver.mark_begun(delivery)
            failed -= 1

        await self._insist("mark", mark)
        # A call that failed may have left a mark all the same, and no handler began with it.
        return max(marks - failed, 1) if marks else 0

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not begun, or not finished in time."""
        if deliveries:
            await self._insist("release", lambda: self._driver.release_many(deliveries))

    async def _insist(
        self,
        what: str,
        call: Callable[[], Awaitable[None]],
        *,
        final: tuple[type[QueueError], ...] | type[QueueError] = (),
    ) -> bool:
        """Retry until the lease would expire; then the broker redelivers the message anyway.

        Errors of the classes ``final`` are raised at once.
        """
        deadline = anyio.current_time() + (self._driver.visibility_timeout or PATIENCE)
        attempt = 0
        while True:
            try:
                await call()
            except final:
                raise
            except BaseException as error:
                failure = as_failure(error)  # drivers of others: none stops the consumer
                if failure is None:
                    raise
                self._link.suspect(failure)
                attempt += 1
                pause = PAUSES.delay(attempt)
                if anyio.current_time() + pause > deadline:
                    self._emitter.count("unsettled", step=what)
                    _log.error("could not %s; the message will be redelivered: %s", what, failure)
                    return False
                await anyio.sleep(pause)
            else:
                return True


def is_expired(message: BusMessage) -> bool:
    """By the clock in effect."""
    return message.ttl is not None and clock.timestamp() > message.timestamp + message.ttl


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
