"""Tell a failure of a handler from the cancellation or the interrupt of its caller.

Use it where a worker calls code of its user::

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

from lexigram.contracts.core.errors import LexigramError


class CallAbortedError(LexigramError):
    """A handler ended with an exception that is no ``Exception``, such as ``SystemExit``.

    The exception itself is the cause.
    """

    code = "LEX_ERR_CORE_002"

    def __init__(self, raised: BaseException) -> None:
        name = type(raised).__name__
        text = f": {raised}" if str(raised) else ""
        super().__init__(
            f"the handler raised {name}{text}",
            details={"raised": name},
            hint=_HINTS.get(type(raised), "raise an Exception instead"),
            cause=raised,
        )


_HINTS: dict[type[BaseException], str] = {
    asyncio.CancelledError: "the handler awaited a task that was cancelled; catch CancelledError there",
    SystemExit: "return from the handler; to stop the process, send it SIGTERM",
}


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


def _is_cancelled() -> bool:
    """True if somebody cancelled the current task, or closed it after its loop had ended."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task.cancelling() > 0
