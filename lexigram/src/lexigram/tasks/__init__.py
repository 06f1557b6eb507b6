"""Background jobs: a queue in memory or SQL, handlers with services, pools of workers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.infra.tasks import (
        DeadLetter,
        DependencyPolicy,
        DLQProtocol,
        IdempotencyManagerProtocol,
        IdempotencyResult,
        Job,
        JobControlProtocol,
        JobEndedError,
        JobExistsError,
        JobLeasingProtocol,
        JobNotUniqueError,
        JobRefusedError,
        JobResult,
        JobStatus,
        JobTimeoutError,
        NoHandlerError,
        ProgressSnapshot,
        ProgressStatus,
        ProgressTrackerProtocol,
        TaskExecutorProtocol,
        TaskManagerProtocol,
        TaskQueueError,
        TaskQueueProtocol,
        TaskWorkerProtocol,
        UnknownJobError,
    )
    from lexigram.tasks._pools import WorkerPools
    from lexigram.tasks.config import PoolSettings, TasksConfig
    from lexigram.tasks.context import JobContext, current_job
    from lexigram.tasks.dead_letters import JobDeadLetters
    from lexigram.tasks.events import (
        JobCancelled,
        JobCompleted,
        JobEnqueued,
        JobEvent,
        JobFailed,
        JobRetried,
        JobStarted,
    )
    from lexigram.tasks.executor import TaskExecutor
    from lexigram.tasks.handlers import JobRetry, job
    from lexigram.tasks.idempotency import IdempotencyManager, MemorySubmissions
    from lexigram.tasks.jobs import JobOptions, Jobs
    from lexigram.tasks.manager import TaskManager
    from lexigram.tasks.module import TasksModule
    from lexigram.tasks.progress import MemoryProgress, ProgressTracker
    from lexigram.tasks.provider import TasksProvider
    from lexigram.tasks.queue import InMemoryTaskQueue, SqlTaskQueue, TaskQueue
    from lexigram.tasks.store_side import SqlProgress, SqlSubmissions
    from lexigram.tasks.worker import TaskWorker

    # Type checkers prove here that each class satisfies its contract.
    _queue: type[TaskQueueProtocol] = TaskQueue
    _control: type[JobControlProtocol] = TaskQueue
    _leasing: type[JobLeasingProtocol] = TaskQueue
    _worker: type[TaskWorkerProtocol] = TaskWorker
    _pools: type[TaskWorkerProtocol] = WorkerPools
    _executor: type[TaskExecutorProtocol] = TaskExecutor
    _manager: type[TaskManagerProtocol] = TaskManager
    _dead_letters_type: type[DLQProtocol] = JobDeadLetters
    _idempotency: type[IdempotencyManagerProtocol] = IdempotencyManager
    _progress: type[ProgressTrackerProtocol] = ProgressTracker
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.infra.tasks": [
                "DLQProtocol",
                "DeadLetter",
                "DependencyPolicy",
                "IdempotencyManagerProtocol",
                "IdempotencyResult",
                "Job",
                "JobControlProtocol",
                "JobEndedError",
                "JobExistsError",
                "JobLeasingProtocol",
                "JobNotUniqueError",
                "JobRefusedError",
                "JobResult",
                "JobStatus",
                "JobTimeoutError",
                "NoHandlerError",
                "ProgressSnapshot",
                "ProgressStatus",
                "ProgressTrackerProtocol",
                "TaskExecutorProtocol",
                "TaskManagerProtocol",
                "TaskQueueError",
                "TaskQueueProtocol",
                "TaskWorkerProtocol",
                "UnknownJobError",
            ],
            "lexigram.tasks.config": ["PoolSettings", "TasksConfig"],
            "lexigram.tasks.context": ["JobContext", "current_job"],
            "lexigram.tasks.dead_letters": ["JobDeadLetters"],
            "lexigram.tasks.events": [
                "JobCancelled",
                "JobCompleted",
                "JobEnqueued",
                "JobEvent",
                "JobFailed",
                "JobRetried",
                "JobStarted",
            ],
            "lexigram.tasks.executor": ["TaskExecutor"],
            "lexigram.tasks.handlers": ["JobRetry", "job"],
            "lexigram.tasks.idempotency": ["IdempotencyManager", "MemorySubmissions"],
            "lexigram.tasks.jobs": ["JobOptions", "Jobs"],
            "lexigram.tasks.manager": ["TaskManager"],
            "lexigram.tasks.module": ["TasksModule"],
            "lexigram.tasks._pools": ["WorkerPools"],
            "lexigram.tasks.progress": ["MemoryProgress", "ProgressTracker"],
            "lexigram.tasks.provider": ["TasksProvider"],
            "lexigram.tasks.queue": ["InMemoryTaskQueue", "SqlTaskQueue", "TaskQueue"],
            "lexigram.tasks.store_side": ["SqlProgress", "SqlSubmissions"],
            "lexigram.tasks.worker": ["TaskWorker"],
        },
    )

__all__ = [
    "DLQProtocol",
    "DeadLetter",
    "DependencyPolicy",
    "IdempotencyManager",
    "IdempotencyManagerProtocol",
    "IdempotencyResult",
    "InMemoryTaskQueue",
    "Job",
    "JobCancelled",
    "JobCompleted",
    "JobContext",
    "JobControlProtocol",
    "JobDeadLetters",
    "JobEndedError",
    "JobEnqueued",
    "JobEvent",
    "JobExistsError",
    "JobFailed",
    "JobLeasingProtocol",
    "JobNotUniqueError",
    "JobOptions",
    "JobRefusedError",
    "JobResult",
    "JobRetried",
    "JobRetry",
    "JobStarted",
    "JobStatus",
    "JobTimeoutError",
    "Jobs",
    "MemoryProgress",
    "MemorySubmissions",
    "NoHandlerError",
    "PoolSettings",
    "ProgressSnapshot",
    "ProgressStatus",
    "ProgressTracker",
    "ProgressTrackerProtocol",
    "SqlProgress",
    "SqlSubmissions",
    "SqlTaskQueue",
    "TaskExecutor",
    "TaskExecutorProtocol",
    "TaskManager",
    "TaskManagerProtocol",
    "TaskQueue",
    "TaskQueueError",
    "TaskQueueProtocol",
    "TaskWorker",
    "TaskWorkerProtocol",
    "TasksConfig",
    "TasksModule",
    "TasksProvider",
    "UnknownJobError",
    "WorkerPools",
    "current_job",
    "job",
]
