"""Errors of the AI workers: one base, one class per cause."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.ai.errors import AIError


class WorkerError(AIError):
    """Base class of the errors of AI workers."""

    code = "LEX_ERR_AIWORK_001"

    def __init__(self, message: str = "worker error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class DLQError(WorkerError):
    """A dead letter could not be stored, found or retried."""

    code = "LEX_ERR_AIWORK_002"

    def __init__(self, message: str = "dead letter error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class MaintenanceError(WorkerError):
    """A maintenance task is invalid or failed."""

    code = "LEX_ERR_AIWORK_003"

    def __init__(self, message: str = "maintenance error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class UnknownMaintenanceTaskError(MaintenanceError, ValueError):
    """No maintenance task has this name."""

    code = "LEX_ERR_AIWORK_004"
    is_retryable = False


class WorkerSetupError(WorkerError):
    """A worker cannot start because of a missing or invalid setting."""

    code = "LEX_ERR_AIWORK_005"
    is_retryable = False


class JobNotTakenError(WorkerError, RuntimeError):
    """The task queue did not accept a job of an adapter."""

    code = "LEX_ERR_AIWORK_006"
