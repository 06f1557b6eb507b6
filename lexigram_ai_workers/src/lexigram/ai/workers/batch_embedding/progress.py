"""Progress of the embedding jobs of this process."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lexigram.ai.workers.batch_embedding.types import BatchEmbeddingProgress, EmbeddingStatus
from lexigram.ai.workers.bounded_progress import BoundedProgress


class ProgressTracker(BoundedProgress[BatchEmbeddingProgress]):
    """Keeps ``max_jobs`` entries; evicts finished jobs first, then the least recently updated."""

    async def initialize_job(
        self, job_id: str, total_texts: int, status: EmbeddingStatus = EmbeddingStatus.PENDING
    ) -> BatchEmbeddingProgress:
        """Start a job or a new attempt; all counters are 0."""
        return self._begin(job_id, BatchEmbeddingProgress(job_id, status, total_texts))

    async def update_progress(
        self,
        job_id: str,
        status: EmbeddingStatus | None = None,
        texts_processed: int | None = None,
        cache_hits: int | None = None,
        cache_misses: int | None = None,
        error: str | None = None,
    ) -> None:
        """Update a job; an unknown job is ignored."""
        progress = self._touch(job_id)
        if progress is not None:
            progress.update(status, texts_processed, cache_hits, cache_misses, error)

    async def remove_job(self, job_id: str) -> bool:
        """Remove a job; False when it is unknown."""
        return self._jobs.pop(job_id, None) is not None

    def get_active_jobs(self) -> list[str]:
        """Return the ids of pending and running jobs."""
        return [job_id for job_id, item in self._jobs.items() if not item.status.is_final]

    def get_stats(self) -> dict[str, Any]:
        """Count the active jobs, and the jobs by status."""
        by_status = Counter(item.status.value for item in self._jobs.values())
        return {"active_jobs": len(self.get_active_jobs()), "jobs_by_status": dict(by_status)}
