"""Values of background jobs: the job itself, how it ends, progress, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import uuid4

DEFAULT_QUEUE = "default"
DEFAULT_MAX_RETRIES = 3
# Crashes of workers that one job may survive; its own failures are counted apart.
DEFAULT_MAX_DELIVERIES = 20


class JobStatus(StrEnum):
    """Where a job is; COMPLETED, FAILED and CANCELLED are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when nothing changes any more, except by an explicit retry."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class DependencyPolicy(StrEnum):
    """What becomes of a job when one it waits for fails or is cancelled."""

    CANCEL = "cancel"
    RUN = "run"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job with everything that is known about it; a snapshot.

    What the caller decides comes first; the second half is written by the queue and ignored
    by ``enqueue``.
    """

    name: str
    id: str = field(default_factory=lambda: uuid4().hex)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    # retries after the first attempt
    max_retries: int = DEFAULT_MAX_RETRIES
    # seconds one attempt may take; None is no limit
    timeout: float | None = None
    # not before this moment; None is at once
    scheduled_at: datetime | None = None
    # while a job with this key waits or runs, another one is refused
    unique_key: str | None = None
    # a second submission under this key is the first job, as long as that is kept
    idempotency_key: str | None = None
    # ids of jobs that must have ended before
    depends_on: tuple[str, ...] = ()
    on_dependency_failure: DependencyPolicy = DependencyPolicy.CANCEL
    # how often its worker may die before the job counts as poison
    max_deliveries: int = DEFAULT_MAX_DELIVERIES
    # seconds the result is kept; None is as the queue is set up
    result_ttl: float | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    # W3C headers of the span that enqueued it: the spans of its attempts are children of that
    trace_context: Mapping[str, str] | None = None

    status: JobStatus = JobStatus.PENDING
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    # attempts that failed
    retry_count: int = 0
    # attempts whose worker died
    lost_count: int = 0
    last_error: str = ""
    # why it failed or was cancelled: exhausted, aborted, rejected, poison, asked, dependency
    reason: str = ""
    cancel_requested: bool = False


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a job ended, or where it is."""

    job_id: str
    status: JobStatus
    # what the handler returned; None too when the time to keep it is over
    value: Any = None
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimedJob:
    """A job handed out under a lease; only this very lease can end it."""

    job: Job
    # who holds it, and which of its claims this is: together never the same twice
    holder: str
    fence: int
    # where the queue finds it again
    position: int


class LeaseState(StrEnum):
    """What is left of a lease."""

    KEPT = "kept"
    # kept, and its cancellation was requested
    CANCEL_REQUESTED = "cancel_requested"
    # over: the job may run elsewhere, and what this holder does with it counts nothing
    LOST = "lost"


class EndKind(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    # again after ``delay``; counts as a failed attempt
    RETRY = "retry"
    FAILED = "failed"
    CANCELLED = "cancelled"
    # handed back, as if it had never been claimed
    RELEASED = "released"


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """What the holder of a lease reports."""

    claim: ClaimedJob
    kind: EndKind
    value: Any = None
    error: str = ""
    reason: str = ""
    delay: float = 0.0


class ProgressStatus(StrEnum):
    """Where reported progress is; COMPLETE and FAILED are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True)
class ProgressSnapshot:
    """How far a task was at one moment."""

    task_id: str
    current: int
    total: int
    status: ProgressStatus
    message: str = ""
    error: str = ""

    @property
    def is_final(self) -> bool:
        """True when no other report follows."""
        return self.status in (ProgressStatus.COMPLETE, ProgressStatus.FAILED)

    @property
    def percent(self) -> float:
        """Between 0 and 100; 0 while the total is unknown, 100 once complete."""
        if self.status is ProgressStatus.COMPLETE:
            return 100.0
        if self.total <= 0:
            return 0.0
        return max(0.0, min(100.0, 100.0 * self.current / self.total))


@dataclass(frozen=True)
class IdempotencyResult:
    """What is known about a task that was submitted under an idempotency key."""

    task_id: str
    idempotency_key: str
    status: Literal["submitted", "duplicate", "completed"]
    created_at: datetime
    result: Any = None


@dataclass(frozen=True)
class DeadLetter:
    """Something that failed permanently: a message, a job, whatever the payload is."""

    message_id: str
    payload: Any
    reason: str
    failed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    # attempts made before giving up
    attempts: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
