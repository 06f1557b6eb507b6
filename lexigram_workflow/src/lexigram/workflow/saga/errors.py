"""What can go wrong in sagas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.workflow.errors import (
    SagaBusyError,
    SagaStepError,
    SagaVersionMismatchError,
)

__all__ = [
    "SagaBusyError",
    "SagaDefinitionError",
    "SagaError",
    "SagaStepError",
    "SagaVersionMismatchError",
]


class SagaError(LexigramError):
    """A saga failed at a step; what it had done was undone unless ``compensation_errors``."""

    code = "LEX_ERR_WF_019"

    def __init__(
        self,
        step_name: str,
        cause: object = None,
        *,
        saga_id: str | None = None,
        compensation_errors: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        left = dict(compensation_errors or {})
        which = f"saga {saga_id!r}" if saga_id else "the saga"
        text = f"{which} failed at step {step_name!r}: {describe(cause)}"
        if left:
            names = ", ".join(f"{name!r} ({why})" for name, why in left.items())
            text += f"; not undone: {names}"
            kwargs.setdefault("hint", "undo them by hand, or call compensate() to try again")
        super().__init__(text, **kwargs)
        if isinstance(cause, BaseException):
            self.__cause__ = cause
        self.step_name = step_name
        # what the step raised or gave as Err; not always an exception
        self.reason = cause
        self.saga_id = saga_id
        self.compensation_errors = left


class SagaDefinitionError(LexigramError, ValueError):
    """The steps of a saga cannot be run, or do not fit what is stored of it."""

    code = "LEX_ERR_WF_121"
    is_retryable = False


def describe(cause: object) -> str:
    """What a step raised or gave as Err: the class of an error, and its message."""
    if not isinstance(cause, BaseException):
        return str(cause)
    message = cause.message if isinstance(cause, LexigramError) else cause
    return f"{type(cause).__name__}: {message}"
