"""Progress of the ingestions of this process."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from lexigram.ai.workers.bounded_progress import BoundedProgress
from lexigram.ai.workers.document_ingestion.types import IngestionProgress, IngestionStatus


class ProgressTracker(BoundedProgress[IngestionProgress]):
    """Keeps ``max_jobs`` entries; evicts finished jobs first, then the least recently updated."""

    async def initialize_progress(self, job_id: str, document_id: str) -> IngestionProgress:
        """Start a job or a new attempt."""
        return self._begin(job_id, IngestionProgress(document_id))

    async def update_progress(
        self,
        document_id: str,
        status: IngestionStatus | None = None,
        total_chunks: int | None = None,
        chunks_processed: int | None = None,
        error: str | None = None,
        *,
        job_id: str | None = None,
        total_pages: int | None = None,
    ) -> None:
        """Update a job by id, else the latest job of the document; unknown jobs are ignored."""
        key = job_id if job_id is not None else self._latest(document_id)
        progress = None if key is None else self._touch(key)
        if progress is None:
            return
        if total_chunks is not None:
            progress.total_chunks = total_chunks
        if total_pages is not None:
            progress.total_pages = total_pages
        progress.update(status, total_pages, chunks_processed, error)

    async def get_all_progress(self) -> dict[str, IngestionProgress]:
        """Return snapshots of all jobs."""
        return {job_id: evolve(progress) for job_id, progress in self._jobs.items()}

    def get_stats(self) -> dict[str, Any]:
        """Count active, completed and failed jobs."""
        statuses = [progress.status for progress in self._jobs.values()]
        return {
            "active_jobs": sum(not status.is_final for status in statuses),
            "completed_jobs": statuses.count(IngestionStatus.COMPLETED),
            "failed_jobs": statuses.count(IngestionStatus.FAILED),
        }

    def _latest(self, document_id: str) -> str | None:
        jobs = reversed(self._jobs.items())
        return next((job for job, progress in jobs if progress.document_id == document_id), None)
