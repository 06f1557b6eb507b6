"""Adapters for other systems: their task queues, document loaders and retrieval pipelines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.adapters.loader_worker import LoaderWorkerBridge
    from lexigram.ai.workers.adapters.rag_adapter import (
        IngestionError,
        IngestionReport,
        RAGIngestionAdapter,
    )
    from lexigram.ai.workers.adapters.tasks_adapter import (
        HAS_LEX_TASKS,
        JobAdapter,
        LexigramTasksAdapter,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.adapters.loader_worker": ["LoaderWorkerBridge"],
            "lexigram.ai.workers.adapters.rag_adapter": [
                "IngestionError",
                "IngestionReport",
                "RAGIngestionAdapter",
            ],
            "lexigram.ai.workers.adapters.tasks_adapter": [
                "HAS_LEX_TASKS",
                "JobAdapter",
                "LexigramTasksAdapter",
            ],
        },
    )

__all__ = [
    "HAS_LEX_TASKS",
    "IngestionError",
    "IngestionReport",
    "JobAdapter",
    "LexigramTasksAdapter",
    "LoaderWorkerBridge",
    "RAGIngestionAdapter",
]
