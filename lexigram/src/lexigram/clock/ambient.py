"""One clock for the whole process, seen by every task and thread; that of the machine by default.

A plain variable on purpose: a ContextVar set in one task (say, a provider's boot) would be
invisible to all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import final

from lexigram.contracts.core.clock import ClockProtocol


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


_lock = Lock()
_installed: ClockProtocol = SystemClock()
# Clocks of open ``use`` blocks. Blocks of different tasks may end in any order: each takes out
# its own entry, and the newest left counts.
_in_use: list[tuple[object, ClockProtocol]] = []
_current: ClockProtocol = _installed


def current() -> ClockProtocol:
    """The clock in effect."""
    return _current


def now() -> datetime:
    """The wall time of the clock in effect, aware and in UTC."""
    return _current.now()


def timestamp() -> float:
    """The wall time of the clock in effect, in seconds since 1970-01-01 UTC."""
    return _current.timestamp()


def monotonic() -> float:
    """Seconds of the clock in effect that never go back; for durations and deadlines."""
    return _current.monotonic()


def install(clock: ClockProtocol) -> None:
    """Make ``clock`` the clock of the process until the next ``install``.

    An open ``use`` block goes on with its own clock until it ends.
    """
    global _installed  # noqa: PLW0603 - the variable this module is about
    with _lock:
        _installed = clock
        _refresh()


@contextmanager
def use(clock: ClockProtocol) -> Iterator[ClockProtocol]:
    """Make ``clock`` the clock of the process inside the block; for tests."""
    entry = (object(), clock)
    with _lock:
        _in_use.append(entry)
        _refresh()
    try:
        yield clock
    finally:
        with _lock:
            _in_use.remove(entry)
            _refresh()


def _refresh() -> None:
    global _current  # noqa: PLW0603 - the variable this module is about
    _current = _in_use[-1][1] if _in_use else _installed
