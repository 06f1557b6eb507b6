"""Counts outcomes within the last seconds, in buckets: memory does not grow with the calls."""

from __future__ import annotations

from collections import deque

BUCKETS = 10


class SlidingWindow:
    """Successes and failures of the last ``seconds``, exact to a tenth of the window."""

    __slots__ = ("_buckets", "_width", "calls", "failures")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / BUCKETS
        # [number of the bucket, calls, failures], oldest first
        self._buckets: deque[list[int]] = deque()
        self.calls = 0
        self.failures = 0

    def add(self, now: float, *, failed: bool) -> None:
        """Count one outcome at time ``now`` and forget those that are too old."""
        number = int(now / self._width)
        self._forget(number - BUCKETS)
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append([number, 0, 0])
        self._buckets[-1][1] += 1
        self._buckets[-1][2] += failed
        self.calls += 1
        self.failures += failed

    def share(self) -> float:
        """The share of failures, as of the last ``add``."""
        return self.failures / self.calls if self.calls else 0.0

    def clear(self) -> None:
        """Forget everything."""
        self._buckets.clear()
        self.calls = self.failures = 0

    def _forget(self, oldest: int) -> None:
        while self._buckets and self._buckets[0][0] <= oldest:
            _, calls, failures = self._buckets.popleft()
            self.calls -= calls
            self.failures -= failures
