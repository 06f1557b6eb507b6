"""Contracts of background jobs."""

from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import (
    DLQProtocol,
    IdempotencyManagerProtocol,
    JobProtocol,
    ProgressTrackerProtocol,
    TaskExecutorProtocol,
    TaskManagerProtocol,
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
    TaskWorkerProtocol,
)
from lexigram.contracts.infra.tasks.types import (
    DeadLetter,
    IdempotencyResult,
    JobStatus,
    ProgressSnapshot,
    ProgressStatus,
)

__all__ = [
    "DLQProtocol",
    "DeadLetter",
    "IdempotencyManagerProtocol",
    "IdempotencyResult",
    "JobProtocol",
    "JobStatus",
    "ProgressSnapshot",
    "ProgressStatus",
    "ProgressTrackerProtocol",
    "TaskExecutorProtocol",
    "TaskManagerProtocol",
    "TaskQueueError",
    "TaskQueueProtocol",
    "TaskWorkerFactoryProtocol",
    "TaskWorkerProtocol",
]
