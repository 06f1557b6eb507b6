"""The clock of the machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import final


@final
class SystemClock:
    """Reads the machine's clocks."""

    __slots__ = ()

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        return datetime.now(UTC)

    def timestamp(self) -> float:
        """The wall time in seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an unknown start, never decreasing."""
        return time.monotonic()
