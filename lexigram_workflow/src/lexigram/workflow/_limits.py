"""Time limits that users give: seconds above 0, or None for no limit."""

from __future__ import annotations


def is_time_limit(seconds: float | None) -> bool:
    """Whether ``seconds`` can be a time limit. Infinity is no limit, NaN is none at all."""
    return seconds is None or seconds > 0


def check_time_limit(name: str, seconds: float | None) -> None:
    """Raise ValueError for a number that is no time limit."""
    if not is_time_limit(seconds):
        raise ValueError(f"{name} is {seconds!r} s. Fix: give more than 0, or None for no limit")
