"""Tell a failure of a handler from the cancellation or the interrupt of its caller.

``lexigram.concurrency.call`` does it for one call. Use ``as_failure`` where that is too narrow::

    try:
        await handler(message)
    except BaseException as error:
        failure = as_failure(error)
        if failure is None:
            raise  # we are cancelled, or the process is interrupted
        await report(failure)
"""

from __future__ import annotations

import asyncio
from typing import cast

from lexigram.concurrency.errors import CallAbortedError
from lexigram.contracts.core.errors import LexigramError


def as_failure(error: BaseException) -> Exception | None:
    """The failure of the call that raised ``error``; None if ``error`` must be raised again.

    An ``Exception`` is returned as it is, any other one as a ``CallAbortedError`` with it as the
    cause. None is returned for a cancellation of the current task (or of a cancel scope around it),
    for ``KeyboardInterrupt``, and for groups with one of them. Must be called in the task that made
    the call.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, BaseExceptionGroup):
        # split() keeps subgroups; one interrupt anywhere in them is enough.
        if error.subgroup(KeyboardInterrupt) is not None:
            return None
        if error.subgroup(asyncio.CancelledError) is not None and _is_cancelled():
            return None
    elif isinstance(error, KeyboardInterrupt) or (
        isinstance(error, asyncio.CancelledError | GeneratorExit) and _is_cancelled()
    ):
        return None
    return CallAbortedError(error)


def unwrap_group(error: Exception) -> Exception:
    """The one error of groups that have just one; any other error as it is."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return unwrap_group(group.exceptions[0]) if len(group.exceptions) == 1 else group


def is_retryable(error: BaseException) -> bool:
    """False for wiring, configuration and every other error that declares it.

    Also in a group, and as the cause of a LexigramError: what wraps it fails in the same way again.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(is_retryable, group.exceptions))
    if not isinstance(error, LexigramError):
        return True
    return error.is_retryable and (error.cause is None or is_retryable(error.cause))


def _is_cancelled() -> bool:
    """True if the current task was cancelled, or closed after its loop had ended."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task.cancelling() > 0
