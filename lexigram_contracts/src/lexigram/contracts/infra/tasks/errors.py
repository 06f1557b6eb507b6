"""What can go wrong with a task queue."""

from __future__ import annotations

from lexigram.contracts.core.errors import DomainError


class TaskQueueError(DomainError):
    """A job was not accepted, or the queue failed."""

    code = "LEX_ERR_TASK_001"
