"""Batch embedding: jobs that embed chunks and store the vectors, with a cache and progress."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache, embed_with_cache
    from lexigram.ai.workers.batch_embedding.errors import (
        EmbeddingEnqueueError,
        EmbeddingQueueFullError,
    )
    from lexigram.ai.workers.batch_embedding.progress import ProgressTracker
    from lexigram.ai.workers.batch_embedding.protocols import EmbeddingProvider
    from lexigram.ai.workers.batch_embedding.types import (
        BatchEmbeddingJob,
        BatchEmbeddingProgress,
        BatchEmbeddingResult,
        EmbeddingStatus,
    )
    from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.batch_embedding.cache": ["EmbeddingCache", "embed_with_cache"],
            "lexigram.ai.workers.batch_embedding.errors": [
                "EmbeddingEnqueueError",
                "EmbeddingQueueFullError",
            ],
            "lexigram.ai.workers.batch_embedding.progress": ["ProgressTracker"],
            "lexigram.ai.workers.batch_embedding.protocols": ["EmbeddingProvider"],
            "lexigram.ai.workers.batch_embedding.types": [
                "BatchEmbeddingJob",
                "BatchEmbeddingProgress",
                "BatchEmbeddingResult",
                "EmbeddingStatus",
            ],
            "lexigram.ai.workers.batch_embedding.worker": ["BatchEmbeddingWorker"],
        },
    )

__all__ = [
    "BatchEmbeddingJob",
    "BatchEmbeddingProgress",
    "BatchEmbeddingResult",
    "BatchEmbeddingWorker",
    "EmbeddingCache",
    "EmbeddingEnqueueError",
    "EmbeddingProvider",
    "EmbeddingQueueFullError",
    "EmbeddingStatus",
    "ProgressTracker",
    "embed_with_cache",
]
