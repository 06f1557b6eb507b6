"""One task of a worker, made by ``start`` and ended by ``stop``, that can be watched."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import anyio


class BackgroundTask:
    """Runs ``work(stopping)`` until it returns; ``stopping`` is set when it should.

    The owner of the task is the worker, not whoever called ``start``: a user's test may start a
    worker in one task and stop it in another, which a task group does not allow.
    """

    def __init__(self, name: str, work: Callable[[anyio.Event], Awaitable[None]]) -> None:
        self.name = name
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._stopping = anyio.Event()
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """True from ``start`` until it ended, well or not."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin; a second call while it runs does nothing."""
        if self.is_running:
            return
        self._stopping, self._failure = anyio.Event(), None
        # An empty context: work must not inherit a transaction or a job of whoever starts us.
        self._task = asyncio.create_task(
            self._run(self._stopping), name=self.name, context=contextvars.Context()
        )

    async def stop(self) -> None:
        """Ask it to end and wait; cancelled while waiting, it is cancelled too."""
        task = self._task
        if task is None:
            return
        self._stopping.set()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        self._task = None

    async def wait(self) -> None:
        """Return when it was stopped, or is not running; raise what it died of."""
        task = self._task
        if task is not None:
            await asyncio.wait({task})
        if self._failure is not None:
            raise self._failure

    async def _run(self, stopping: anyio.Event) -> None:
        try:
            await self._work(stopping)
        except Exception as error:  # noqa: BLE001 - kept for ``wait``, whose caller decides
            self._failure = error


async def pause(stopping: anyio.Event, seconds: float) -> None:
    """Sleep, but not longer than until the stop."""
    with anyio.move_on_after(seconds):
        await stopping.wait()
