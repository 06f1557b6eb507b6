"""What can go wrong when embedding jobs are handed in."""

from __future__ import annotations

from lexigram.ai.workers.errors import WorkerError


class EmbeddingEnqueueError(WorkerError, RuntimeError):
    """The queue did not take the job; nothing was accepted."""

    code = "LEX_ERR_AIWORK_027"


class EmbeddingQueueFullError(WorkerError):
    """So many jobs wait already that this one was refused; nothing was accepted."""

    code = "LEX_ERR_AIWORK_028"
