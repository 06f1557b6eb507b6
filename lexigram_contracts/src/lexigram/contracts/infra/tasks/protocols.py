"""Background jobs: the queue, those who work on it, and what they report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.core.result import Result
    from lexigram.contracts.infra.tasks.errors import TaskQueueError
    from lexigram.contracts.infra.tasks.types import (
        ClaimedJob,
        DeadLetter,
        IdempotencyResult,
        Job,
        JobEnd,
        JobResult,
        JobStatus,
        LeaseState,
        ProgressSnapshot,
    )


@runtime_checkable
class JobProtocol(Protocol):
    """One piece of work. A snapshot: it does not change when the queue's record does."""

    @property
    def id(self) -> str:
        """Unique in the queue; stays the same over retries."""
        ...

    @property
    def name(self) -> str:
        """Which handler to call."""
        ...

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments of the handler."""
        ...

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Keyword arguments of the handler."""
        ...

    @property
    def priority(self) -> int:
        """Higher is more urgent."""
        ...

    @property
    def status(self) -> JobStatus:
        """Where the job was when this was read."""
        ...

    @property
    def max_retries(self) -> int:
        """Retries after the first attempt."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds one attempt may take; None is no limit."""
        ...

    @property
    def correlation_id(self) -> str | None:
        """Common to everything that one outside request caused."""
        ...

    @property
    def causation_id(self) -> str | None:
        """The id of what directly caused this job."""
        ...


@runtime_checkable
class TaskQueueProtocol(Protocol):
    """Keeps jobs until they are done.

    Guaranteed: an accepted job is handed out until it is acknowledged, so a job may run more
    than once (at least once). Order: higher priority first, then first in first out, except
    that retried jobs come later. Durable as far as the backend is. Methods raise
    TaskQueueError when the backend fails, except where they return a Result.
    """

    async def enqueue(self, task: JobProtocol | Mapping[str, Any]) -> Result[str, TaskQueueError]:
        """Accept a job, or a mapping with ``name``, ``args``, ``kwargs``, ``priority``; its id.

        Once Ok the job is as safe as the backend makes it. A second call with a mapping makes
        a second job; with a job whose id is known it is ``Err``. Optional keys of a mapping are
        the fields of ``Job`` that the caller decides, and ``delay`` in seconds; an unknown key
        is ``Err``. With an ``idempotency_key`` that is known, the id of the first job; with a
        ``unique_key`` that is taken, ``Err(JobNotUniqueError)``; with a dependency that is not
        known, ``Err(UnknownJobError)``, so that a circle is impossible.

        A backend on a database joins the transaction the calling task has open there: the job
        exists if and only if that commits, and is handed out after the commit.
        """
        ...

    async def dequeue(self) -> JobProtocol | None:
        """Hand out the next job for a limited time, or None at once when there is none.

        No two callers hold one job at a time; one that is neither acknowledged nor kept alive
        is handed out again.
        """
        ...

    async def ack(self, task_id: str) -> None:
        """The job is done; it is not handed out again. Unknown or done already: nothing."""
        ...

    async def nack(self, task_id: str, requeue: bool = True) -> None:
        """The job failed: hand it out again, or with ``requeue=False`` give it up as FAILED.

        Unknown or done already: nothing.
        """
        ...

    async def get_job(self, job_id: str) -> JobProtocol | None:
        """The job as it is now; None when unknown or no longer kept."""
        ...

    async def delete_job(self, job_id: str) -> bool:
        """Forget a job that is not running; False when unknown or running."""
        ...

    async def count(self, queue_name: str, status: JobStatus | None = None) -> int:
        """Jobs of one queue, in one status or all; may already be stale."""
        ...

    async def get_task_count(self) -> int:
        """Jobs that wait to be handed out, in all queues; may already be stale."""
        ...

    async def clear(self) -> None:
        """Forget every job that waits; running ones finish."""
        ...

    async def close(self) -> None:
        """Let go of connections; jobs stay. A second call does nothing."""
        ...


@runtime_checkable
class JobControlProtocol(Protocol):
    """What a task queue may offer beyond keeping jobs: results, cancelling, lists."""

    async def enqueue_many(
        self, tasks: Sequence[JobProtocol | Mapping[str, Any]]
    ) -> Sequence[Result[str, TaskQueueError]]:
        """Accept several at once; one answer each, in order.

        What is refused does not keep the others out. A job may depend on earlier ones.
        """
        ...

    async def cancel(self, job_id: str) -> bool:
        """Cancel a job: at once while it waits; a running one is requested to stop.

        True when it was cancelled or requested to stop; False when unknown or ended already. A
        running job that ends in the meantime keeps its own end.
        """
        ...

    async def get_result(self, job_id: str) -> JobResult | None:
        """Where the job is and what it returned; None when unknown or no longer kept."""
        ...

    async def wait(self, job_id: str, timeout: float | None = None) -> JobResult:
        """The same once the job has ended. Raises UnknownJobError, and TimeoutError."""
        ...

    async def list_jobs(
        self,
        queue_name: str | None = None,
        status: JobStatus | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Job]:
        """Jobs, latest first. Pages shift when jobs come in between."""
        ...

    async def retry_job(self, job_id: str) -> bool:
        """Hand a FAILED or CANCELLED job out again, all attempts anew; False for any other.

        False too while another job has its unique key.
        """
        ...

    async def purge(self, older_than: float) -> int:
        """Forget COMPLETED and CANCELLED jobs that ended so many seconds ago; how many.

        FAILED ones are dead letters and stay until they are retried or purged as such.
        """
        ...


@runtime_checkable
class JobLeasingProtocol(Protocol):
    """How a pool of workers takes many jobs at a time and reports on them.

    Guaranteed: no two holders have one job at a time by the queue's clock, and what the holder
    of a lost lease reports changes nothing.
    """

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str] = (), lease: float = 30.0
    ) -> Sequence[ClaimedJob]:
        """Up to ``limit`` jobs for ``lease`` seconds, in the order of the queue; no waiting.

        ``queues`` empty: of all queues. Several: in turn, so that none starves. ``holder`` is
        unique to the caller.
        """
        ...

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        """Start the leases anew; one answer each, in order."""
        ...

    async def finish(self, ends: Sequence[JobEnd]) -> Sequence[bool]:
        """Report how attempts ended; False for those whose lease was lost.

        Jobs that waited for these are handed out or cancelled in the same step.
        """
        ...

    async def tend(self) -> float | None:
        """Let jobs whose time has come be handed out, and those whose holder died.

        Every worker calls it regularly; together they do the work once. Returns the seconds
        until the next job is due by time, or None.
        """
        ...

    def listening(
        self, to: Literal["work", "cancel", "done"]
    ) -> AbstractAsyncContextManager[NewsProtocol]:
        """Be woken when there may be work, a running job to cancel, or a job that ended."""
        ...


class NewsProtocol(Protocol):
    """Wakes one listener; says that there may be something, never what."""

    async def wait(self, at_most: float | None = None) -> bool:
        """True when woken; False when it is time to look anyway."""
        ...


@runtime_checkable
class TaskWorkerProtocol(Protocol):
    """Takes jobs from a queue and calls the handlers registered for their names."""

    async def start(self) -> None:
        """Begin to take jobs; returns once it does. A second call while running does nothing."""
        ...

    async def stop(self) -> None:
        """Take no more jobs, wait for the running ones, hand back what did not finish.

        A second call, or one before start, does nothing.
        """
        ...


class TaskWorkerFactoryProtocol(Protocol):
    """What is bound as ``"TaskWorkerClass"``: a class or function that makes a worker."""

    def __call__(
        self, worker_id: str, queue: TaskQueueProtocol, handler_registry: dict[str, Any], /
    ) -> TaskWorkerProtocol:
        """A worker that is not started yet."""
        ...


@runtime_checkable
class TaskExecutorProtocol(Protocol):
    """Finds the handler of a job and calls it once; knows nothing of queues and retries."""

    async def execute(self, task: JobProtocol) -> Any:
        """Call the handler and return its result; its exception reaches the caller.

        Raises TaskQueueError when no handler has the job's name.
        """
        ...

    def register_handler(self, task_name: str, handler: Callable[..., Any]) -> None:
        """Let the handler, sync or async, do the jobs of that name; replaces the one before."""
        ...

    def get_handler(self, task_name: str) -> Callable[..., Any] | None:
        """The handler, or None."""
        ...


@runtime_checkable
class TaskManagerProtocol(Protocol):
    """Owns coroutines that run beside the caller in this process; nothing is durable."""

    @property
    def pending_count(self) -> int:
        """How many have not finished."""
        ...

    def track(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Run it in the background; an exception is logged. Refused after shutdown."""
        ...

    def track_named(self, name: str, coro: Coroutine[Any, Any, Any]) -> None:
        """The same under a name for logs; names need not be unique."""
        ...

    async def shutdown(self, timeout: float = 30.0) -> None:
        """Wait for all, then cancel the rest; a second call does nothing."""
        ...


@runtime_checkable
class DLQProtocol(Protocol):
    """Dead letters of the bus, of jobs and of workers.

    One letter per message id. A durable store keeps every letter until it is retried or
    purged; a bounded one drops the oldest and counts it.
    """

    async def add(
        self,
        message_id: str,
        payload: Any,
        reason: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a letter; a second call with the id replaces it, so a crash makes no double."""
        ...

    async def get(self, message_id: str) -> DeadLetter | None:
        """The letter, or None."""
        ...

    async def retry(self, message_id: str) -> bool:
        """Send the payload where it came from and drop the letter; False when unknown.

        Sent before dropped: a crash between the two delivers it twice rather than never.
        Raises what sending raises; the letter then stays.
        """
        ...

    async def purge(self, message_id: str) -> bool:
        """Delete the dead letter; False when unknown."""
        ...

    async def clear(self) -> int:
        """Delete all dead letters; returns their number."""
        ...

    async def size(self) -> int:
        """Number of dead letters; may already be stale."""
        ...

    async def list_failed(self, limit: int = 100, offset: int = 0) -> Sequence[DeadLetter]:
        """Dead letters, latest first. Pages shift when entries come and go in between."""
        ...


@runtime_checkable
class IdempotencyManagerProtocol(Protocol):
    """Recognises a task that was submitted before."""

    def generate_key(
        self, task_name: str, params: Mapping[str, Any], client_key: str | None = None
    ) -> str:
        """A key for the task: from ``client_key`` when given, else from name and parameters.

        The same input gives the same key in every process; the order of keys in ``params``
        does not matter.
        """
        ...

    async def check_duplicate(self, key: str) -> IdempotencyResult | None:
        """What is known about the key, or None. Says nothing about a concurrent submission."""
        ...

    async def record_submission(
        self, key: str, task_id: str, task_name: str, params: Mapping[str, Any]
    ) -> bool:
        """Claim the key: True for exactly one of all concurrent callers, False for the rest."""
        ...

    async def record_completion(self, key: str, result: Any) -> None:
        """Keep the result for later duplicates; a second call replaces it."""
        ...


@runtime_checkable
class ProgressTrackerProtocol(Protocol):
    """How far tasks are. Progress never goes back, and nothing changes after the end."""

    async def update(self, task_id: str, current: int, total: int, message: str = "") -> None:
        """Report; a lower ``current`` than before, or a call after the end, changes nothing."""
        ...

    async def complete(self, task_id: str, result: str = "") -> None:
        """End well; only the first end counts."""
        ...

    async def fail(self, task_id: str, error: str) -> None:
        """End badly; only the first end counts."""
        ...

    async def get(self, task_id: str) -> ProgressSnapshot | None:
        """The latest report, or None when unknown or no longer kept."""
        ...

    def subscribe(self, task_id: str) -> AsyncIterator[ProgressSnapshot]:
        """The latest report, then each new one, until the end; a slow reader may miss some.

        The last one, which is final, is never missed. Several readers are independent.
        """
        ...
