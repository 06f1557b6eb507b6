"""What can go wrong in bulk operations."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.workflow.errors import BulkOperationBusyError

__all__ = [
    "BulkOperationBusyError",
    "BulkOperationCancelledError",
    "BulkOperationError",
    "BulkOperationTimeoutError",
]


class BulkOperationError(LexigramError):
    """A bulk operation was used wrongly, or could not give what was asked."""

    code = "LEX_ERR_WF_020"

    def __init__(self, message: str = "Bulk operation error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class BulkOperationTimeoutError(BulkOperationError, TimeoutError):
    """The operation took longer than ``timeout``; finished batches stay finished."""

    code = "LEX_ERR_WF_021"


class BulkOperationCancelledError(BulkOperationError):
    """``cancel()`` was called; finished batches stay finished."""

    code = "LEX_ERR_WF_022"
