"""The time of the process: ``clock.now()``; a test installs another clock for everyone."""

from lexigram.clock.ambient import SystemClock, current, install, monotonic, now, timestamp, use
from lexigram.contracts.core.clock import ClockProtocol

__all__ = [
    "ClockProtocol",
    "SystemClock",
    "current",
    "install",
    "monotonic",
    "now",
    "timestamp",
    "use",
]
