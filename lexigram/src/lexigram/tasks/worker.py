"""A pool of workers: takes jobs, calls their handlers, reports how they ended."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Coroutine
from enum import Enum, auto
from typing import Any

import anyio
from anyio.abc import TaskGroup

from lexigram import clock
from lexigram.concurrency import as_failure
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
from lexigram.observability import get_logger
from lexigram.sql.leasing.backoff import Backoff
from lexigram.sql.leasing.coalescer import Coalescer
from lexigram.sql.leasing.token import lease_token
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
from lexigram.tasks.stepping import stepped
from lexigram.tasks.telling import Teller

logger = get_logger(__name__)

_BEATS = 5  # heartbeats per lease: some may fail before it is lost
_BATCH = 500  # ends in one transaction
# Looking for due jobs and dead workers costs a transaction: after news not more often than this.
_TEND_SECONDS = 0.2
# Nor less often, even when nothing is due: the lease of a worker that died may be over.
_TEND_AT_LEAST_SECONDS = 5.0
_CLEANUP_SECONDS = 5.0  # for a handler that was told to stop, and for the last report
_ERROR_LENGTH = 10_000  # characters of an error that are kept
_AGAIN = Backoff(first=0.05, cap=5.0)


class TaskWorker:
    """Implements TaskWorkerProtocol, on any TaskQueueProtocol; best on one that leases.

    ``handler_registry`` may grow while it runs. Tasks are made when they are needed, up to
    ``concurrency``, and do one job after the other. A job has a context of its own: what its
    handler sets in context variables ends with it. Its report is written together with those
    of jobs that end at the same moment.
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
        self._teller = Teller(metrics, events)
        self._tracer = tracer
        self._reports = Coalescer[JobEnd, bool](self._queue.finish, limit=_BATCH)
        self._holder = ""
        self._held: dict[tuple[int, int], _Run] = {}
        # claimed, but no slot is free yet
        self._waiting: deque[_Run] = deque()
        self._running = 0
        # tasks without a job, the last one to rest first
        self._resting: list[asyncio.Future[_Run]] = []
        self._freed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        # Around every wait of the claiming loop: ``stop`` cancels it.
        self._pause = anyio.CancelScope()
        self._next_tend = 0.0
        self._owner: asyncio.Task[None] | None = None
        # the task whose group the tasks of jobs are in
        self._host: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None
        self._done = {"completed": 0, "retried": 0, "failed": 0, "cancelled": 0, "released": 0}

    # --- for callers ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to take jobs."""
        if self.is_alive:
            return
        self._stopping, self._failure = False, None
        started = asyncio.Event()
        # An empty context: jobs must not inherit a transaction or a job of whoever starts us.
        self._owner = asyncio.create_task(
            self._work(started), name=f"worker.{self.worker_id}", context=contextvars.Context()
        )
        waiting = asyncio.create_task(started.wait())
        try:
            await asyncio.wait({waiting, self._owner}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not started.is_set() and self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Take no more jobs, wait for the running ones, hand back what did not finish."""
        owner = self._owner
        if owner is None:
            return
        self._stopping = True
        self._pause.cancel()
        try:
            await asyncio.wait({owner})
        except asyncio.CancelledError:
            owner.cancel()
            raise
        self._owner = None

    async def wait(self) -> None:
        """Return when it was stopped, or is not running; raise what ended it against its will."""
        owner = self._owner
        if owner is not None:
            await asyncio.wait({owner})
        if self._failure is not None:
            raise self._failure

    async def drain(self) -> int:
        """Do every job that can be done now, and those they enqueue, then return how many.

        For tests and one-off runs, instead of ``start``; jobs that are due later stay.
        """
        self._holder, self._host = lease_token(), asyncio.current_task()
        before = sum(self._done.values())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_leases)
                while True:
                    await self._queue.tend()
                    await self._take(tasks)
                    if not self._held:
                        break
                    await self._idle.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._hand_back()
        return sum(self._done.values()) - before

    @property
    def is_alive(self) -> bool:
        """True while it takes jobs."""
        return self._owner is not None and not self._owner.done()

    @property
    def failure(self) -> BaseException | None:
        """What ended it against its will."""
        return self._failure

    def is_busy(self) -> bool:
        """True while a handler runs."""
        return self._running > 0

    def get_stats(self) -> dict[str, Any]:
        """What it does and has done."""
        return {
            "worker_id": self.worker_id,
            "running": self.is_alive,
            "busy": self._running,
            "held": len(self._held),
            "concurrency": self.config.concurrency,
            "queues": list(self.config.queues),
            **self._done,
        }

    # --- the loops ------------------------------------------------------------------------------

    async def _work(self, started: asyncio.Event) -> None:
        self._holder, self._host = lease_token(), asyncio.current_task()
        try:
            async with (
                self._queue.listening("work") as news,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._keep_leases)
                started.set()
                await self._claim_until_stopped(news, tasks)
                await self._let_running_end()
                tasks.cancel_scope.cancel()
        except Exception as error:
            self._failure = error  # health tells, and ``start`` when it was too early
            logger.exception("the worker pool died", worker=self.worker_id)
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._hand_back()

    async def _claim_until_stopped(self, news: NewsProtocol, tasks: TaskGroup) -> None:
        failures = 0
        while not self._stopping:
            try:
                full = await self._take(tasks)
                await self._paused(self._freed.wait() if full else self._work_comes(news))
                failures = 0
            except TaskQueueError as error:
                failures += 1
                logger.warning(
                    "cannot take jobs", worker=self.worker_id, error=str(error), tries=failures
                )
                await self._paused(anyio.sleep(_AGAIN.delay(failures)))

    async def _paused(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Wait, but not longer than until ``stop``."""
        with anyio.CancelScope() as self._pause:
            if self._stopping:
                self._pause.cancel()
            await waiting
        self._freed.clear()

    async def _take(self, tasks: TaskGroup) -> bool:
        """Claim as many as there is room for; True when the room is used up."""
        room = self.config.concurrency + self.config.prefetch - len(self._held)
        if room <= 0:
            return True
        claims = await self._queue.claim(self._holder, room, self.config.queues, self.config.lease)
        for claim in claims:
            run = _Run(claim)
            self._held[run.key] = run
            self._waiting.append(run)
        self._start_waiting(tasks)
        return len(claims) >= room

    def _start_waiting(self, tasks: TaskGroup) -> None:
        while self._waiting and self._running < self.config.concurrency:
            self._running += 1
            self._idle.clear()
            run = self._waiting.popleft()
            if self._resting:
                self._resting.pop().set_result(run)
            else:
                tasks.start_soon(self._perform_many, run)

    async def _work_comes(self, news: NewsProtocol) -> None:
        """Wait until there may be work; look for due jobs and dead workers on the way."""
        left = self._next_tend - clock.monotonic()
        if left <= 0:
            due = await self._queue.tend()
            # A job that is due in a moment is waited for, however short that is.
            left = _TEND_AT_LEAST_SECONDS if due is None else max(due, 0.001)
            left = min(left, _TEND_AT_LEAST_SECONDS)
            self._next_tend = clock.monotonic() + left
        if await news.wait(at_most=left):
            # The news may be a job with a time: ask for the next one again, soon.
            self._next_tend = min(self._next_tend, clock.monotonic() + _TEND_SECONDS)

    async def _keep_leases(self) -> None:
        """Renew all leases at once; notice those that are lost and jobs to cancel."""
        lease = self.config.lease
        async with self._queue.listening("cancel") as news:
            while True:
                await news.wait(at_most=lease / _BEATS)
                runs = list(self._held.values())
                if not runs:
                    continue
                try:
                    states = await self._queue.extend([run.claim for run in runs], lease)
                except TaskQueueError as error:
                    logger.warning("cannot renew leases", worker=self.worker_id, error=str(error))
                    continue
                for run, state in zip(runs, states, strict=True):
                    self._note(run, state)
                self._teller.gauge("running", self._running, worker=self.worker_id)

    def _note(self, run: _Run, state: LeaseState) -> None:
        if run.key not in self._held or run.is_reported:
            return
        if state is LeaseState.LOST:
            run.stop(_Why.LOST)
        elif state is LeaseState.CANCEL_REQUESTED:
            run.stop(_Why.ASKED)

    async def _let_running_end(self) -> None:
        """The graceful part of ``stop``: first wait, then interrupt."""
        for run in self._waiting:
            run.stop(_Why.STOPPED)
        unstarted = list(self._waiting)
        self._waiting.clear()
        for run in unstarted:
            await self._report(run, JobEnd(claim=run.claim, kind=EndKind.RELEASED))
        with anyio.move_on_after(self.config.drain_timeout):
            await self._idle.wait()
        for run in list(self._held.values()):
            run.stop(_Why.STOPPED)
        await self._idle.wait()

    async def _hand_back(self) -> None:
        """After a cancellation or a death: what is still held can run elsewhere at once."""
        left, self._held, self._running = list(self._held.values()), {}, 0
        self._waiting.clear()
        self._idle.set()
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

    async def _perform_many(self, run: _Run) -> None:
        """One of up to ``concurrency`` tasks; it ends with the task group.

        A task for every job took a quarter more CPU, in memory and on PostgreSQL. What was not
        reported stays held: ``_hand_back`` gives it back.
        """
        while True:
            try:
                await stepped(contextvars.copy_context(), self._perform(run))
            finally:
                self._running -= 1
                self._freed.set()
                if not self._running and not self._waiting:
                    self._idle.set()
            if self._waiting:
                self._running += 1
                run = self._waiting.popleft()
            else:
                run = await self._rest()

    async def _rest(self) -> _Run:
        called: asyncio.Future[_Run] = asyncio.get_running_loop().create_future()
        self._resting.append(called)
        try:
            return await called
        except asyncio.CancelledError:
            if called in self._resting:  # else it got a run, which is handed back
                self._resting.remove(called)
            raise

    async def _perform(self, run: _Run) -> None:
        if run.why is not None:
            end = self._unsuccessful(run, None, None)
        elif self._tracer is None:
            end = await self._tried(run)
        else:
            end = await self._traced(run, self._tracer)
        await self._report(run, end)

    async def _traced(self, run: _Run, tracer: TracerProtocol) -> JobEnd:
        job = run.claim.job
        parent = tracer.extract_context(job.trace_context) if job.trace_context else None
        facts = {
            "job.id": job.id,
            "job.name": job.name,
            "job.queue": job.queue,
            "job.attempt": job.retry_count + 1,
        }
        with tracer.start_span(f"tasks.run {job.name}", facts, parent) as span:
            end = await self._tried(run)
            span.set_attribute("job.end", end.kind.value)
            if run.error is not None:
                span.record_exception(run.error)
                span.set_status("error", end.error)
        return end

    async def _tried(self, run: _Run) -> JobEnd:
        job, began = run.claim.job, clock.monotonic()
        context = run.context = JobContext(
            job,
            attempt=job.retry_count + 1,
            heartbeat=lambda: self._beat(run),
            progress=self._progress,
        )
        enter(context)
        if self._teller.reaches(JobStarted):
            await self._teller.tell(_started(run, self.worker_id))
        value: Any = None
        error: Exception | None = None
        handler: Handler | None = None
        with run.scope:
            if job.timeout is not None:
                run.scope.deadline = anyio.current_time() + job.timeout
            try:
                handler = self._handler(job.name)
                value = await handler(*job.args, **job.kwargs)
            except BaseException as raised:
                # The boundary to code of others.
                if isinstance(raised, asyncio.CancelledError) and self._is_being_cancelled():
                    raise
                error = as_failure(raised)
                if error is None:
                    raise
        run.seconds, run.error = clock.monotonic() - began, error
        if run.scope.cancelled_caught and not run.is_stopped:
            error = run.error = JobTimeoutError(
                f"job {job.id} took longer than {job.timeout:g} s",
                details={"job_id": job.id, "name": job.name, "timeout": job.timeout},
            )
        if run.scope.cancelled_caught or error is not None:
            return self._unsuccessful(run, handler, error)
        return JobEnd(claim=run.claim, kind=EndKind.COMPLETED, value=value)

    def _is_being_cancelled(self) -> bool:
        """Whether a scope around this task, or the task of the whole pool, is cancelled."""
        if anyio.current_effective_deadline() == -math.inf:
            return True
        if self._host is not None and self._host.cancelling():
            return True
        task = asyncio.current_task()
        assert task is not None
        while task.cancelling():  # by its own handler: the next job must not see it
            task.uncancel()
        return False

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
        if run.why is _Why.ASKED:
            return JobEnd(claim=claim, kind=EndKind.CANCELLED, reason="asked")
        if run.why is not None:  # stopped or lost: nothing can be said about the job itself
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
            logger.warning(
                "job will be tried again",
                job=job.id,
                handler=job.name,
                error=text,
                exc_info=error,
            )
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
                    self._held.pop(run.key, None)
                    return
                await anyio.sleep(_AGAIN.delay(tries))
        self._held.pop(run.key, None)
        self._freed.set()
        if accepted:
            await self._tell(run, end)
        else:
            self._teller.count("lost", name=run.claim.job.name, queue=run.claim.job.queue)
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
        if self._teller.measures:
            self._teller.count("finished", name=job.name, queue=job.queue, status=_COUNTED[kind])
            self._teller.observe("seconds", run.seconds, name=job.name, queue=job.queue)
        if kind is EndKind.FAILED:
            logger.error(
                "job failed for good",
                job=job.id,
                handler=job.name,
                reason=end.reason,
                error=end.error,
                exc_info=run.error,
            )
        if self._teller.reaches(_EVENTS[kind]):
            await self._teller.tell(_ended(run, end))
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


class _Why(Enum):
    """Why a handler was told to stop."""

    ASKED = auto()  # somebody cancelled the job
    LOST = auto()  # the lease is over
    STOPPED = auto()  # the pool stops


class _Run:
    """A claimed job on its way through the pool."""

    __slots__ = ("claim", "context", "error", "is_reported", "key", "scope", "seconds", "why")

    def __init__(self, claim: ClaimedJob) -> None:
        self.claim = claim
        self.key = (claim.position, claim.fence)
        self.scope = anyio.CancelScope()
        self.why: _Why | None = None
        self.context: JobContext | None = None
        self.is_reported = False
        self.seconds = 0.0
        # what the handler raised
        self.error: Exception | None = None

    @property
    def is_stopped(self) -> bool:
        """True when it was told to stop; that happens while its handler is awaited."""
        return self.why is not None

    def stop(self, why: _Why) -> None:
        """Cancel the handler; the first reason counts."""
        if self.why is None:
            self.why = why
            if self.context is not None:
                self.context.cancelled = True
            self.scope.cancel()


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


def _ended(run: _Run, end: JobEnd) -> JobEvent:
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


def _started(run: _Run, worker_id: str) -> JobStarted:
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
