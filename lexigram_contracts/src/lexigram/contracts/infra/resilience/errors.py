"""What the protection around a call raises in its own name."""

from __future__ import annotations

from lexigram.contracts.core.errors import LexigramError


class ResilienceError(LexigramError):
    """A call was refused or given up by the protection around it."""

    code = "LEX_ERR_RES_001"


class BulkheadError(ResilienceError):
    """Too many calls are running and waiting already; this one was not made."""

    code = "LEX_ERR_RES_004"


class RetryExhaustedError(ResilienceError):
    """The last allowed attempt still returned a result that asks for another one."""

    code = "LEX_ERR_RES_006"


class CircuitOpenError(ResilienceError):
    """The circuit is open; the call was not made."""

    code = "LEX_ERR_RES_007"
