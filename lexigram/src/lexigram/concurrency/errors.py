"""What a call of a function of others fails with, besides its own exceptions."""

from __future__ import annotations

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
            hint=_HINTS.get(name, "raise an Exception instead"),
            cause=raised,
        )


class CallTimeoutError(LexigramError, TimeoutError):
    """A function of others took longer than its time limit, and was cancelled."""

    code = "LEX_ERR_CORE_003"

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(
            f"{name} took more than {seconds:g} s",
            details={"timeout": seconds},
            hint="make it faster, or raise its time limit",
        )


# By name: the classes would load asyncio, which the command line does without.
_HINTS = {
    "CancelledError": "the handler awaited a task that was cancelled; catch CancelledError there",
    "SystemExit": "return from the handler; to stop the process, send it SIGTERM",
}
