"""The task queue: takes jobs in, hands them out under leases, answers what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import anyio

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.errors import (
    JobExistsError,
    JobNotUniqueError,
    JobRefusedError,
    TaskQueueError,
    UnknownJobError,
)
from lexigram.contracts.infra.tasks.protocols import JobProtocol, NewsProtocol
from lexigram.contracts.infra.tasks.types import (
    ClaimedJob,
    EndKind,
    Job,
    JobEnd,
    JobResult,
    JobStatus,
    LeaseState,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.leasing.coalescer import Coalescer
from lexigram.leasing.lease import lease_token
from lexigram.sql.database import Database
from lexigram.sql.text import storable_text
from lexigram.tasks._emitter import JobEmitter
from lexigram.tasks.events import JobEnqueued
from lexigram.tasks.intake import (
    NewJob,
    admitted,
    check_age,
    check_keys,
    check_page,
    result_text,
    result_value,
)
from lexigram.tasks.store import (
    QUEUED,
    Admission,
    End,
    JobStore,
    Row,
    State,
    Topic,
    job_from,
    states_of,
    status_of,
)
from lexigram.tasks.store_memory import MemoryStore
from lexigram.tasks.store_sql import SqlStore

LEASE_SECONDS = 30.0
RESULT_TTL_SECONDS = 24 * 3600.0
_BATCH = 500  # rows of one INSERT


class TaskQueue:
    """Implements TaskQueueProtocol, JobControlProtocol and JobLeasingProtocol on a store.

    ``enqueue`` outside a transaction commits together with what other tasks enqueue at the
    same moment; inside ``async with db.transaction()`` of the queue's own database it is part
    of that transaction, and so is ``enqueue_many``: the jobs exist if and only if it commits,
    and no worker sees them before. ``declared`` fills what a mapping leaves out with what the
    handler of its name declares, if this process has it.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        lease: float = LEASE_SECONDS,
        result_ttl: float = RESULT_TTL_SECONDS,
        declared: Callable[[str], Mapping[str, Any]] | None = None,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
        tracer: TracerProtocol | None = None,
    ) -> None:
        self.store = store
        self._tracer = tracer
        self._lease = lease
        self._result_ttl = result_ttl
        self._declared = declared
        self._emitter = JobEmitter(metrics, events)
        self._intake = Coalescer[NewJob, Admission](store.insert, limit=_BATCH)
        self._holder = lease_token()
        # handed out by dequeue() and not settled yet
        self._out: dict[str, ClaimedJob] = {}
        self._closed = False

    # --- TaskQueueProtocol ----------------------------------------------------------------------

    async def enqueue(self, task: JobProtocol | Mapping[str, Any]) -> Result[str, TaskQueueError]:
        """Accept a job; see the contract for the keys of a mapping."""
        try:
            self._check_open()
            new = admitted(task, self._declared, self._tracer)
            if self.store.is_durable and not self.store.joins:
                admission = await self._intake.add(new)
            else:
                [admission] = await self.store.insert([new])
        except TaskQueueError as error:
            return Err(error)
        if self._emitter.has_subscribers(JobEnqueued):
            await self._announce([(new, admission)])
        return self._answer(new, admission)

    async def dequeue(self) -> JobProtocol | None:
        """Hand out the next job of any queue, for the lease of this queue."""
        self._check_open()
        await self.tend()
        claimed = await self.store.claim(self._holder, 1, (), self._lease)
        if not claimed:
            return None
        self._out[claimed[0].job.id] = claimed[0]
        return claimed[0].job

    async def ack(self, task_id: str) -> None:
        """End what ``dequeue`` of this object handed out as COMPLETED."""
        await self._settle(task_id, EndKind.COMPLETED, "")

    async def nack(self, task_id: str, requeue: bool = True) -> None:
        """Hand it out again at once, or give it up as FAILED."""
        if requeue:
            await self._settle(task_id, EndKind.RETRY, "")
        else:
            await self._settle(task_id, EndKind.FAILED, "rejected")

    async def keep_alive(self, task_id: str) -> bool:
        """Start the lease of a job from ``dequeue`` anew; False when it is lost or unknown."""
        claim = self._out.get(task_id)
        if claim is None:
            return False
        [state] = await self.store.extend([claim], self._lease)
        return state is not LeaseState.LOST

    async def get_job(self, job_id: str) -> Job | None:
        """The job as it is now."""
        check_keys(job_id=job_id)
        row = await self.store.get(job_id)
        return None if row is None else job_from(row)

    async def delete_job(self, job_id: str) -> bool:
        """Forget a job that is not running; those that wait for it count it as cancelled."""
        check_keys(job_id=job_id)
        not_running = [state for state in State if state is not State.RUNNING]
        return await self.store.delete(not_running, job_id) > 0

    async def count(self, queue_name: str, status: JobStatus | None = None) -> int:
        """Jobs of one queue."""
        check_keys(queue_name=queue_name)
        states, retried = states_of(status)
        return await self.store.count(queue_name, states, retried)

    async def get_task_count(self) -> int:
        """Jobs that wait, also for their time or for others."""
        return await self.store.count(None, QUEUED, None)

    async def clear(self) -> None:
        """Forget every job that waits."""
        await self.store.delete(QUEUED)

    async def close(self) -> None:
        """Hand back what ``dequeue`` gave out; the database is closed by its owner."""
        if self._closed:
            return
        self._closed = True
        held, self._out = list(self._out.values()), {}
        if held:
            await self.finish([JobEnd(claim=item, kind=EndKind.RELEASED) for item in held])

    # --- JobControlProtocol ---------------------------------------------------------------------

    async def enqueue_many(
        self, tasks: Sequence[JobProtocol | Mapping[str, Any]]
    ) -> Sequence[Result[str, TaskQueueError]]:
        """Accept several in one transaction for every 500."""
        self._check_open()
        checked = [self._admit(task) for task in tasks]
        good = [item for item in checked if isinstance(item, NewJob)]
        answers: list[Result[str, TaskQueueError]] = []
        for start in range(0, len(good), _BATCH):
            part = good[start : start + _BATCH]
            pairs = list(zip(part, await self.store.insert(part), strict=True))
            if self._emitter.has_subscribers(JobEnqueued):
                await self._announce(pairs)
            answers += [self._answer(new, admission) for new, admission in pairs]
        admissions = iter(answers)
        return [next(admissions) if isinstance(item, NewJob) else Err(item) for item in checked]

    async def cancel(self, job_id: str) -> bool:
        """End a waiting job now; tell the worker of a running one, wherever it is."""
        check_keys(job_id=job_id)
        answer = await self.store.cancel(job_id)
        await self._emitter.report_ended(answer.others)
        return answer.found

    async def get_result(self, job_id: str) -> JobResult | None:
        """Where the job is and what it returned."""
        check_keys(job_id=job_id)
        row = await self.store.get(job_id)
        return None if row is None else _result(row)

    async def wait(self, job_id: str, timeout: float | None = None) -> JobResult:
        """The result once the job has ended."""
        with anyio.fail_after(timeout):
            async with self.store.listening("done") as news:
                while True:
                    result = await self.get_result(job_id)
                    if result is None:
                        raise UnknownJobError(
                            f"there is no job {job_id!r}",
                            details={"job_id": job_id},
                            hint="it was never accepted, or it ended long ago and was purged",
                        )
                    if result.status.is_final:
                        return result
                    await news.wait()

    async def list_jobs(
        self,
        queue_name: str | None = None,
        status: JobStatus | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Job]:
        """Jobs, latest first."""
        check_keys(queue_name=queue_name, name=name)
        check_page(limit, offset)
        states, retried = states_of(status)
        rows = await self.store.find(
            queue=queue_name,
            states=states,
            retried=retried,
            name=name,
            limit=limit,
            offset=offset,
        )
        return [job_from(row) for row in rows]

    async def retry_job(self, job_id: str) -> bool:
        """Hand a FAILED or CANCELLED job out again."""
        check_keys(job_id=job_id)
        return await self.store.revive(job_id, (State.FAILED, State.CANCELLED))

    async def purge(self, older_than: float) -> int:
        """Forget COMPLETED and CANCELLED jobs that ended long ago."""
        check_age("older_than", older_than)
        return await self.store.purge(older_than)

    # --- JobLeasingProtocol ---------------------------------------------------------------------

    async def claim(
        self,
        holder: str,
        limit: int,
        queues: Sequence[str] = (),
        lease: float = LEASE_SECONDS,
    ) -> Sequence[ClaimedJob]:
        """Up to ``limit`` jobs; no waiting."""
        self._check_open()
        return await self.store.claim(holder, limit, queues, lease)

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        """Start the leases anew."""
        return await self.store.extend(claims, lease) if claims else []

    async def finish(self, ends: Sequence[JobEnd]) -> Sequence[bool]:
        """Report how attempts ended, in one transaction."""
        if not ends:
            return []
        finished = await self.store.finish([self._write_end(end) for end in ends])
        await self._emitter.report_ended(finished.others)
        return [status is not None for status in finished.statuses]

    async def tend(self) -> float | None:
        """Let due jobs and those of dead workers be handed out."""
        tended = await self.store.tend()
        await self._emitter.report_ended(tended.others)
        return tended.next_due

    def listening(self, to: Topic) -> AbstractAsyncContextManager[NewsProtocol]:
        """Be woken when there may be something to do."""
        return self.store.listening(to)

    # --- the rest -------------------------------------------------------------------------------

    async def _settle(self, task_id: str, kind: EndKind, reason: str) -> None:
        claim = self._out.pop(task_id, None)
        if claim is not None:
            await self.finish([JobEnd(claim=claim, kind=kind, reason=reason)])

    def _answer(self, new: NewJob, admission: Admission) -> Result[str, TaskQueueError]:
        job = new.job
        if admission.kind == "new":
            self._emitter.count("enqueued", name=job.name, queue=job.queue)
            return Ok(job.id)
        if admission.kind == "same_request":
            return Ok(admission.job_id)
        return Err(_refusal(job, admission))

    async def _announce(self, pairs: Sequence[tuple[NewJob, Admission]]) -> None:
        for new, admission in pairs:
            job = new.job
            if admission.kind == "new":
                await self._emitter.publish(JobEnqueued, partial(_build_enqueued, job))

    def _admit(self, task: JobProtocol | Mapping[str, Any]) -> NewJob | JobRefusedError:
        try:
            return admitted(task, self._declared, self._tracer)
        except JobRefusedError as error:
            return error

    def _write_end(self, end: JobEnd) -> End:
        result, kind, error, reason = None, end.kind, end.error, end.reason
        if kind is EndKind.COMPLETED:
            try:
                result = result_text(end.value)
            except LexigramError as problem:
                kind, reason = EndKind.FAILED, "aborted"
                error = f"the result cannot be kept: {problem.message}"
        ttl = end.claim.job.result_ttl
        return End(
            claim=end.claim,
            kind=kind,
            result=result,
            ttl=self._result_ttl if ttl is None else ttl,
            error=storable_text(error),
            reason=storable_text(reason),
            delay=end.delay if kind is EndKind.RETRY else 0.0,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise TaskQueueError("the task queue is closed")


class InMemoryTaskQueue(TaskQueue):
    """Jobs in this process: everything but durability. For tests, tools and single processes."""

    def __init__(self, *, poll: float = 1.0, **settings: Any) -> None:
        super().__init__(MemoryStore(poll=poll), **settings)


class SqlTaskQueue(TaskQueue):
    """Jobs in a database, shared by all processes that use it."""

    def __init__(self, database: Database, *, poll: float = 1.0, **settings: Any) -> None:
        super().__init__(SqlStore(database, poll=poll), **settings)


def _refusal(job: Job, admission: Admission) -> TaskQueueError:
    details = {"job_id": admission.job_id, "name": job.name}
    if admission.kind == "known_id":
        return JobExistsError(
            f"a job {job.id!r} was accepted before",
            details=details,
            hint="leave the id out, or use an idempotency_key to submit the same job again",
        )
    if admission.kind == "not_unique":
        return JobNotUniqueError(
            f"job {admission.job_id} has the unique key {job.unique_key!r} and has not ended",
            details={**details, "unique_key": job.unique_key},
        )
    return UnknownJobError(
        f"job {job.id!r} depends on {admission.job_id!r}, which is not known",
        details=details,
        hint="enqueue a job before those that depend on it",
    )


def _build_enqueued(job: Job) -> JobEnqueued:
    return JobEnqueued(job_id=job.id, name=job.name, queue=job.queue)


def _result(row: Row) -> JobResult:
    return JobResult(
        job_id=row["id"],
        status=status_of(row["state"], row["retry_count"]),
        value=result_value(row["result"]),
        error=row["error"],
        reason=row["reason"],
    )
