"""Clocks that tests hold in their hands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2025, 1, 1, tzinfo=UTC)


class FixedClock:
    """A clock that stands still: every reading is the same."""

    def __init__(self, at: datetime = START) -> None:
        self._now = _utc(at)

    def now(self) -> datetime:
        """The time it was given."""
        return self._now

    def timestamp(self) -> float:
        """The same, in seconds since 1970."""
        return self._now.timestamp()

    def monotonic(self) -> float:
        """Always zero: no time passes."""
        return 0.0


class FakeClock:
    """A clock that moves only on request.

    ``advance`` lets time pass. ``set`` moves the wall time alone, forwards or back, as an
    operator or a time server would: ``monotonic`` does not notice.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = _utc(start)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The wall time, in UTC."""
        return self._now

    def timestamp(self) -> float:
        """The wall time in seconds since 1970."""
        return self._now.timestamp()

    def monotonic(self) -> float:
        """Seconds that were let pass since the clock was made."""
        return self._monotonic

    def advance(self, by: float | timedelta) -> datetime:
        """Let time pass (a number is seconds) and return the new wall time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"time does not pass backwards ({by!r}); set() moves the wall time")
        self._now += step
        self._monotonic += step.total_seconds()
        return self._now

    def tick(self, times: int = 1) -> datetime:
        """Let one second pass, or several."""
        return self.advance(times)

    def set(self, at: datetime) -> None:
        """Move the wall time to ``at``; no time passes."""
        self._now = _utc(at)


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; a clock tells aware times, such as in UTC")
    return at.astimezone(UTC)
