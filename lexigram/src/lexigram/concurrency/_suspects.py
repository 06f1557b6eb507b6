"""At most one suspect runs in a process.

A message, job or step that came back unsettled is a *suspect*: perhaps its handler ended the process
that had it. Two of them must not run at once. If the process ended then, both would be counted as
begun, and one of the two is innocent.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable


class SuspectLock:
    """Held by the worker that runs a suspect, while it runs; for all event loops of the process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}

    def try_acquire(self, on_release: Callable[[], None]) -> bool:
        """True: the caller holds it until ``release``.

        False: another caller does, and ``on_release`` is called once in this event loop when it is
        free. It may be held again by then.
        """
        with self._guard:
            if self._is_held:
                self._waiting[on_release] = asyncio.get_running_loop()
                return False
            self._is_held = True
            return True

    def release(self) -> None:
        """Let the next one run."""
        with self._guard:
            self._is_held = False
            waiting, self._waiting = self._waiting, {}
        for on_release, loop in waiting.items():
            try:
                loop.call_soon_threadsafe(on_release)
            except RuntimeError:  # its loop is closed: nobody waits there any more
                continue

    def reset(self) -> None:
        """Forget everything: in a forked child nobody of the parent runs."""
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting = {}


suspect_lock = SuspectLock()
os.register_at_fork(after_in_child=suspect_lock.reset)
