"""Run functions in processes of their own, with a limit of time and memory for each call."""

from lexigram.processes.errors import (
    ProcessCallError,
    ProcessCrashedError,
    ProcessError,
    ProcessMemoryError,
    ProcessPoolClosedError,
    ProcessTimeoutError,
)
from lexigram.processes.pool import ProcessPool

__all__ = [
    "ProcessCallError",
    "ProcessCrashedError",
    "ProcessError",
    "ProcessMemoryError",
    "ProcessPool",
    "ProcessPoolClosedError",
    "ProcessTimeoutError",
]
