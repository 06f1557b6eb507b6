"""Errors of submitting embedding jobs."""

from __future__ import annotations

from lexigram.ai.workers.errors import WorkerError


class EmbeddingEnqueueError(WorkerError, RuntimeError):
    """The queue did not accept the job."""

    code = "LEX_ERR_AIWORK_027"


class EmbeddingQueueFullError(WorkerError):
    """Too many jobs are pending; the job was not accepted."""

    code = "LEX_ERR_AIWORK_028"
