"""Values of background jobs: status, progress, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal


class JobStatus(StrEnum):
    """Where a job is; COMPLETED, FAILED and CANCELLED are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    CANCELLED = "cancelled"


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
    """Something that failed for good: a message, a job, whatever the payload is."""

    message_id: str
    payload: Any
    reason: str
    failed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    # attempts made before giving up
    attempts: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
