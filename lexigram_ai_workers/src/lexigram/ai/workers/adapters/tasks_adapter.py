"""Adapt the task queue to the API of other job systems: job types, data, delays, timed dequeue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import anyio

from lexigram import clock
from lexigram.ai.workers.errors import JobNotTakenError
from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import (
    JobControlProtocol,
    JobLeasingProtocol,
    ProgressTrackerProtocol,
    TaskQueueProtocol,
)
from lexigram.contracts.infra.tasks.types import ClaimedJob, EndKind, JobEnd, JobStatus
from lexigram.leasing.lease import lease_token
from lexigram.observability import get_logger
from lexigram.tasks.plain import leasing

HAS_LEX_TASKS: Final = True  # the core includes lexigram.tasks

logger = get_logger(__name__)

_LEASE_SECONDS = 300.0  # a job not finished by then is delivered again
_MAX_COUNTED_JOBS = 10_000  # running jobs counted by get_stats()
_TOTAL_PERCENT = 100  # progress is reported in percent

# Status names of other systems.
_STATUSES: Mapping[str, JobStatus] = {
    **{status.value: status for status in JobStatus},
    "queued": JobStatus.PENDING,
    "waiting": JobStatus.PENDING,
    "processing": JobStatus.RUNNING,
    "in_progress": JobStatus.RUNNING,
    "active": JobStatus.RUNNING,
    "done": JobStatus.COMPLETED,
    "succeeded": JobStatus.COMPLETED,
    "success": JobStatus.COMPLETED,
    "error": JobStatus.FAILED,
    "dead": JobStatus.FAILED,
    "canceled": JobStatus.CANCELLED,
}
_ENDS: Mapping[JobStatus, EndKind] = {
    JobStatus.COMPLETED: EndKind.COMPLETED,
    JobStatus.FAILED: EndKind.FAILED,
    JobStatus.RETRYING: EndKind.RETRY,
    JobStatus.PENDING: EndKind.RELEASED,
    JobStatus.CANCELLED: EndKind.CANCELLED,
}


class JobAdapter:
    """A job with an id and a status; after ``dequeue`` its status can be set."""

    def __init__(
        self,
        raw_job: Any,
        *,
        queue: JobLeasingProtocol | None = None,
        claim: ClaimedJob | None = None,
        progress: ProgressTrackerProtocol | None = None,
    ) -> None:
        self.raw_job = raw_job
        self.status = _status(getattr(raw_job, "status", None))
        self.updated_at: datetime | None = (
            getattr(raw_job, "completed_at", None)
            or getattr(raw_job, "started_at", None)
            or getattr(raw_job, "created_at", None)
        )
        self.error: str | None = getattr(raw_job, "last_error", None) or None
        self._queue = queue
        self._claim = claim
        self._progress = progress

    @property
    def id(self) -> str:
        """The id of the job."""
        return str(self.raw_job.id)

    @property
    def data(self) -> dict[str, Any]:
        """The arguments of the job."""
        return dict(getattr(self.raw_job, "kwargs", None) or {})

    @property
    def created_at(self) -> datetime | None:
        """Time of enqueueing."""
        created: datetime | None = getattr(self.raw_job, "created_at", None)
        return created

    async def update_status(self, status: str | JobStatus, error: str | None = None) -> None:
        """Set the status; for a dequeued job it is also written to the queue.

        COMPLETED, FAILED and CANCELLED end the job, RETRYING counts a failed attempt, PENDING
        releases it. RUNNING extends the lease.
        """
        self.status, self.error = _status(status), error
        self.updated_at = clock.now()
        if self._queue is None or self._claim is None:
            return
        if self.status is JobStatus.RUNNING:
            await self._queue.extend([self._claim], _LEASE_SECONDS)
            return
        claim, self._claim = self._claim, None
        end = JobEnd(
            claim=claim,
            kind=_ENDS[self.status],
            error=error or "",
            reason="rejected" if self.status is JobStatus.FAILED else "",
        )
        await self._queue.finish([end])

    async def update_progress(
        self, progress: float, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Report progress in percent; ``metadata["message"]`` is the message."""
        self.updated_at = clock.now()
        if self._progress is not None:
            message = str((metadata or {}).get("message", ""))
            await self._progress.update(self.id, round(progress), _TOTAL_PERCENT, message)


class LexigramTasksAdapter:
    """Jobs by type and data on a TaskQueueProtocol."""

    def __init__(
        self, task_queue: TaskQueueProtocol, *, progress: ProgressTrackerProtocol | None = None
    ) -> None:
        self.task_queue = task_queue
        self._leases = leasing(task_queue)
        self._progress = progress
        self._holder = lease_token()

    async def enqueue(
        self,
        job_type: str,
        data: Mapping[str, Any],
        priority: int = 0,
        delay_seconds: float = 0,
        *,
        queue_name: str | None = None,
    ) -> str:
        """Enqueue a job and return its id. Raises JobNotTakenError, a RuntimeError, on refusal."""
        job: dict[str, Any] = {"name": job_type, "kwargs": dict(data), "priority": priority}
        if delay_seconds:
            job["delay"] = delay_seconds
        if queue_name is not None:
            job["queue"] = queue_name
        accepted = await self.task_queue.enqueue(job)
        if isinstance(accepted, Err):
            raise JobNotTakenError(
                f"the queue did not accept the job: {accepted.error.message}",
                details={"job_type": job_type},
                hint=accepted.error.hint,
                cause=accepted.error,
            )
        return accepted.unwrap()

    async def dequeue(self, queue_name: str, timeout: float = 30) -> JobAdapter | None:
        """Return the next job of a queue, or None after ``timeout`` seconds.

        The job is leased for five minutes; ``update_status`` ends it. A job that is ready is
        returned with any ``timeout``, also 0: the claim itself is never interrupted.
        """
        end = anyio.current_time() + timeout
        async with self._leases.listening("work") as wake_up:
            while True:
                due = await self._leases.tend()
                # Cancelled between claim and return, the job would stay leased until it expires.
                with anyio.CancelScope(shield=True):
                    claims = await self._leases.claim(self._holder, 1, [queue_name], _LEASE_SECONDS)
                    if claims:
                        return self._adapt(claims[0].job, claims[0])
                left = end - anyio.current_time()
                if left <= 0:
                    return None
                await wake_up.wait(at_most=left if due is None else min(due, left))

    async def get_job(self, job_id: str) -> JobAdapter | None:
        """Return the current state of a job, or None."""
        job = await self.task_queue.get_job(job_id)
        return None if job is None else self._adapt(job, None)

    async def delete_job(self, job_id: str) -> bool:
        """Delete a job that is not running."""
        return await self.task_queue.delete_job(job_id)

    async def count(self, queue_name: str, status: str | JobStatus | None = None) -> int:
        """Count the jobs of a queue, in one status or in all."""
        return await self.task_queue.count(queue_name, None if status is None else _status(status))

    async def get_stats(self) -> dict[str, int] | None:
        """Count pending and running jobs; None while the queue is unavailable."""
        queue = self.task_queue
        try:
            pending, processing = await queue.get_task_count(), 0
            if isinstance(queue, JobControlProtocol):
                running_jobs = await queue.list_jobs(
                    status=JobStatus.RUNNING, limit=_MAX_COUNTED_JOBS
                )
                processing = len(running_jobs)
        except TaskQueueError as error:
            logger.warning("queue statistics are unavailable", error=str(error))
            return None
        return {"pending": pending, "processing": processing}

    def _adapt(self, job: Any, claim: ClaimedJob | None) -> JobAdapter:
        return JobAdapter(job, queue=self._leases, claim=claim, progress=self._progress)


def _status(value: object) -> JobStatus:
    """The JobStatus for a status name; an unknown name is PENDING."""
    return _STATUSES.get(str(getattr(value, "value", value)).lower(), JobStatus.PENDING)
