"""How long to wait before the next try."""

from __future__ import annotations

import random

from attrs import frozen


@frozen(kw_only=True)
class Backoff:
    """Waits that double up to a cap, with jitter so that many waiters do not come at once."""

    first: float = 0.05
    cap: float = 5.0
    # Part of a wait that is random: 0.5 gives waits between 50 % and 100 %.
    jitter: float = 0.5

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the ``attempt``-th failure, counted from 1."""
        doublings = min(max(attempt, 1) - 1, 62)  # beyond that a float overflows
        full = min(self.first * 2.0**doublings, self.cap)
        return full * (1 - self.jitter * random.random())  # noqa: S311 - no secret
