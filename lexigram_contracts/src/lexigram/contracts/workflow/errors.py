"""Errors that stores and steps written by users share with the workflow package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.core.errors import LexigramError


class PipelineExecutionError(LexigramError):
    """A pipeline stopped at a step; ``error`` says why and is the cause when an exception."""

    code = "LEX_ERR_PIPE_001"

    def __init__(
        self,
        step_name: str,
        error: object,
        details: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(error, BaseException):
            kwargs.setdefault("cause", error)
        super().__init__(f"Pipeline step {step_name!r} failed: {error}", details=details, **kwargs)
        self.step_name = step_name
        self.error = error


class PipelineStepError(LexigramError):
    """A step failed for a reason of its own."""

    code = "LEX_ERR_PIPE_002"


class SagaStepError(LexigramError):
    """The action or the compensation of a saga step failed."""

    code = "LEX_ERR_WF_002"

    def __init__(self, detail: str, step_name: str = "", **kwargs: Any) -> None:
        super().__init__(f"Saga step {step_name!r}: {detail}" if step_name else detail, **kwargs)
        self.detail = detail
        self.step_name = step_name


class SagaVersionMismatchError(LexigramError):
    """A stored saga was written by another version of its class."""

    code = "LEX_ERR_WF_009"

    def __init__(
        self, saga_id: str, expected_version: int, stored_version: int, **kwargs: Any
    ) -> None:
        kwargs.setdefault("hint", "finish old sagas with the old version, or add an upgrade")
        super().__init__(
            f"saga {saga_id!r} is stored in version {stored_version}, "
            f"this code has version {expected_version}",
            **kwargs,
        )
        self.saga_id = saga_id
        self.expected_version = expected_version
        self.stored_version = stored_version


class StateVersionConflictError(LexigramError, RuntimeError):
    """Somebody else moved the state machine since its version was read."""

    code = "LEX_ERR_WF_101"

    def __init__(
        self, machine_id: str, expected_version: int, actual_version: int, **kwargs: Any
    ) -> None:
        kwargs.setdefault("hint", "recover() the machine and decide again")
        super().__init__(
            f"state machine {machine_id!r} is at version {actual_version}, "
            f"not at {expected_version}",
            **kwargs,
        )
        self.machine_id = machine_id
        self.expected_version = expected_version
        self.actual_version = actual_version
