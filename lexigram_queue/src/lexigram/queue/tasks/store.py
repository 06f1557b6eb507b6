"""Jobs over a broker: the state holds the jobs, the broker notifies one worker.

When jobs can be claimed, a message goes to topic ``<topic>.<queue>``, group ``workers``: a *call*.
The one worker that receives it claims the most urgent jobs from the state, as many as it has
room for; when that leaves more, it calls the next worker. So priority, order, keys,
leases and fences are the same on every broker, also on those that have none of them, and of a
thousand idle workers as many wake as are needed. A call is a hint and never the truth: one without
a job is thrown away, and a job whose call was lost is found by the poll. A broker that is
unavailable delays jobs, and loses or duplicates none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import anyio

from lexigram import clock
from lexigram.contracts.infra.tasks.protocols import NewsProtocol
from lexigram.contracts.infra.tasks.types import DEFAULT_QUEUE, ClaimedJob, EndKind, LeaseState
from lexigram.contracts.queue import BusMessage, QueueDriverProtocol, QueueError
from lexigram.leasing import Backoff
from lexigram.leasing.subscriptions import Subscription, Subscriptions
from lexigram.observability import get_logger
from lexigram.tasks.intake import NewJob
from lexigram.tasks.store import (
    Admission,
    Cancelled,
    End,
    Finished,
    JobStore,
    Row,
    State,
    Tended,
    Topic,
)

TOPIC: Final = "lexigram.jobs"
GROUP: Final = "workers"
# Jobs that come together for which one worker is called. A call each cost more than the jobs: on
# NATS 511 µs a job against 263 for a message of the bus.
JOBS_PER_CALL: Final = 10
MAX_CALLS: Final = 100  # received in one go
REFRESH_QUEUES: Final = 5.0  # interval in seconds of listing the queues
RETRY_BACKOFF: Final = Backoff(first=0.1, cap=2.0)

logger = get_logger(__name__)


class StagingProtocol(Protocol):
    """The part of an outbox that calls of jobs in a transaction need."""

    async def stage(self, topic: str, message: BusMessage) -> None:
        """Keep the message until the transaction of this task commits, then publish it."""
        ...


class BusJobs:
    """Implements JobStore: ``state`` keeps the jobs, ``driver`` notifies workers.

    Both are opened and closed by their owners. ``outbox``, on the database of the state, sends
    the calls of jobs that are enqueued inside a transaction when it commits; without it workers
    find such jobs by their poll.
    """

    def __init__(
        self,
        state: JobStore,
        driver: QueueDriverProtocol,
        *,
        topic: str = TOPIC,
        poll: float = 1.0,
        outbox: StagingProtocol | None = None,
    ) -> None:
        self.state = state
        self.is_durable = state.is_durable
        self._driver = driver
        self._topic = topic
        self._poll = poll
        self._outbox = outbox
        self._declared: set[str] = set()
        # Queues that workers here take jobs from; all of them once one takes from all.
        self._wanted: set[str] = set()
        self._wants_all = False
        self._refresh_at = 0.0
        # Queues of a worker that is busy: calls that wait for it are to be received.
        self._stale: set[str] = set()
        self._news = Subscriptions()
        self._failures = 0
        self._silent_until = 0.0  # a broker that failed is not called before

    @property
    def joins(self) -> bool:
        return self.state.joins

    # --- in -------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Admission]:
        joined = self.state.joins
        admissions = await self.state.insert(jobs)
        calls = self._calls(
            new.job.queue
            for new, admission in zip(jobs, admissions, strict=True)
            if admission.kind == "new" and _is_for_now(new)
        )
        if not joined:
            await self._publish(calls)
        elif self._outbox is not None:
            for call in calls:
                await self._outbox.stage(call.topic, call)
        return admissions

    # --- out ------------------------------------------------------------------------------------

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str], lease: float
    ) -> Sequence[ClaimedJob]:
        self._wants_all = self._wants_all or not queues
        self._wanted.update(queues)
        await self._receive_stale()
        claimed = await self.state.claim(holder, limit, queues, lease)
        if claimed and len(claimed) >= limit:
            # There may be more than this worker can take. It does not wait for calls now, so it
            # receives them with its next claim: else they would pile up while all are busy.
            self._stale = {claim.job.queue for claim in claimed}
            await self._publish(self._calls(self._stale))
        return claimed

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        return await self.state.extend(claims, lease)

    async def finish(self, ends: Sequence[End]) -> Finished:
        finished = await self.state.finish(ends)
        again = [
            end.claim.job.queue
            for end, status in zip(ends, finished.statuses, strict=True)
            if status is not None
            and not status.is_final
            and end.kind in (EndKind.RETRY, EndKind.RELEASED)
            and not end.delay
        ]
        await self._publish(self._calls(again))
        return finished

    async def tend(self) -> Tended:
        tended = await self.state.tend()
        if tended.promoted:
            # The process that tends takes some of them; others are notified of the rest.
            rows = await self.state.find(
                queue=None,
                states=(State.READY,),
                retried=None,
                name=None,
                limit=min(tended.promoted, JOBS_PER_CALL * MAX_CALLS),
                offset=0,
            )
            await self._publish(self._calls(row["queue"] for row in rows))
        return tended

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> Cancelled:
        return await self.state.cancel(job_id)

    async def revive(self, job_id: str, states: Sequence[State]) -> bool:
        revived = await self.state.revive(job_id, states)
        row = await self.state.get(job_id) if revived else None
        if row is not None:
            await self._publish(self._calls([row["queue"]]))
        return revived

    async def bury(self, job: NewJob, reason: str, error: str, notes: str) -> None:
        await self.state.bury(job, reason, error, notes)

    async def get(self, job_id: str) -> Row | None:
        return await self.state.get(job_id)

    async def find(
        self,
        *,
        queue: str | None,
        states: Sequence[State],
        retried: bool | None,
        name: str | None,
        limit: int,
        offset: int,
    ) -> Sequence[Row]:
        return await self.state.find(
            queue=queue, states=states, retried=retried, name=name, limit=limit, offset=offset
        )

    async def count(self, queue: str | None, states: Sequence[State], retried: bool | None) -> int:
        return await self.state.count(queue, states, retried)

    async def delete(self, states: Sequence[State], job_id: str | None = None) -> int:
        return await self.state.delete(states, job_id)

    async def purge(self, older_than: float) -> int:
        return await self.state.purge(older_than)

    # --- news -----------------------------------------------------------------------------------

    def listening(self, to: Topic) -> AbstractAsyncContextManager[NewsProtocol]:
        return self._listening_for_calls() if to == "work" else self.state.listening(to)

    @asynccontextmanager
    async def _listening_for_calls(self) -> AsyncGenerator[NewsProtocol, None]:
        with self._news.open("work") as subscription:
            yield _CallListener(self, subscription, self._poll)

    async def wait_for_call(self, subscription: Subscription, wait: float) -> bool:
        """Wait for a call, here or to another worker of this process; False when none came."""
        if await subscription.wait(timeout=0) is not None:
            return True
        try:
            topics = await self._topics()
            return await self._first_of(topics, subscription, wait)
        except QueueError as error:
            await self._reconnect(error, wait)
            return False

    async def _first_of(
        self, topics: Sequence[str], subscription: Subscription, wait: float
    ) -> bool:
        """A call of any topic, or one that another worker of this process received."""
        failed: list[QueueError] = []
        came = False
        async with anyio.create_task_group() as tasks:

            async def receive(topic: str) -> None:
                try:
                    heard = await self._receive(topic, wait)
                except QueueError as error:
                    failed.append(error)
                    subscription.tell("")
                    return
                if heard:
                    self._news.tell("work", "")  # it may be for another pool of this process

            for topic in topics:
                tasks.start_soon(receive, topic)
            # The call that came, to whomever; or the end of the wait.
            came = await subscription.wait(timeout=wait) is not None
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return came

    async def _receive(self, topic: str, wait: float) -> bool:
        # All that are there: should they mean more jobs than this worker can take, it calls again.
        calls = await self._driver.receive(topic, GROUP, limit=MAX_CALLS, wait=wait)
        if calls:
            # At once: if this process crashes, the job is still in the state.
            await self._driver.ack_many(calls)
            self._failures = 0
        return bool(calls)

    async def _receive_stale(self) -> None:
        """Calls for the jobs that are claimed now."""
        if not self._stale or clock.monotonic() < self._silent_until:
            return
        stale, self._stale = self._stale, set()
        for queue in stale:
            topic = f"{self._topic}.{queue}"
            try:
                if topic in self._declared:
                    await self._receive(topic, 0.0)
            except QueueError as error:
                self._suspect(error)
                return

    # --- the broker -----------------------------------------------------------------------------

    def _calls(self, queues: Iterable[str]) -> list[BusMessage]:
        """For jobs of these queues, each named as often as it has jobs."""
        return [
            BusMessage(topic=f"{self._topic}.{queue}", payload=b"")
            for queue, jobs in Counter(queues).items()
            for _ in range(0, jobs, JOBS_PER_CALL)
        ]

    async def _publish(self, calls: Sequence[BusMessage]) -> None:
        """Notify workers. The jobs are accepted: an unavailable broker must not undo that."""
        if not calls or clock.monotonic() < self._silent_until:
            return
        try:
            if self._failures:
                await self._driver.connect()
            for topic in {call.topic for call in calls} - self._declared:
                await self._declare(topic)
                self._news.tell("work", "")  # workers of this process listen to it from now on
            await self._driver.publish_many(calls)
            self._failures = 0
        except QueueError as error:
            self._suspect(error)

    async def _declare(self, topic: str) -> None:
        await self._driver.declare(topic, GROUP)
        self._declared.add(topic)

    async def _topics(self) -> list[str]:
        """Topics whose calls are for workers of this process."""
        begin = f"{self._topic}."
        for queue in self._wanted:
            if begin + queue not in self._declared:
                await self._declare(begin + queue)
        if self._wants_all or not self._wanted:  # nobody has claimed yet
            if begin + DEFAULT_QUEUE not in self._declared:
                await self._declare(begin + DEFAULT_QUEUE)
            if clock.monotonic() >= self._refresh_at:
                known = await self._driver.groups()
                self._declared |= {t for t, g in known if g == GROUP and t.startswith(begin)}
                self._refresh_at = clock.monotonic() + REFRESH_QUEUES
            return sorted(self._declared)
        return sorted(begin + queue for queue in self._wanted)

    def _suspect(self, error: QueueError) -> None:
        self._failures += 1
        # Until then enqueueing and claiming do not wait for its timeouts.
        self._silent_until = clock.monotonic() + RETRY_BACKOFF.delay(self._failures)
        if self._failures == 1:
            logger.warning(
                "the broker does not answer; workers find jobs by polling", error=str(error)
            )

    async def _reconnect(self, error: QueueError, wait: float) -> None:
        """Reconnect, or wait."""
        self._suspect(error)
        self._declared.clear()  # a broker that lost its data has lost these
        self._refresh_at = 0.0
        await anyio.sleep(min(wait, RETRY_BACKOFF.delay(self._failures)))
        try:
            await self._driver.connect()
        except QueueError:
            return  # logged already; the next wait retries
        self._failures, self._silent_until = 0, 0.0
        logger.info("reconnected to the broker of the jobs")


class _CallListener:
    """Implements NewsProtocol for one worker."""

    def __init__(self, jobs: BusJobs, subscription: Subscription, poll: float) -> None:
        self._jobs = jobs
        self._subscription = subscription
        self._poll = poll

    async def wait(self, at_most: float | None = None) -> bool:
        limit = self._poll if at_most is None else min(self._poll, at_most)
        return await self._jobs.wait_for_call(self._subscription, limit)


def _is_for_now(new: NewJob) -> bool:
    """Whether it may be claimable at once; one that waits for others may be, too."""
    if new.delay:
        return False
    at = new.job.scheduled_at
    return at is None or at.timestamp() <= clock.timestamp()
