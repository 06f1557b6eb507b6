"""The boundary to code of others: what a call raised as its own failure, and what may run beside."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.concurrency._background import BackgroundTask
    from lexigram.concurrency._calls import (
        TaskSupervisor,
        call,
        call_in_thread,
        take_back_cancellation,
        time_limit,
    )
    from lexigram.concurrency._failures import as_failure, is_retryable, unwrap_group
    from lexigram.concurrency._suspects import SuspectLock, suspect_lock
    from lexigram.concurrency._sync import call_sync
    from lexigram.concurrency.errors import CallAbortedError, CallTimeoutError
else:
    from lexigram.contracts._lazy import lazy_exports

    # The command line calls code of others without asyncio.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.concurrency._background": ["BackgroundTask"],
            "lexigram.concurrency._calls": [
                "TaskSupervisor",
                "call",
                "call_in_thread",
                "take_back_cancellation",
                "time_limit",
            ],
            "lexigram.concurrency.errors": ["CallAbortedError", "CallTimeoutError"],
            "lexigram.concurrency._failures": ["as_failure", "is_retryable", "unwrap_group"],
            "lexigram.concurrency._suspects": ["SuspectLock", "suspect_lock"],
            "lexigram.concurrency._sync": ["call_sync"],
        },
    )

__all__ = [
    "BackgroundTask",
    "CallAbortedError",
    "CallTimeoutError",
    "SuspectLock",
    "TaskSupervisor",
    "as_failure",
    "call",
    "call_in_thread",
    "call_sync",
    "is_retryable",
    "suspect_lock",
    "take_back_cancellation",
    "time_limit",
    "unwrap_group",
]
