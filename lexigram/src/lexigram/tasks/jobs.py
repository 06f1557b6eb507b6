"""The front door for application code: submit jobs by their handler, watch and wait for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, frozen

from lexigram.contracts.core.result import Err, Result
from lexigram.contracts.infra.tasks.errors import JobEndedError, TaskQueueError
from lexigram.contracts.infra.tasks.types import (
    DependencyPolicy,
    Job,
    JobResult,
    JobStatus,
    ProgressSnapshot,
)
from lexigram.tasks.handlers import definition_of
from lexigram.tasks.progress import ProgressTracker
from lexigram.tasks.queue import TaskQueue


@frozen(kw_only=True)
class JobOptions:
    """What a caller may say about one job; None leaves it as the handler declares it."""

    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    # seconds from now, or a moment; not both
    delay: float = 0.0
    at: datetime | None = None
    # while a job with this key waits or runs, another one is refused
    unique: str | None = None
    # a second submission under this key is the first job
    idempotency_key: str | None = None
    # ids of jobs that must have ended before
    after: Sequence[str] = ()
    on_dependency_failure: DependencyPolicy = DependencyPolicy.CANCEL
    max_retries: int | None = None
    timeout: float | None = None
    max_deliveries: int | None = None
    result_ttl: float | None = None
    correlation_id: str | None = None

    def with_(self, **changes: Any) -> JobOptions:
        """The same with other values."""
        return evolve(self, **changes)


class Jobs:
    """``await jobs.submit(send_mail, to="a@b.c")``; errors are raised.

    Inside ``async with db.transaction()`` of the queue's database a submission is part of the
    transaction: the job exists if and only if it commits.
    """

    def __init__(self, queue: TaskQueue, progress: ProgressTracker) -> None:
        self._queue = queue
        self._progress = progress

    async def submit(
        self,
        handler: Callable[..., Any] | str,
        /,
        *args: Any,
        options: JobOptions | None = None,
        **kwargs: Any,
    ) -> str:
        """Enqueue a job for a handler, or for the name of one; its id.

        Raises what ``TaskQueueProtocol.enqueue`` returns as ``Err``.
        """
        task = self.described(handler, *args, options=options, **kwargs)
        return _unwrap_accepted(await self._queue.enqueue(task))

    async def submit_many(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Enqueue what ``described`` made, in one go; raises the first refusal.

        Those before and after a refused one are accepted all the same.
        """
        return [_unwrap_accepted(answer) for answer in await self._queue.enqueue_many(tasks)]

    def described(
        self,
        handler: Callable[..., Any] | str,
        /,
        *args: Any,
        options: JobOptions | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The job as ``enqueue`` takes it."""
        given = options or JobOptions()
        options_given = {
            "id": given.id,
            "queue": given.queue,
            "priority": given.priority,
            "max_retries": given.max_retries,
            "max_deliveries": given.max_deliveries,
            "timeout": given.timeout,
            "result_ttl": given.result_ttl,
            "delay": given.delay or None,
            "scheduled_at": given.at,
            "unique_key": given.unique,
            "idempotency_key": given.idempotency_key,
            "depends_on": list(given.after) or None,
            "on_dependency_failure": given.on_dependency_failure,
            "correlation_id": given.correlation_id,
        }
        said = {key: value for key, value in options_given.items() if value is not None}
        name = handler if isinstance(handler, str) else definition_of(handler).name
        declared = {} if isinstance(handler, str) else definition_of(handler).settings
        return {**declared, "name": name, "args": args, "kwargs": kwargs, **said}

    async def result(self, job_id: str, timeout: float | None = None) -> Any:
        """Wait for the job and return what its handler returned.

        Raises JobEndedError when it failed or was cancelled, UnknownJobError, TimeoutError.
        """
        ended = await self._queue.wait(job_id, timeout)
        if ended.status is JobStatus.COMPLETED:
            return ended.value
        error = JobEndedError(
            f"job {job_id} {ended.status.value}"
            + (f" ({ended.reason})" if ended.reason else "")
            + (f": {ended.error}" if ended.error else ""),
            details={"job_id": job_id, "status": ended.status.value, "reason": ended.reason},
        )
        error.result = ended
        raise error

    async def wait(self, job_id: str, timeout: float | None = None) -> JobResult:
        """How the job ended, whichever way."""
        return await self._queue.wait(job_id, timeout)

    async def outcome(self, job_id: str) -> JobResult | None:
        """Where the job is and what it returned so far, without waiting; None when unknown."""
        return await self._queue.get_result(job_id)

    async def get(self, job_id: str) -> Job | None:
        """The job as it is now."""
        return await self._queue.get_job(job_id)

    async def cancel(self, job_id: str) -> bool:
        """End a waiting job now, a running one as soon as its handler lets go."""
        return await self._queue.cancel(job_id)

    async def retry(self, job_id: str) -> bool:
        """Hand a failed or cancelled job out again."""
        return await self._queue.retry_job(job_id)

    async def find(
        self,
        *,
        queue: str | None = None,
        status: JobStatus | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Job]:
        """Jobs, latest first."""
        return await self._queue.list_jobs(queue, status, name, limit, offset)

    def watch(self, job_id: str) -> AsyncIterator[ProgressSnapshot]:
        """The progress of a job until it ends."""
        return self._progress.subscribe(job_id)


def _unwrap_accepted(answer: Result[str, TaskQueueError]) -> str:
    if isinstance(answer, Err):
        raise answer.error
    return answer.value
