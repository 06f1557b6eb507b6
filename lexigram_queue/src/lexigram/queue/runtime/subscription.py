"""Receives for one consumer: batches → bounded buffer → fixed pool of workers → settle.

Never a task per message: ``concurrency`` workers live as long as the subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any, Final, cast

import anyio

from lexigram.concurrency import TaskSupervisor, as_failure, call
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterReason,
    Delivery,
    DeliveryGuarantee,
    QueueDriverProtocol,
    QueueError,
)
from lexigram.contracts.queue.headers import FAIRNESS_KEY
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.options import BusOptions, ConsumerOptions
from lexigram.queue.runtime.attempts import Attempts
from lexigram.queue.runtime.background import Background
from lexigram.queue.runtime.emitter import QueueEmitter
from lexigram.queue.runtime.leases import LeaseKeeper
from lexigram.queue.runtime.link import PAUSES, Link
from lexigram.queue.runtime.payloads import Payloads
from lexigram.queue.runtime.settle import Settler, is_expired
from lexigram.queue.runtime.suspects import CopiedSuspects, Suspects
from lexigram.resilience import RateLimiter

RECEIVE_WAIT: Final = 5.0  # seconds one call of the driver waits for a message
STALLED_AFTER: Final = 5.0  # seconds beyond that: the call hangs, the connection is dead
REMEMBERED_IDS: Final = 10_000  # handled ids kept for EXACTLY_ONCE without SQL

_log = logging.getLogger(__name__)


class Subscription:
    """One consumer at work. ``start``, ``pause``, ``resume``, ``stop``."""

    def __init__(
        self,
        driver: QueueDriverProtocol,
        link: Link,
        emitter: QueueEmitter,
        payloads: Payloads,
        settler: Settler,
        make_attempts: Callable[[], Attempts],
        options: BusOptions,
        consumer: ConsumerOptions,
    ) -> None:
        self.consumer = consumer
        self._driver, self._link, self._emitter = driver, link, emitter
        self._payloads, self._settler, self._make_attempts = payloads, settler, make_attempts
        self._options = options
        self._concurrency = consumer.concurrency or options.concurrency
        self._prefetch = max(
            consumer.prefetch or options.prefetch, self._concurrency, consumer.batch_size
        )
        self._guarantee = consumer.delivery_guarantee or options.delivery_guarantee
        self._per_key = consumer.max_in_flight_per_key
        limit = consumer.rate_limit
        self._limiter = (
            None if limit is None else RateLimiter(limit.rate, limit.per, burst=limit.burst)
        )
        self._is_batched = consumer.batch_size > 1
        self._is_typed = consumer.payload_type is not Any
        self._is_simple = (
            consumer.batch_size == 1 and self._per_key is None and self._limiter is None
        )
        self._keeper = LeaseKeeper(driver, link, self._list_held, self._forget)
        about = settler, self._keeper, options.max_deliveries, self._resume_suspects
        self._suspects: Suspects
        self._sort_out: Callable[[Sequence[Delivery]], Awaitable[Sequence[Delivery]]] | None = None
        if Capability.BEGUN_MARK in driver.capabilities:
            self._suspects = Suspects(*about)
        else:
            self._suspects = copied = CopiedSuspects(*about)
            self._sort_out = copied.sort_out
        self._copies = self._suspects.copies
        self._background = Background(f"queue.{emitter.queue_name}.{consumer.consumer_id}")
        self._buffer: deque[Delivery] = deque()
        # The deliveries in flight of each worker.
        self._running: list[tuple[Delivery, ...]] = [()] * self._concurrency
        self._handling: set[str] = set()  # ids of the messages in flight
        # Redeliveries of messages in flight: each waits until the handler ends.
        self._repeated: dict[str, list[Delivery]] = {}
        self._lost_running: set[int] = set()  # id() of deliveries in flight whose lease is lost
        self._low = self._prefetch // 2  # with fewer in the buffer, more are asked for
        self._idle: deque[asyncio.Future[None]] = deque()  # workers without work
        self._hungry: asyncio.Event = asyncio.Event()
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._paused = False
        self._started = False
        self._stopping = False
        self._finished = anyio.Event()  # set when the last handler returns during a stop
        self._receiving: dict[str, tuple[float, anyio.CancelScope]] = {}
        self._supervisor = TaskSupervisor(
            f"consumer {consumer.consumer_id}",
            delay=PAUSES.delay,
            host=lambda: self._background.host,
            on_failure=lambda task: emitter.count("restarted", task=task),
        )
        self.handled = 0  # messages whose handler returned

    # Lifecycle.

    @property
    def is_running(self) -> bool:
        """True between start and stop."""
        return self._background.is_open and not self._stopping

    @property
    def has_died(self) -> bool:
        """True when one of its tasks failed: a defect, reported by health."""
        return self._started and not self._stopping and not self._background.is_open

    @property
    def in_flight(self) -> int:
        """Messages it holds: running and waiting for a worker."""
        held = len(self._buffer) + sum(map(len, self._running)) + len(self._suspects.parked)
        return held + sum(map(len, self._repeated.values())) if self._repeated else held

    async def declare(self) -> None:
        """Make the groups exist: from now on messages are kept for them. Raises QueueError."""
        for topic in self.consumer.topics:
            await self._driver.declare(
                topic, self.consumer.group, temporary=self.consumer.temporary
            )

    async def start(self) -> None:
        """Begin to receive; waits for a broker that is unavailable."""
        # Now, not before: all that booted until here may have added middleware.
        self._attempts = self._make_attempts()
        self._stopping = False
        self._started = True
        await self._background.open()
        self._start("settle", self._settler.run)
        self._start("leases", self._keeper.run)
        self._start("watch", self._watch)
        for number in range(self._concurrency):
            self._start(f"worker{number}", self._work, number)
        for topic in self.consumer.topics:
            self._start(f"receive {topic}", self._receive, topic)
        await self._emitter.emit_registered(self.consumer.consumer_id)

    def _start(self, task: str, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        name = f"{self.consumer.consumer_id}.{task}"
        self._background.start(self._supervisor.run, task, work, *args, name=name)

    @property
    def restarted(self) -> dict[str, str]:
        """Tasks of this consumer that failed lately and were restarted, with the error."""
        return self._supervisor.failed

    def pause(self) -> None:
        """Receive no more for now; what it holds is handled."""
        self._paused = True

    def resume(self) -> None:
        """Resume receiving."""
        self._paused = False
        self._feed()

    @property
    def is_paused(self) -> bool:
        """True between pause and resume."""
        return self._paused

    async def stop(self, timeout: float | None = None) -> None:
        """Receive no more, let running handlers finish for ``timeout`` seconds, hand back the rest.

        Nothing is acknowledged that was not handled. A second call does nothing.
        """
        if not self._started or self._stopping:
            return
        self._finished = anyio.Event()
        self._stopping = True
        patience = self._options.drain_timeout if timeout is None else timeout
        with anyio.CancelScope(shield=True):
            for _, scope in list(self._receiving.values()):
                scope.cancel()
            waiting = [*self._buffer, *self._suspects.parked]
            self._buffer.clear()
            await self._suspects.hand_back(waiting)
            with anyio.move_on_after(patience):
                if any(self._running):
                    await self._finished.wait()
            unfinished = _flat(self._running)
            with anyio.move_on_after(patience):
                await self._settler.wait_settled()
            try:
                await self._background.close()  # cancels handlers that are still running
            finally:
                waiting = [*self._buffer, *self._suspects.parked]
                self._buffer.clear()
                await self._suspects.hand_back([*unfinished, *waiting])
            if self.consumer.temporary:
                await self._drop()

    async def _drop(self) -> None:
        for topic in self.consumer.topics:
            try:
                await self._driver.drop(topic, self.consumer.group)
            except QueueError as error:
                self._link.suspect(error)  # it is temporary: the broker drops it by itself

    # In.

    async def _receive(self, topic: str) -> None:
        """Receive whenever there is room; retries when the broker fails or hangs."""
        failures = 0
        while not self._stopping:
            with anyio.CancelScope() as scope:
                try:
                    await self._receive_steadily(topic, scope)
                except BaseException as error:
                    failure = as_failure(error)  # drivers of others: none stops us
                    if failure is None:
                        raise
                    failures = failures + 1
                    self._link.suspect(failure)
                    await anyio.sleep(PAUSES.delay(failures))
                    failures = 0 if await self._recover() else failures
            if scope.cancelled_caught and not self._stopping:
                await self._recover()

    async def _receive_steadily(self, topic: str, scope: anyio.CancelScope) -> None:
        driver, group = self._driver, self.consumer.group
        sharing = len(self.consumer.topics)
        try:
            while not self._stopping:
                room = self._room()
                if self._settler.is_behind:
                    await self._settler.wait_settled()
                if not room:
                    self._hungry.clear()
                    self._receiving.pop(topic, None)
                    await self._hungry.wait()
                    continue
                self._receiving[topic] = (anyio.current_time(), scope)
                limit = -(-room // sharing)
                batch = await driver.receive(topic, group, limit=limit, wait=RECEIVE_WAIT)
                if batch:
                    self._take_in(batch if self._sort_out is None else await self._sort_out(batch))
                else:
                    await asyncio.sleep(0)  # a driver that never waits must not stop all others
        finally:
            self._receiving.pop(topic, None)

    async def _recover(self) -> bool:
        """After a failure: once the link is there again, the groups may have to be made again."""
        await self._link.wait_repaired()
        try:
            await self.declare()
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            self._link.suspect(failure)
            return False
        return True

    async def _watch(self) -> None:
        """Cancel a receive that neither returns nor fails."""
        while True:
            await anyio.sleep(1.0)
            now = anyio.current_time()
            for topic, (since, scope) in list(self._receiving.items()):
                if now - since > RECEIVE_WAIT + STALLED_AFTER:
                    self._link.suspect(
                        QueueError(
                            f"receiving from {topic} timed out",
                            backend=self._driver.name,
                            topic=topic,
                        )
                    )
                    scope.cancel()

    def _room(self) -> int:
        """How many more it may hold; 0 until it is worth a round trip, or a worker has nothing."""
        if self._paused or self._stopping:
            return 0
        # Suspects that wait for each other must not keep the others out.
        free = self._prefetch - self.in_flight + min(self._prefetch, len(self._suspects.parked))
        if free * 2 >= self._prefetch or (not self._buffer and free > 0):
            return free
        return 0

    def _feed(self) -> None:
        if not self._hungry.is_set() and self._room():
            self._hungry.set()

    def _take_in(self, batch: Sequence[Delivery]) -> None:
        if self._stopping:
            # The stop was faster: what came too late is handed back with the rest.
            self._buffer.extend(batch)
            return
        self._buffer.extend(batch)
        for _ in range(min(len(batch), len(self._idle))):
            self._wake_worker()

    def _resume_suspects(self) -> None:
        """Those that waited for the end of another suspect are next."""
        parked = self._suspects.parked
        self._buffer.extendleft(reversed(parked))
        for _ in range(min(len(parked), len(self._idle))):
            self._wake_worker()
        parked.clear()

    def _wake_worker(self) -> None:
        while self._idle:
            worker = self._idle.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    # Out.

    async def _work(self, worker: int) -> None:
        """One worker of the pool: takes from the buffer until the subscription ends."""
        buffer, running, keeper = self._buffer, self._running, self._keeper
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        while True:
            if not buffer or self._stopping:
                await self._sleep()
                continue
            if monotonic() > keeper.safe_until:
                await keeper.renew()  # the loop was blocked: not all of it is ours any more
                continue
            taken = (buffer.popleft(),) if self._is_simple else await self._choose()
            taken = self._begin(taken)
            if not taken:
                continue
            running[worker] = taken
            if len(buffer) <= self._low:
                self._feed()
            try:
                if self._is_batched:
                    await self._handle_batch(taken)
                elif self._is_ordinary(taken[0]):
                    await self._attempt(taken[0])
                else:
                    await self._handle_special(taken[0])
            except Exception:
                # A defect of ours: without a lease nothing else would give them to others.
                await self._settler.hand_back(taken)
                raise
            finally:
                running[worker] = ()
                self._end(taken)
                self._note_end()
            if task.cancelling():  # by a handler that returned: the next message must not see it
                await self._supervisor.take_back_cancellation()

    async def _choose(self) -> tuple[Delivery, ...]:
        """What the next attempt takes: nothing yet, one message, or a batch."""
        if self._limiter is not None:
            await self._limiter.acquire()
        if self._stopping or monotonic() > self._keeper.safe_until:
            return ()
        if self.consumer.batch_size > 1:
            return self._choose_batch()
        for position, delivery in enumerate(self._buffer):
            if self._may_run(delivery):
                del self._buffer[position]
                return (delivery,)
        if self._buffer:
            await self._sleep()  # all that wait belong to keys that have their share
        return ()

    def _choose_batch(self) -> tuple[Delivery, ...]:
        """Those that come next; a suspect is a batch of its own."""
        buffer = self._buffer
        size = min(self.consumer.batch_size, len(buffer))
        if size:
            is_suspect = self._suspects.is_one
            found = (number for number in range(size) if is_suspect(buffer[number]))
            size = next(found, size) or 1
        return tuple(buffer.popleft() for _ in range(size))

    def _begin(self, taken: tuple[Delivery, ...]) -> tuple[Delivery, ...]:
        """Those to handle now: none whose message a handler here has already.

        A process that stood still loses its leases, and may be the one that receives the messages
        again while its handlers still run.
        """
        handling = self._handling
        if len(taken) == 1 and (identity := taken[0].message.id) not in handling:
            handling.add(identity)
            return taken  # nearly always: without a list and another tuple
        begun: list[Delivery] = []
        for delivery in taken:
            identity = delivery.message.id
            if identity in handling:
                self._repeated.setdefault(identity, []).append(delivery)
            else:
                handling.add(identity)
                begun.append(delivery)
        return tuple(begun)

    def _acknowledge(self, delivery: Delivery) -> None:
        """A handler returned. If its lease was lost, the lease that replaced it is acknowledged."""
        self._settler.acknowledge(delivery)
        if id(delivery) in self._lost_running:
            for again in self._repeated.pop(delivery.message.id, ()):
                self._settler.acknowledge(again)

    def _end(self, taken: tuple[Delivery, ...]) -> None:
        """These messages are not in flight any more: a redelivery that waited for that is next."""
        if self._copies:
            parked = set(map(id, self._suspects.parked))
            self._suspects.forget(one for one in taken if id(one) not in parked)
        for delivery in taken:
            self._handling.discard(delivery.message.id)
            self._lost_running.discard(id(delivery))
            if self._repeated and (again := self._repeated.pop(delivery.message.id, None)):
                self._buffer.extendleft(reversed(again))
                self._wake_worker()

    def _may_run(self, delivery: Delivery) -> bool:
        """Whether the fairness key of the message has not its share of workers yet."""
        key = _key(delivery)
        if self._per_key is None or key is None:
            return True
        running = sum(_key(one) == key for taken in self._running for one in taken)
        return running < self._per_key

    def _note_end(self) -> None:
        if self._per_key is not None:
            self._wake_worker()  # one that was held back may run now
        if self._stopping and not any(self._running):
            self._finished.set()

    async def _sleep(self) -> None:
        self._feed()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        await waiter

    def _is_ordinary(self, delivery: Delivery) -> bool:
        message = delivery.message
        return (
            message.ttl is None
            and delivery.delivery_count == 1
            and not self._copies
            and message.delivery_guarantee is self._guarantee is _ORDINARY
        )

    async def _handle_special(self, delivery: Delivery) -> None:
        message, guarantee = delivery.message, self._guarantee
        if guarantee is _ORDINARY:
            guarantee = message.delivery_guarantee
        if is_expired(message):
            await self._settle_expired(delivery)
        elif guarantee is DeliveryGuarantee.AT_MOST_ONCE:
            await self._attempt_at_most_once(delivery)  # nothing comes back that was begun
        elif self._suspects.is_one(delivery):
            await self._attempt_suspect(
                delivery, lambda: self._attempt_guaranteed(delivery, guarantee)
            )
        else:
            await self._attempt_guaranteed(delivery, guarantee)

    async def _attempt_suspect(
        self, delivery: Delivery, attempt: Callable[[], Awaitable[object]]
    ) -> None:
        """The attempt of a message that came back: perhaps it ends this process."""
        if await self._suspects.begin(delivery):
            try:
                await attempt()
            finally:
                self._suspects.end()

    async def _attempt_guaranteed(self, delivery: Delivery, guarantee: DeliveryGuarantee) -> None:
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE and self._guarantee is not guarantee:
            await self._attempt_once_if_remembered(delivery)
        else:
            await self._attempt(delivery)

    async def _attempt(self, delivery: Delivery) -> bool:
        try:
            message = delivery.message
            if self._is_typed or message.headers or message.payload.__class__ is bytes:
                message = self._payloads.decode(message, self.consumer.payload_type)
            await self._attempts.run(delivery, message)
        except BaseException as error:  # the boundary to code of others
            failure = await self._supervisor.failure_of(error)
            if failure is None:
                raise
            await self._fail(delivery, failure)
            return False
        self._acknowledge(delivery)
        self.handled += 1
        if not self._emitter.is_idle:
            await self._emitter.emit_consumed(message, self.consumer.consumer_id)
        return True

    async def _fail(self, delivery: Delivery, error: Exception) -> None:
        if not isinstance(error, UndecodableMessageError):
            _log.warning(
                "%s failed on message %s of %s (retry %d)",
                self.consumer.consumer_id,
                delivery.message.id,
                delivery.message.topic,
                delivery.message.retry_count,
                exc_info=error,
            )
        await self._settler.fail(delivery, error)

    async def _settle_expired(self, delivery: Delivery) -> None:
        if self._options.expired == "drop":
            await self._settler.drop(delivery)
        else:
            ttl = delivery.message.ttl
            await self._settler.set_aside(
                delivery, DeadLetterReason.EXPIRED, f"older than its time to live of {ttl:g} s"
            )

    async def _attempt_at_most_once(self, delivery: Delivery) -> None:
        if not await self._acknowledge_first((delivery,)):
            return
        try:
            message = self._payloads.decode(delivery.message, self.consumer.payload_type)
            await call(self._attempts.run, delivery, message, host=self._background.host)
        except Exception as failure:  # noqa: BLE001 - the boundary to code of others
            self._log_lost((delivery,), failure)
            return
        self.handled += 1
        if not self._emitter.is_idle:
            await self._emitter.emit_consumed(message, self.consumer.consumer_id)

    async def _acknowledge_first(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Those that are ours alone now: a crash loses them, nothing can double them."""
        lease = self._driver.visibility_timeout
        try:
            if lease is not None:
                gone = await self._driver.extend_many(
                    deliveries, lease
                )  # leased by another consumer
                deliveries = [one for one in deliveries if one not in gone] if gone else deliveries
            if deliveries:
                await self._driver.ack_many(deliveries)
        except BaseException as error:
            failure = as_failure(error)  # drivers of others: none stops the consumer
            if failure is None:
                raise
            self._link.suspect(failure)
            return ()
        return deliveries

    def _log_lost(self, deliveries: Sequence[Delivery], failure: Exception) -> None:
        for delivery in deliveries:
            self._emitter.count("lost")
            _log.error(
                "%s failed on message %s, which is delivered at most once",
                self.consumer.consumer_id,
                delivery.message.id,
                exc_info=failure,
            )

    async def _attempt_once_if_remembered(self, delivery: Delivery) -> None:
        """Skip ids handled lately: EXACTLY_ONCE requested by the message, without SQL."""
        identity = delivery.message.id
        if identity in self._handled:
            self._settler.acknowledge(delivery)
        elif await self._attempt(delivery):
            self._handled[identity] = None
            if len(self._handled) > REMEMBERED_IDS:
                self._handled.popitem(last=False)

    async def _handle_batch(self, deliveries: Sequence[Delivery]) -> None:
        good, messages = await self._readable(deliveries)
        if good and self._guarantee is DeliveryGuarantee.AT_MOST_ONCE:
            ours = {id(one) for one in await self._acknowledge_first(good)}
            pairs = zip(good, messages, strict=True)
            kept = [(one, message) for one, message in pairs if id(one) in ours]
            good, messages = [one for one, _ in kept], [message for _, message in kept]
        elif good and self._suspects.is_one(good[0]):
            await self._attempt_suspect(good[0], lambda: self._attempt_batch(good, messages))
            return
        if good:
            await self._attempt_batch(good, messages)

    async def _readable(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[list[Delivery], list[BusMessage]]:
        """Those the handler can have; the others are settled by what is wrong with them."""
        good: list[Delivery] = []
        messages: list[BusMessage] = []
        for delivery in deliveries:
            message = delivery.message
            if is_expired(message):
                await self._settle_expired(delivery)
                continue
            try:
                messages.append(self._payloads.decode(message, self.consumer.payload_type))
                good.append(delivery)
            except UndecodableMessageError as error:
                await self._fail(delivery, error)
        return good, messages

    async def _attempt_batch(
        self, deliveries: Sequence[Delivery], messages: Sequence[BusMessage]
    ) -> None:
        at_most_once = self._guarantee is DeliveryGuarantee.AT_MOST_ONCE
        try:
            await call(self._attempts.run_batch, deliveries, messages, host=self._background.host)
        except Exception as failure:  # noqa: BLE001 - the boundary to code of others
            if at_most_once:
                self._log_lost(deliveries, failure)
                return
            for delivery in deliveries:
                await self._fail(delivery, failure)
            return
        for delivery, message in zip(deliveries, messages, strict=True):
            if not at_most_once:
                self._acknowledge(delivery)
            self.handled += 1
            if not self._emitter.is_idle:
                await self._emitter.emit_consumed(message, self.consumer.consumer_id)

    # Held.

    def _list_held(self) -> Collection[Delivery]:
        waiting = (*self._buffer, *self._suspects.parked, *_flat(self._repeated.values()))
        return [*waiting, *_flat(self._running)]

    def _forget(self, lost: Collection[Delivery]) -> None:
        """Give up deliveries whose lease is lost: those not begun are not begun here."""
        gone = {id(delivery) for delivery in lost}
        held = [delivery for delivery in self._list_held() if id(delivery) in gone]
        running = {id(one) for one in _flat(self._running)}
        if held:
            self._emitter.count("lease_lost", len(held))
            _log.warning(
                "consumer %s: %d leases lost; %d messages not begun yet are skipped",
                self.consumer.consumer_id,
                len(held),
                sum(id(one) not in running for one in held),
            )
        kept = [one for one in self._buffer if id(one) not in gone]
        self._buffer.clear()
        self._buffer.extend(kept)
        self._suspects.forget(held)
        for identity, waiting in list(self._repeated.items()):
            self._repeated[identity] = [one for one in waiting if id(one) not in gone]
            if not self._repeated[identity]:
                del self._repeated[identity]
        self._lost_running.update(running & gone)


_ORDINARY: Final = DeliveryGuarantee.AT_LEAST_ONCE


def _flat(groups: Iterable[Sequence[Delivery]]) -> list[Delivery]:
    return [delivery for group in groups for delivery in group]


def _key(delivery: Delivery) -> str | None:
    headers = delivery.message.headers
    return headers.get(FAIRNESS_KEY) if headers else None
