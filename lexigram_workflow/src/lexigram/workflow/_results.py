"""What a function of the user returned: a Result, or a plain value that counts as Ok."""

from __future__ import annotations

from typing import Any, TypeGuard

from lexigram.contracts.core.result import Err, Ok


def is_err(answer: object) -> TypeGuard[Err[Any]]:
    """True for an Err."""
    return type(answer) is Err


def is_ok(answer: object) -> TypeGuard[Ok[Any]]:
    """True for an Ok, not for a plain value."""
    return type(answer) is Ok
