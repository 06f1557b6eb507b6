"""A pool of workers: takes jobs, calls their handlers, reports how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio

from lexigram import clock
from lexigram.concurrency import (
    BackgroundTask,
    as_failure,
    call,
    suspect_lock,
    take_back_cancellation,
)
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.errors import (
    JobTimeoutError,
    NoHandlerError,
    TaskQueueError,
)
from lexigram.contracts.infra.tasks.protocols import (
    NewsProtocol,
    ProgressTrackerProtocol,
    TaskQueueProtocol,
)
from lexigram.contracts.infra.tasks.types import ClaimedJob, EndKind, JobEnd, LeaseState
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.leasing.backoff import Backoff
from lexigram.leasing.coalescer import Coalescer
from lexigram.leasing.lease import RENEWALS_PER_LEASE, lease_token
from lexigram.leasing.pool import LeasedRun, LeasePool, StopReason
from lexigram.observability import get_logger
from lexigram.sql.errors import is_file_lost
from lexigram.tasks._emitter import JobEmitter
from lexigram.tasks.config import PoolSettings
from lexigram.tasks.context import JobContext, enter
from lexigram.tasks.events import (
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobRetried,
    JobStarted,
)
from lexigram.tasks.executor import found
from lexigram.tasks.handlers import Handler, JobRetry, definition_of
from lexigram.tasks.plain import leasing

logger = get_logger(__name__)

_BATCH = 500  # ends in one transaction
# Looking for due jobs and dead workers costs a transaction: after news not more often than this.
_TEND_SECONDS = 0.2
# Nor less often, even when nothing is due: the lease of a worker that died may be over.
_TEND_AT_LEAST_SECONDS = 5.0
_CLEANUP_SECONDS = 5.0  # for a handler that was asked to stop, and for the last report
_ERROR_LENGTH = 10_000  # characters of an error that are kept
_AGAIN = Backoff(first=0.05, cap=5.0)


class TaskWorker:
    """Implements TaskWorkerProtocol, on any TaskQueueProtocol; best on one that leases.

    ``handler_registry`` may grow while it runs. The report of a job is written together with
    those of jobs that end at the same moment.
    """

    def __init__(
        self,
        worker_id: str,
        queue: TaskQueueProtocol,
        handler_registry: dict[str, Any],
        config: PoolSettings | None = None,
        *,
        progress: ProgressTrackerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
        tracer: TracerProtocol | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.config = config or PoolSettings()
        self._queue = leasing(queue)
        self._handlers = handler_registry
        # made from plain functions of the registry
        self._made: dict[str, Handler] = {}
        self._progress = progress
        self._emitter = JobEmitter(metrics, events)
        self._tracer = tracer
        self._reports = Coalescer[JobEnd, bool](self._queue.finish, limit=_BATCH)
        self._pool = LeasePool[_Run](
            self.config.concurrency,
            prefetch=self.config.prefetch,
            claim=self._claim,
            run=self._perform,
            wait_for_work=self._wait_for_work,
            on_outage=self._on_outage,
            release=self._release,
        )
        self._task = BackgroundTask(f"worker.{worker_id}", self._work)
        self._holder = ""
        self._news: NewsProtocol | None = None
        # The job that may end this process, as it ended others; no job is claimed until it ends.
        self._suspect: _Run | None = None
        self._waits_for_suspect = False  # of another pool of this process
        self._next_tend = 0.0
        self._done = {"completed": 0, "retried": 0, "failed": 0, "cancelled": 0, "released": 0}

    # --- for callers ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to take jobs; raises what ended it before it could."""
        await self._task.start()

    async def stop(self) -> None:
        """Take no more jobs, wait for the running ones, hand back what did not finish."""
        await self._task.stop()

    async def wait(self) -> None:
        """Return when it was stopped, or is not running; raise what ended it against its will."""
        await self._task.wait()

    async def drain(self) -> int:
        """Do every job that can be done now, and those they enqueue, then return how many.

        For tests and one-off runs, instead of ``start``; jobs that are due later stay.
        """
        self._holder = lease_token()
        before = sum(self._done.values())
        try:
            async with anyio.create_task_group() as tasks:
                self._pool.open(tasks)
                tasks.start_soon(self._keep_leases)
                while True:
                    await self._queue.tend()
                    await self._pool.claim()
                    if self._pool.held:
                        await self._pool.wait_until_idle()
                    elif self._waits_for_suspect:
                        await self._pool.wait_until_freed()
                    else:
                        break
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._hand_back()
        return sum(self._done.values()) - before

    @property
    def is_alive(self) -> bool:
        """True while it takes jobs."""
        return self._task.is_running

    @property
    def failure(self) -> BaseException | None:
        """What ended it against its will."""
        return self._task.failure

    def is_busy(self) -> bool:
        """True while a handler runs."""
        return self._pool.running > 0

    def get_stats(self) -> dict[str, Any]:
        """What it does and has done."""
        return {
            "worker_id": self.worker_id,
            "running": self.is_alive,
            "busy": self._pool.running,
            "held": len(self._pool.held),
            "concurrency": self.config.concurrency,
            "queues": list(self.config.queues),
            **self._done,
        }

    # --- the loop -------------------------------------------------------------------------------

    async def _work(self, task: BackgroundTask) -> None:
        self._holder = lease_token()
        try:
            await call(self._work_until_stopped, task)
        except Exception:
            logger.exception("the worker pool failed", worker=self.worker_id)
            raise  # health reports it, and ``start`` when it was too early
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._hand_back()

    async def _work_until_stopped(self, task: BackgroundTask) -> None:
        async with self._queue.listening("work") as self._news, anyio.create_task_group() as tasks:
            self._pool.open(tasks, task.stopping)
            tasks.start_soon(self._keep_leases)
            task.set_ready()
            await self._pool.claim_until_stopped()
            await self._pool.drain(self.config.drain_timeout)
            tasks.cancel_scope.cancel()

    def _on_outage(self, error: Exception, failures: int) -> None:
        if not isinstance(error, TaskQueueError) or is_file_lost(error):
            raise error
        logger.warning("cannot take jobs", worker=self.worker_id, error=str(error), tries=failures)

    async def _claim(self, room: int) -> int:
        if self._suspect is not None or self._waits_for_suspect:
            return room
        claims = await self._queue.claim(self._holder, room, self.config.queues, self.config.lease)
        suspects: list[_Run] = []
        for claim in claims:
            run = _Run(claim)
            if _is_suspect(claim):
                suspects.append(run)
            else:
                self._pool.add(run)
        if suspects:
            await self._admit_one(suspects)
        return len(claims)

    async def _admit_one(self, suspects: list[_Run]) -> None:
        """Keep the first suspect and hand back the others: what is not held is not counted."""
        for run in suspects:
            self._pool.hold(run)
        self._waits_for_suspect = not suspect_lock.try_acquire(self._suspect_ended)
        if not self._waits_for_suspect:
            self._suspect = suspects.pop(0)
        await self._release(suspects)
        if self._suspect is not None:
            self._pool.add(self._suspect, first=True)

    def _suspect_ended(self) -> None:
        """That of another pool."""
        self._waits_for_suspect = False
        self._pool.wake()

    def _end_suspect(self) -> None:
        if self._suspect is not None:
            self._suspect = None
            suspect_lock.release()

    async def _wait_for_work(self) -> None:
        """Wait until there may be work; look for due jobs and dead workers on the way."""
        assert self._news is not None, "it listens"
        left = self._next_tend - clock.monotonic()
        if left <= 0:
            due = await self._queue.tend()
            # A job that is due in a moment is waited for, however short that is.
            left = _TEND_AT_LEAST_SECONDS if due is None else max(due, 0.001)
            left = min(left, _TEND_AT_LEAST_SECONDS)
            self._next_tend = clock.monotonic() + left
        if await self._news.wait(at_most=left):
            # The news may be a job with a time: ask for the next one again, soon.
            self._next_tend = min(self._next_tend, clock.monotonic() + _TEND_SECONDS)

    async def _keep_leases(self) -> None:
        """Renew all leases at once; notice those that are lost and jobs to cancel."""
        lease = self.config.lease
        async with self._queue.listening("cancel") as news:
            while True:
                await news.wait(at_most=lease / RENEWALS_PER_LEASE)
                runs = list(self._pool.held.values())
                if not runs:
                    continue
                try:
                    states = await self._queue.extend([run.claim for run in runs], lease)
                except TaskQueueError as error:
                    if is_file_lost(error):
                        raise
                    logger.warning("cannot renew leases", worker=self.worker_id, error=str(error))
                    continue
                for run, state in zip(runs, states, strict=True):
                    self._note(run, state)
                self._emitter.gauge("running", self._pool.running, worker=self.worker_id)

    def _note(self, run: _Run, state: LeaseState) -> None:
        if run.key not in self._pool.held:
            return
        if state is LeaseState.LOST:
            run.stop(StopReason.LOST)
        elif state is LeaseState.CANCEL_REQUESTED:
            run.stop(StopReason.CANCELLED)

    async def _release(self, runs: Sequence[_Run]) -> None:
        """Hand back what has not begun."""
        async with anyio.create_task_group() as tasks:  # they are written together
            for run in runs:
                end = JobEnd(claim=run.claim, kind=EndKind.RELEASED)
                tasks.start_soon(self._report, run, end)
        if self._suspect in runs:
            self._end_suspect()

    async def _hand_back(self) -> None:
        """After a cancellation or a death: what is still held can run elsewhere at once."""
        left = self._pool.clear()
        self._end_suspect()
        if left:
            ends = [JobEnd(claim=run.claim, kind=EndKind.RELEASED) for run in left]
            try:
                await self._queue.finish(ends)
            except TaskQueueError as error:
                logger.warning(
                    "jobs were not handed back and are handed out again when their leases end",
                    worker=self.worker_id,
                    jobs=len(left),
                    error=str(error),
                )

    # --- one job --------------------------------------------------------------------------------

    async def _perform(self, run: _Run) -> None:
        try:
            if run.stop_reason is not None:
                end = self._unsuccessful(run, None, None)
            elif self._tracer is None:
                end = await self._try(run)
            else:
                end = await self._trace(run, self._tracer)
            await self._report(run, end)
        finally:
            if run is self._suspect:
                self._end_suspect()

    async def _trace(self, run: _Run, tracer: TracerProtocol) -> JobEnd:
        job = run.claim.job
        parent = tracer.extract_context(job.trace_context) if job.trace_context else None
        facts = {
            "job.id": job.id,
            "job.name": job.name,
            "job.queue": job.queue,
            "job.attempt": job.retry_count + 1,
        }
        with tracer.start_span(f"tasks.run {job.name}", facts, parent) as span:
            end = await self._try(run)
            span.set_attribute("job.end", end.kind.value)
            if run.error is not None:
                span.record_exception(run.error)
                span.set_status("error", end.error)
        return end

    async def _try(self, run: _Run) -> JobEnd:
        job, began = run.claim.job, clock.monotonic()
        context = run.context = JobContext(
            job,
            attempt=job.retry_count + 1,
            heartbeat=lambda: self._beat(run),
            progress=self._progress,
        )
        enter(context)
        if self._emitter.has_subscribers(JobStarted):
            await self._emitter.publish(JobStarted, partial(_build_started, run, self.worker_id))
        value: Any = None
        error: Exception | None = None
        handler: Handler | None = None
        try:
            with run.scope:
                if job.timeout is not None:
                    run.scope.deadline = anyio.current_time() + job.timeout
                try:
                    handler = self._handler(job.name)
                    value = await call(
                        partial(handler, *job.args, **job.kwargs), host=self._pool.host
                    )
                except Exception as raised:  # noqa: BLE001 - the boundary to code of others
                    error = raised
            is_cancelled = run.scope.cancelled_caught
        except asyncio.CancelledError as raised:
            # Where a handler cancels its own task as the scope is cancelled, the scope lets its
            # cancellation through: it must not end the pool.
            await take_back_cancellation(self._pool.host)
            if as_failure(raised) is None:
                raise
            is_cancelled = True
        run.seconds, run.error = clock.monotonic() - began, error
        if is_cancelled and run.stop_reason is None:
            error = run.error = JobTimeoutError(
                f"job {job.id} took longer than {job.timeout:g} s",
                details={"job_id": job.id, "name": job.name, "timeout": job.timeout},
            )
        if is_cancelled or error is not None:
            return self._unsuccessful(run, handler, error)
        return JobEnd(claim=run.claim, kind=EndKind.COMPLETED, value=value)

    def _handler(self, name: str) -> Handler:
        """The registry may hold plain functions: they are looked at once."""
        handler = found(self._handlers, name)
        if isinstance(handler, Handler):
            return handler
        known = self._made.get(name)
        if known is None or known.definition.function is not handler:
            known = self._made[name] = Handler(definition_of(handler, name))
        return known

    def _unsuccessful(self, run: _Run, handler: Handler | None, error: Exception | None) -> JobEnd:
        claim, job = run.claim, run.claim.job
        if run.stop_reason is StopReason.CANCELLED:
            return JobEnd(claim=claim, kind=EndKind.CANCELLED, reason="asked")
        if run.stop_reason is not None:  # stopped or lost: nothing can be said about the job itself
            return JobEnd(claim=claim, kind=EndKind.RELEASED)
        assert error is not None
        text = _text(error)
        retry = JobRetry() if handler is None else handler.definition.retry
        attempt = job.retry_count + 1
        if not retry.wants(error):
            return JobEnd(claim=claim, kind=EndKind.FAILED, error=text, reason="aborted")
        if attempt > job.max_retries:
            return JobEnd(claim=claim, kind=EndKind.FAILED, error=text, reason="exhausted")
        if not isinstance(error, NoHandlerError):
            # The last failure is logged with its traceback, when it is written.
            logger.info("job will be tried again", job=job.id, handler=job.name, error=text)
        return JobEnd(claim=claim, kind=EndKind.RETRY, error=text, delay=retry.delay(attempt))

    async def _report(self, run: _Run, end: JobEnd) -> None:
        """Write the end; while the queue fails, as long as the lease may still be ours."""
        run.is_reported = True
        give_up = clock.monotonic() + self.config.lease
        tries = 0
        while True:
            try:
                accepted = await self._reports.add(end)
                break
            except TaskQueueError as error:
                tries += 1
                if clock.monotonic() >= give_up:
                    logger.error(  # noqa: TRY400 - the trace is of no use here
                        "the end of a job could not be written; it will run again",
                        job=run.claim.job.id,
                        error=str(error),
                    )
                    self._pool.forget(run)
                    return
                await anyio.sleep(_AGAIN.delay(tries))
        self._pool.forget(run)
        if accepted:
            await self._tell(run, end)
        else:
            self._emitter.count("lost", name=run.claim.job.name, queue=run.claim.job.queue)
            logger.warning(
                "the lease of a job was lost; what it did here does not count",
                job=run.claim.job.id,
                handler=run.claim.job.name,
            )

    async def _tell(self, run: _Run, end: JobEnd) -> None:
        job, kind = run.claim.job, end.kind
        self._done[_COUNTED[kind]] += 1
        if kind is EndKind.RETRY:
            self._next_tend = min(self._next_tend, clock.monotonic() + end.delay)
        if kind is EndKind.RELEASED:
            return
        if self._emitter.metrics is not None:
            self._emitter.count("finished", name=job.name, queue=job.queue, status=_COUNTED[kind])
            self._emitter.observe("seconds", run.seconds, name=job.name, queue=job.queue)
        if kind is EndKind.FAILED:
            logger.error(
                "job failed permanently",
                job=job.id,
                handler=job.name,
                reason=end.reason,
                error=end.error,
                exc_info=run.error,
            )
        if self._emitter.has_subscribers(_EVENTS[kind]):
            await self._emitter.publish(_EVENTS[kind], partial(_build_ended, run, end))
        if run.context is not None and run.context.has_reported and kind is not EndKind.RETRY:
            await self._end_progress(job.id, end)

    async def _end_progress(self, job_id: str, end: JobEnd) -> None:
        if self._progress is None:
            return
        try:
            if end.kind is EndKind.COMPLETED:
                await self._progress.complete(job_id)
            else:
                await self._progress.fail(job_id, end.error or end.kind.value)
        except TaskQueueError as error:
            # The job has ended, which is where readers look too.
            logger.warning("the end of progress was not written", job=job_id, error=str(error))

    async def _beat(self, run: _Run) -> bool:
        [state] = await self._queue.extend([run.claim], self.config.lease)
        self._note(run, state)
        return state is not LeaseState.LOST


class _Run(LeasedRun):
    """A claimed job on its way through the pool."""

    __slots__ = ("claim", "context", "error", "seconds")

    def __init__(self, claim: ClaimedJob) -> None:
        super().__init__((claim.position, claim.fence))
        self.claim = claim
        self.context: JobContext | None = None
        self.seconds = 0.0
        # what the handler raised
        self.error: Exception | None = None

    def stop(self, reason: StopReason) -> None:
        """Also tell the handler, which may ask."""
        super().stop(reason)
        if self.context is not None:
            self.context.cancelled = self.stop_reason is not None


def _is_suspect(claim: ClaimedJob) -> bool:
    """One loss may have any cause; who was lost twice, or has no more left, may be the cause."""
    job = claim.job
    return job.lost_count > 0 and job.lost_count >= min(2, job.max_deliveries - 1)


_COUNTED = {
    EndKind.COMPLETED: "completed",
    EndKind.RETRY: "retried",
    EndKind.FAILED: "failed",
    EndKind.CANCELLED: "cancelled",
    EndKind.RELEASED: "released",
}


_EVENTS: dict[EndKind, type[JobEvent]] = {
    EndKind.COMPLETED: JobCompleted,
    EndKind.RETRY: JobRetried,
    EndKind.FAILED: JobFailed,
    EndKind.CANCELLED: JobCancelled,
}


def _build_ended(run: _Run, end: JobEnd) -> JobEvent:
    """The event of ``_EVENTS`` for this end."""
    job = run.claim.job
    facts: dict[str, Any] = {"job_id": job.id, "name": job.name, "queue": job.queue}
    if end.kind is EndKind.COMPLETED:
        return JobCompleted(**facts, seconds=run.seconds)
    if end.kind is EndKind.RETRY:
        attempt = job.retry_count + 1
        return JobRetried(**facts, attempt=attempt, delay=end.delay, error=end.error)
    if end.kind is EndKind.CANCELLED:
        return JobCancelled(**facts, reason=end.reason)
    return JobFailed(**facts, reason=end.reason, error=end.error)


def _build_started(run: _Run, worker_id: str) -> JobStarted:
    job = run.claim.job
    return JobStarted(
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        worker_id=worker_id,
        attempt=job.retry_count + 1,
    )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_LENGTH]
