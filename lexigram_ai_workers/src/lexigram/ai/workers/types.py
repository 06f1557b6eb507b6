"""Types of dead letters and maintenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self
from zoneinfo import ZoneInfo

from attrs import field, frozen

from lexigram import clock
from lexigram.ai.workers.constants import (
    DEFAULT_BASE_BACKOFF,
    DEFAULT_MAX_RETRIES,
    DEFAULT_TASK_TIMEOUT,
    MAX_BACKOFF_SECONDS,
)


class FailureCategory(StrEnum):
    """Category of a failure; it determines whether a retry can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    THROTTLED = "throttled"
    INVALID_INPUT = "invalid_input"
    UNKNOWN = "unknown"


class DLQAction(StrEnum):
    """Action on a dead letter."""

    RETRY = "retry"
    ARCHIVE = "archive"
    DELETE = "delete"
    NOTIFY = "notify"


# Positional in the 0.1 line, so not keyword-only here.
@frozen
class DLQItem:
    """A snapshot of a dead letter."""

    job_id: str
    # the failed job or message
    original_job: Any
    failure_count: int
    first_failure: datetime
    last_failure: datetime
    last_error: str
    failure_category: FailureCategory = FailureCategory.UNKNOWN
    retry_count: int = 0
    max_retries: int = DEFAULT_MAX_RETRIES
    next_retry: datetime | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    def can_retry(self) -> bool:
        """True if a retry is allowed and due."""
        if self.retry_count >= self.max_retries:
            return False
        if self.failure_category is FailureCategory.PERMANENT:
            return False
        return self.next_retry is None or clock.now() >= self.next_retry

    def calculate_backoff(self, base_delay: int = DEFAULT_BASE_BACKOFF) -> int:
        """Return the delay before the next retry: doubles each time, up to an hour."""
        # Limited, as 2**10_000 would be a huge number.
        return min(base_delay * (1 << min(self.retry_count, 32)), MAX_BACKOFF_SECONDS)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "job_id": self.job_id,
            "failure_count": self.failure_count,
            "first_failure": self.first_failure.isoformat(),
            "last_failure": self.last_failure.isoformat(),
            "last_error": self.last_error,
            "failure_category": self.failure_category.value,
            "retry_count": self.retry_count,
            "max_retries": self.max_retries,
            "next_retry": None if self.next_retry is None else self.next_retry.isoformat(),
            "can_retry": self.can_retry(),
            "metadata": dict(self.metadata),
        }


@frozen
class DLQStats:
    """Statistics of dead letters: counts by category and by action."""

    total_items: int = 0
    by_category: Mapping[str, int] = field(factory=dict[str, int])
    retried_count: int = 0
    archived_count: int = 0
    deleted_count: int = 0
    permanent_failures: int = 0
    # retried successfully
    succeeded_count: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "total_items": self.total_items,
            "by_category": dict(self.by_category),
            "retried_count": self.retried_count,
            "archived_count": self.archived_count,
            "deleted_count": self.deleted_count,
            "permanent_failures": self.permanent_failures,
            "succeeded_count": self.succeeded_count,
        }


class MaintenanceTaskType(StrEnum):
    """Type of a maintenance task."""

    INDEX_OPTIMIZATION = "index_optimization"
    CACHE_CLEANUP = "cache_cleanup"
    DOCUMENT_CLEANUP = "document_cleanup"
    METRICS_ROLLUP = "metrics_rollup"
    HEALTH_CHECK = "health_check"


class MaintenanceStatus(StrEnum):
    """Status of a run of a maintenance task."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class MaintenanceTask:
    """A snapshot of a registered task and its last run."""

    name: str
    task_type: MaintenanceTaskType
    handler: Callable[[], Any]
    schedule_cron: str | None = None
    interval_seconds: float | None = None
    enabled: bool = True
    timeout: float = DEFAULT_TASK_TIMEOUT
    last_run: datetime | None = None
    last_status: MaintenanceStatus = MaintenanceStatus.PENDING
    last_error: str | None = None
    run_count: int = 0

    def should_run(self) -> bool:
        """True if the task is enabled and due since its last run."""
        if not self.enabled:
            return False
        if self.last_run is None:
            return True
        if self.interval_seconds is not None:
            return clock.now() >= self.last_run + timedelta(seconds=self.interval_seconds)
        if self.schedule_cron is None:
            return False
        from lexigram.schedule.cron import Cron  # imported late: it reads zone files

        due = Cron.parsed(self.schedule_cron, ZoneInfo("UTC")).next(self.last_run)
        return due is not None and due <= clock.now()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "name": self.name,
            "task_type": self.task_type.value,
            "schedule_cron": self.schedule_cron,
            "interval_seconds": self.interval_seconds,
            "enabled": self.enabled,
            "last_run": None if self.last_run is None else self.last_run.isoformat(),
            "last_status": self.last_status.value,
            "last_error": self.last_error,
            "run_count": self.run_count,
        }


@frozen
class MaintenanceResult:
    """Result of a run of a maintenance task."""

    task_name: str
    task_type: MaintenanceTaskType
    status: MaintenanceStatus
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
    items_processed: int = 0
    items_deleted: int = 0
    error: str | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    @classmethod
    def success(
        cls,
        task_name: str,
        task_type: MaintenanceTaskType,
        started_at: datetime,
        items_processed: int = 0,
        items_deleted: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create the result of a run that completes now."""
        ended = clock.now()
        return cls(
            task_name,
            task_type,
            MaintenanceStatus.COMPLETED,
            started_at,
            ended,
            _seconds(started_at, ended),
            items_processed,
            items_deleted,
            None,
            dict(metadata or {}),
        )

    @classmethod
    def failure(
        cls, task_name: str, task_type: MaintenanceTaskType, started_at: datetime, error: str
    ) -> Self:
        """Create the result of a run that fails now."""
        ended = clock.now()
        return cls(
            task_name,
            task_type,
            MaintenanceStatus.FAILED,
            started_at,
            ended,
            _seconds(started_at, ended),
            error=error,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "task_name": self.task_name,
            "task_type": self.task_type.value,
            "status": self.status.value,
            "started_at": self.started_at.isoformat(),
            "completed_at": self.completed_at.isoformat(),
            "duration_seconds": self.duration_seconds,
            "items_processed": self.items_processed,
            "items_deleted": self.items_deleted,
            "error": self.error,
            "metadata": dict(self.metadata),
        }


def _seconds(begin: datetime, end: datetime) -> float:
    # The clock may have been set back in between.
    return max(0.0, (end.astimezone(UTC) - begin.astimezone(UTC)).total_seconds())
