"""The boundary to code of others: what a call raised, as a failure of that call alone."""

from lexigram.concurrency.failures import CallAbortedError, as_failure

__all__ = ["CallAbortedError", "as_failure"]
