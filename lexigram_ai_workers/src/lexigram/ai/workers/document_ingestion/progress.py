"""How far the ingestions of this process are; bounded."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from lexigram.ai.workers.document_ingestion.types import IngestionProgress, IngestionStatus
from lexigram.ai.workers.kept_progress import KeptProgress


class ProgressTracker(KeptProgress[IngestionProgress]):
    """Keeps at most ``max_jobs``: ended ones go first, then those not touched for longest."""

    async def initialize_progress(self, job_id: str, document_id: str) -> IngestionProgress:
        """Begin a job, or an attempt at one."""
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
        """Report on a job by its id, else on the latest job of the document; unknown: nothing."""
        key = job_id if job_id is not None else self._latest(document_id)
        known = None if key is None else self._touched(key)
        if known is None:
            return
        if total_chunks is not None:
            known.total_chunks = total_chunks
        if total_pages is not None:
            known.total_pages = total_pages
        known.update(status, total_pages, chunks_processed, error)

    async def get_all_progress(self) -> dict[str, IngestionProgress]:
        """Snapshots of all jobs that are kept."""
        return {job_id: evolve(known) for job_id, known in self._jobs.items()}

    def get_stats(self) -> dict[str, Any]:
        """How many are under way, completed and failed."""
        statuses = [known.status for known in self._jobs.values()]
        return {
            "active_jobs": sum(not status.is_final for status in statuses),
            "completed_jobs": statuses.count(IngestionStatus.COMPLETED),
            "failed_jobs": statuses.count(IngestionStatus.FAILED),
        }

    def _latest(self, document_id: str) -> str | None:
        jobs = reversed(self._jobs.items())
        return next((job for job, known in jobs if known.document_id == document_id), None)
