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


class WorkflowError(PipelineExecutionError):
    """Something about a workflow went wrong; base of the errors around single runs."""

    code = "LEX_ERR_WF_003"

    def __init__(
        self, message: str = "Workflow error", step_name: str = "workflow", **kwargs: Any
    ) -> None:
        super().__init__(step_name, message, **kwargs)
        self.message = message


class WorkflowNotFoundError(WorkflowError, LookupError):
    """There is no workflow or run with this id."""

    code = "LEX_ERR_WF_004"

    def __init__(self, workflow_id: str, **kwargs: Any) -> None:
        super().__init__(f"there is no workflow or run {workflow_id!r}", **kwargs)
        self.workflow_id = workflow_id


class CheckpointConflictError(LexigramError):
    """Another process wrote this checkpoint of the run, or the run exists already."""

    code = "LEX_ERR_WF_110"

    def __init__(self, run_id: str, seq: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "one process at a time works on a run; let the other one finish")
        super().__init__(f"checkpoint {seq} of run {run_id!r} is there already", **kwargs)
        self.run_id = run_id
        self.seq = seq


class StateVersionConflictError(LexigramError, RuntimeError):
    """Another process moved the state machine since its version was read."""

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


class SagaBusyError(LexigramError):
    """Another process works on the saga, or took it over from this one."""

    code = "LEX_ERR_WF_120"

    def __init__(
        self,
        saga_id: str,
        owner: str | None = None,
        leased_until: float | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault(
            "hint", "let it finish; resume(take_over=True) if you know that it is dead"
        )
        by = f" by {owner}" if owner else " by another owner"
        super().__init__(f"saga {saga_id!r} is worked on{by}", **kwargs)
        self.saga_id = saga_id
        self.owner = owner
        # seconds since 1970-01-01 UTC by the clock of the store
        self.leased_until = leased_until


class BulkOperationBusyError(LexigramError):
    """Another process works on the bulk operation, or took it over from this one."""

    code = "LEX_ERR_WF_023"

    def __init__(self, operation_id: str, owner: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint", "let it finish; execute(..., take_over=True) if you know that it is dead"
        )
        by = f" by {owner}" if owner else " by another owner"
        super().__init__(f"bulk operation {operation_id!r} is worked on{by}", **kwargs)
        self.operation_id = operation_id
        self.owner = owner


class StepRefusedError(LexigramError):
    """A durable step's input can never work: it fails at once, whatever attempts are left.

    Handlers raise it for a document that is broken, encrypted or not allowed; anything else they
    raise is tried again.
    """

    code = "LEX_ERR_WF_134"
    is_retryable = False


class InvalidRunError(LexigramError, ValueError):
    """A value of a durable run is out of bounds; ``details["field"]`` names it."""

    code = "LEX_ERR_WF_135"
    is_retryable = False
