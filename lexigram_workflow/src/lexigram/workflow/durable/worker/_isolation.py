"""Handlers of a worker run side by side; a suspect runs alone.

A suspect is a step or event whose process ended while its handler ran. What runs beside it when
that happens again would be suspected with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Isolation:
    """``await enter(alone=...)`` before a handler, ``leave(alone=...)`` after it.

    A suspect that waits comes before those that have not begun. ``on_end`` is called when the last
    suspect has left.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        # handlers that run side by side
        self.together = 0
        # that wait to run alone, or do
        self._suspects = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """True while a suspect runs or waits: nothing else may begin."""
        return self._suspects > 0

    async def enter(self, *, alone: bool) -> None:
        """Wait until the handler may begin."""
        if alone:
            await self._enter_alone()
            return
        while self._suspects:
            await self._changed.wait()
        self.together += 1

    def leave(self, *, alone: bool) -> None:
        """The handler has ended."""
        if alone:
            self._turn.release()
            self._end_suspect()
        else:
            self.together -= 1
        self._notify()

    async def _enter_alone(self) -> None:
        self._suspects += 1
        try:
            await self._turn.acquire()
            try:
                while self.together:
                    await self._changed.wait()
            except BaseException:
                self._turn.release()
                raise
        except BaseException:
            self._end_suspect()
            self._notify()
            raise

    def _end_suspect(self) -> None:
        self._suspects -= 1
        if not self._suspects:
            self._on_end()

    def _notify(self) -> None:
        # Each waiter looks again; those that come later wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()
