"""Lexigram AI workers: embedding, ingestion, maintenance, dead-letter recovery."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.batch_embedding.types import (
        BatchEmbeddingJob,
        BatchEmbeddingProgress,
        BatchEmbeddingResult,
    )
    from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
    from lexigram.ai.workers.config import DeadLetterConfig, MaintenanceConfig, WorkersConfig
    from lexigram.ai.workers.constants import (
        DEFAULT_BASE_BACKOFF,
        DEFAULT_CHECK_INTERVAL,
        DEFAULT_MAX_RETRIES,
        DEFAULT_TASK_TIMEOUT,
        MAX_BACKOFF_SECONDS,
        MAX_HISTORY_SIZE,
    )
    from lexigram.ai.workers.di.provider import WorkersProvider
    from lexigram.ai.workers.dlq.classifier import ErrorClassifier
    from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
    from lexigram.ai.workers.document_ingestion.types import (
        DocumentIngestionJob,
        IngestionProgress,
        IngestionResult,
    )
    from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
    from lexigram.ai.workers.errors import (
        DLQError,
        MaintenanceError,
        UnknownMaintenanceTaskError,
        WorkerError,
        WorkerSetupError,
    )
    from lexigram.ai.workers.hooks import (
        WorkerJobCompletedHook,
        WorkerJobFailedHook,
        WorkerJobStartedHook,
        WorkerMaintenanceRunHook,
    )
    from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
    from lexigram.ai.workers.module import WorkersModule
    from lexigram.ai.workers.supervision import WorkerProtocol
    from lexigram.ai.workers.types import (
        DLQAction,
        DLQItem,
        DLQStats,
        FailureCategory,
        MaintenanceResult,
        MaintenanceStatus,
        MaintenanceTask,
        MaintenanceTaskType,
    )
    from lexigram.contracts.infra.tasks.protocols import TaskWorkerProtocol

    # Type checkers prove here that each worker satisfies its contract.
    _embedding: type[TaskWorkerProtocol] = BatchEmbeddingWorker
    _ingestion: type[TaskWorkerProtocol] = DocumentIngestionWorker
    _maintenance: type[TaskWorkerProtocol] = MaintenanceWorker
    _dead_letters: type[TaskWorkerProtocol] = DeadLetterQueueWorker
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.batch_embedding.types": [
                "BatchEmbeddingJob",
                "BatchEmbeddingProgress",
                "BatchEmbeddingResult",
            ],
            "lexigram.ai.workers.batch_embedding.worker": ["BatchEmbeddingWorker"],
            "lexigram.ai.workers.config": [
                "DeadLetterConfig",
                "MaintenanceConfig",
                "WorkersConfig",
            ],
            "lexigram.ai.workers.constants": [
                "DEFAULT_BASE_BACKOFF",
                "DEFAULT_CHECK_INTERVAL",
                "DEFAULT_MAX_RETRIES",
                "DEFAULT_TASK_TIMEOUT",
                "MAX_BACKOFF_SECONDS",
                "MAX_HISTORY_SIZE",
            ],
            "lexigram.ai.workers.di.provider": ["WorkersProvider"],
            "lexigram.ai.workers.dlq.classifier": ["ErrorClassifier"],
            "lexigram.ai.workers.dlq.worker": ["DeadLetterQueueWorker"],
            "lexigram.ai.workers.document_ingestion.types": [
                "DocumentIngestionJob",
                "IngestionProgress",
                "IngestionResult",
            ],
            "lexigram.ai.workers.document_ingestion.worker": ["DocumentIngestionWorker"],
            "lexigram.ai.workers.errors": [
                "DLQError",
                "MaintenanceError",
                "UnknownMaintenanceTaskError",
                "WorkerError",
                "WorkerSetupError",
            ],
            "lexigram.ai.workers.hooks": [
                "WorkerJobCompletedHook",
                "WorkerJobFailedHook",
                "WorkerJobStartedHook",
                "WorkerMaintenanceRunHook",
            ],
            "lexigram.ai.workers.maintenance.worker": ["MaintenanceWorker"],
            "lexigram.ai.workers.module": ["WorkersModule"],
            "lexigram.ai.workers.supervision": ["WorkerProtocol"],
            "lexigram.ai.workers.types": [
                "DLQAction",
                "DLQItem",
                "DLQStats",
                "FailureCategory",
                "MaintenanceResult",
                "MaintenanceStatus",
                "MaintenanceTask",
                "MaintenanceTaskType",
            ],
        },
    )

__all__ = [
    "DEFAULT_BASE_BACKOFF",
    "DEFAULT_CHECK_INTERVAL",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_TASK_TIMEOUT",
    "MAX_BACKOFF_SECONDS",
    "MAX_HISTORY_SIZE",
    "BatchEmbeddingJob",
    "BatchEmbeddingProgress",
    "BatchEmbeddingResult",
    "BatchEmbeddingWorker",
    "DLQAction",
    "DLQError",
    "DLQItem",
    "DLQStats",
    "DeadLetterConfig",
    "DeadLetterQueueWorker",
    "DocumentIngestionJob",
    "DocumentIngestionWorker",
    "ErrorClassifier",
    "FailureCategory",
    "IngestionProgress",
    "IngestionResult",
    "MaintenanceConfig",
    "MaintenanceError",
    "MaintenanceResult",
    "MaintenanceStatus",
    "MaintenanceTask",
    "MaintenanceTaskType",
    "MaintenanceWorker",
    "UnknownMaintenanceTaskError",
    "WorkerError",
    "WorkerJobCompletedHook",
    "WorkerJobFailedHook",
    "WorkerJobStartedHook",
    "WorkerMaintenanceRunHook",
    "WorkerProtocol",
    "WorkerSetupError",
    "WorkersConfig",
    "WorkersModule",
    "WorkersProvider",
]
