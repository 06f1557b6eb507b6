"""What a function of the user returned: a Result, or a plain value that counts as Ok."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from lexigram.concurrency import is_retryable
from lexigram.contracts.core.result import Err, Ok, Result

T = TypeVar("T")


def is_err(answer: object) -> TypeGuard[Err[Any]]:
    """True for an Err."""
    return type(answer) is Err


def is_ok(answer: object) -> TypeGuard[Ok[Any]]:
    """True for an Ok, not for a plain value."""
    return type(answer) is Ok


def value_or_raise(answer: Result[T, Any]) -> T:
    """The value of an Ok; the error of an Err is raised."""
    if isinstance(answer, Err):
        raise answer.error
    return answer.value


def may_retry(failure: object) -> bool:
    """False when what went wrong is an error that no further attempt can help."""
    error = failure.error if is_err(failure) else failure
    return not isinstance(error, BaseException) or is_retryable(error)
