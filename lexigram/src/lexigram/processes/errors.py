"""Why a call in another process has no result: one class per cause."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import InfrastructureError


class ProcessError(InfrastructureError):
    """A call in another process has no result."""

    code = "LEX_ERR_PROC_001"


class ProcessTimeoutError(ProcessError, TimeoutError):
    """The call took longer than its limit; its process was killed."""

    code = "LEX_ERR_PROC_002"

    def __init__(self, function: str, timeout: float) -> None:
        super().__init__(
            f"{function} took longer than {timeout:g} s; its process was killed",
            details={"function": function, "timeout": timeout},
            hint="pass a larger timeout, or give it less to do",
        )


class ProcessMemoryError(ProcessError, MemoryError):
    """The call needed more memory than its limit; its process ended."""

    code = "LEX_ERR_PROC_003"

    def __init__(self, function: str, memory: int | None) -> None:
        limit = "there is" if memory is None else f"{memory:,} bytes"
        super().__init__(
            f"{function} needed more memory than {limit}; its process ended",
            details={"function": function, "memory": memory},
            hint="pass a larger memory limit, or give it less to do",
        )


class ProcessCrashedError(ProcessError):
    """The process ended during the call: it crashed or was killed."""

    code = "LEX_ERR_PROC_004"

    def __init__(self, function: str, exit_code: int | None) -> None:
        super().__init__(
            f"the process of {function} ended during the call: {_ending(exit_code)}",
            details={"function": function, "exit_code": exit_code},
            hint="call it again; if it happens each time, the input or a native library is broken",
        )


class ProcessCallError(ProcessError):
    """The function raised an exception that cannot be sent as it is."""

    code = "LEX_ERR_PROC_005"

    def __init__(self, function: str, raised: str, text: str, traceback: str) -> None:
        super().__init__(
            f"{function} raised {raised}: {text}",
            details={"function": function, "raised": raised, "traceback": traceback},
            hint="see details['traceback']",
        )


class ProcessPoolClosedError(ProcessError):
    """The pool was closed before or during the call."""

    code = "LEX_ERR_PROC_006"

    def __init__(self, function: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "call it inside of `async with ProcessPool() as pool:`")
        super().__init__(f"the pool of {function} is closed", **kwargs)


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}"
    return f"exit code {exit_code}"
