"""How far the embedding jobs of this process are; bounded."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lexigram.ai.workers.batch_embedding.types import BatchEmbeddingProgress, EmbeddingStatus
from lexigram.ai.workers.kept_progress import KeptProgress


class ProgressTracker(KeptProgress[BatchEmbeddingProgress]):
    """Keeps at most ``max_jobs``: ended ones go first, then those not touched for longest."""

    async def initialize_job(
        self, job_id: str, total_texts: int, status: EmbeddingStatus = EmbeddingStatus.PENDING
    ) -> BatchEmbeddingProgress:
        """Begin a job, or an attempt at one: all counters are 0."""
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
        """Report on a job of this name; nothing for one that is not known."""
        known = self._touched(job_id)
        if known is not None:
            known.update(status, texts_processed, cache_hits, cache_misses, error)

    async def remove_job(self, job_id: str) -> bool:
        """Forget a job; False when it is not known."""
        return self._jobs.pop(job_id, None) is not None

    def get_active_jobs(self) -> list[str]:
        """Ids of jobs that wait or run."""
        return [job_id for job_id, item in self._jobs.items() if not item.status.is_final]

    def get_stats(self) -> dict[str, Any]:
        """How many jobs are active, and how many are in each status."""
        by_status = Counter(item.status.value for item in self._jobs.values())
        return {"active_jobs": len(self.get_active_jobs()), "jobs_by_status": dict(by_status)}
