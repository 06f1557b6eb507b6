"""Reports what happens to jobs: metrics ``tasks.*`` and job events."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.types import JobStatus
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.events import EventEmitter
from lexigram.observability import get_logger
from lexigram.tasks.events import JobCancelled, JobFailed
from lexigram.tasks.store import Ended

logger = get_logger(__name__)


class JobEmitter(EventEmitter):
    """The emitter of queues and workers."""

    def __init__(
        self, metrics: MetricsProtocol | None = None, events: EventBusProtocol | None = None
    ) -> None:
        super().__init__(metrics=metrics, events=events, prefix="tasks.")

    async def report_ended(self, jobs: Iterable[Ended]) -> None:
        """Jobs that ended without a worker: in the queue, or because their workers died."""
        for job in jobs:
            self.count("finished", name=job.name, queue=job.queue, status=job.status.value)
            if job.status is JobStatus.FAILED:
                logger.error(
                    "job failed permanently", job=job.job_id, handler=job.name, reason=job.reason
                )
                await self.publish(JobFailed, partial(_build_failed, job))
            else:
                await self.publish(JobCancelled, partial(_build_cancelled, job))


def _build_failed(job: Ended) -> JobFailed:
    return JobFailed(job_id=job.job_id, name=job.name, queue=job.queue, reason=job.reason, error="")


def _build_cancelled(job: Ended) -> JobCancelled:
    return JobCancelled(job_id=job.job_id, name=job.name, queue=job.queue, reason=job.reason)
