"""What can go wrong with a task queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexigram.contracts.core.errors import DomainError

if TYPE_CHECKING:
    from lexigram.contracts.infra.tasks.types import JobResult


class TaskQueueError(DomainError):
    """A job was not accepted, or the queue failed."""

    code = "LEX_ERR_TASK_001"


class JobRefusedError(TaskQueueError, ValueError):
    """What was given to enqueue is not a job: a wrong key, a wrong value, data without a form."""

    code = "LEX_ERR_TASK_002"
    is_retryable = False


class JobExistsError(TaskQueueError):
    """A job with this id was accepted before; nothing was changed."""

    code = "LEX_ERR_TASK_003"


class JobNotUniqueError(TaskQueueError):
    """A job with this unique key waits or runs; ``job_id`` is its id. Nothing was accepted."""

    code = "LEX_ERR_TASK_004"

    @property
    def job_id(self) -> str:
        """The job that has the key."""
        return str(self.details["job_id"])


class UnknownJobError(TaskQueueError, LookupError):
    """There is no job with this id, or it is no longer kept."""

    code = "LEX_ERR_TASK_005"


class NoHandlerError(TaskQueueError):
    """No handler is registered under the name of the job."""

    code = "LEX_ERR_TASK_006"


class JobEndedError(TaskQueueError):
    """The job whose result was asked for failed or was cancelled; ``result`` says how."""

    code = "LEX_ERR_TASK_007"
    result: JobResult


class JobTimeoutError(TaskQueueError, TimeoutError):
    """An attempt took longer than the job's timeout and was stopped."""

    code = "LEX_ERR_TASK_008"
