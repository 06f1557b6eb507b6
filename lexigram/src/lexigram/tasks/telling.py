"""Tells metrics and the event bus what happens to jobs."""

from __future__ import annotations

from collections.abc import Iterable

from lexigram.concurrency import as_failure
from lexigram.contracts.core.result import Err
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.types import JobStatus
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.observability import get_logger
from lexigram.tasks.events import JobCancelled, JobEvent, JobFailed
from lexigram.tasks.store import Ended

logger = get_logger(__name__)


class Teller:
    """Without metrics and bus it does nothing."""

    def __init__(
        self, metrics: MetricsProtocol | None = None, events: EventBusProtocol | None = None
    ) -> None:
        # Nobody asks the metrics that do nothing, per job.
        self._metrics = None if isinstance(metrics, NoOpMetrics) else metrics
        self._events = events

    @property
    def measures(self) -> bool:
        """Whether counts and observations reach somebody."""
        return self._metrics is not None

    def reaches(self, kind: type[JobEvent]) -> bool:
        """Whether an event of this kind reaches somebody: asked per job, before it is made."""
        return self._events is not None and self._events.has_subscribers(kind)

    def count(self, what: str, value: float = 1.0, **tags: str) -> None:
        """Add to counter ``tasks.<what>``."""
        if self._metrics is not None:
            self._metrics.increment(f"tasks.{what}", value, tags)

    def gauge(self, what: str, value: float, **tags: str) -> None:
        """Set gauge ``tasks.<what>``."""
        if self._metrics is not None:
            self._metrics.gauge(f"tasks.{what}", value, tags)

    def observe(self, what: str, seconds: float, **tags: str) -> None:
        """Add one observation to histogram ``tasks.<what>``."""
        if self._metrics is not None:
            self._metrics.histogram(f"tasks.{what}", seconds, tags)

    async def tell(self, event: JobEvent) -> None:
        """Publish an event, which was made because it ``reaches`` somebody."""
        try:
            told = None if self._events is None else await self._events.publish(event)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning("a subscriber of a job event failed", exc_info=failure)
            return
        if isinstance(told, Err):
            # A job must not fail because somebody who watches it did.
            logger.warning("a subscriber of a job event failed", error=str(told.error))

    async def ended(self, jobs: Iterable[Ended]) -> None:
        """Jobs that ended without a worker: in the queue, or because their workers died."""
        for job in jobs:
            self.count("finished", name=job.name, queue=job.queue, status=job.status.value)
            if job.status is JobStatus.FAILED:
                logger.error(
                    "job failed for good", job=job.job_id, handler=job.name, reason=job.reason
                )
                if self.reaches(JobFailed):
                    await self.tell(_failed(job))
            elif self.reaches(JobCancelled):
                await self.tell(_cancelled(job))


def _failed(job: Ended) -> JobFailed:
    return JobFailed(job_id=job.job_id, name=job.name, queue=job.queue, reason=job.reason, error="")


def _cancelled(job: Ended) -> JobCancelled:
    return JobCancelled(job_id=job.job_id, name=job.name, queue=job.queue, reason=job.reason)
