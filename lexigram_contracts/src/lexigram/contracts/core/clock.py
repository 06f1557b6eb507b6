"""Time as a service, so that tests can hold it still."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class ClockProtocol(Protocol):
    """Tells the time. Wall time may jump in both directions; only ``monotonic`` never goes back.

    Readings of two processes or machines are not ordered.
    """

    def now(self) -> datetime:
        """The wall time, always aware and in UTC."""
        ...

    def timestamp(self) -> float:
        """The wall time in seconds since 1970-01-01 UTC: ``now()`` as a number."""
        ...

    def monotonic(self) -> float:
        """Seconds from an unknown start, never decreasing; for durations and deadlines."""
        ...
