"""A task that is started in one task and may be stopped in another."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import anyio

from lexigram.concurrency._calls import call
from lexigram.concurrency._failures import unwrap_group


class BackgroundTask:
    """Runs ``work(task)`` in a task of its own until it returns.

    ``work`` is given this object: it calls ``set_ready()`` when it has started, and returns soon
    after ``stopping`` is set. The task belongs to this object and not to the caller of ``start``,
    which a task group does not allow: a fixture may start it and a test stop it.
    """

    def __init__(self, name: str, work: Callable[[BackgroundTask], Awaitable[None]]) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self.failure: Exception | None = None  # what ended ``work``; None after a normal end
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """True from ``start`` until the task has ended, with or without a failure."""
        return self._task is not None and not self._task.done()

    @property
    def host(self) -> asyncio.Task[None] | None:
        """The task that alone may cancel the tasks under it (see ``call``)."""
        return self._task

    async def start(self) -> None:
        """Start it; returns when it is ready or has ended, and raises what it failed with until then.

        A second call while it runs does nothing.
        """
        if self.is_running:
            return
        self.stopping, self._ready, self.failure = asyncio.Event(), asyncio.Event(), None
        # An empty context: the work must not inherit a transaction or a job of the caller.
        self._task = asyncio.create_task(self._run(), name=self.name, context=contextvars.Context())
        await self._ready.wait()
        if self.failure is not None:
            raise self.failure

    def set_ready(self) -> None:
        """Let ``start`` return."""
        self._ready.set()

    async def stop(self) -> None:
        """Set ``stopping`` and wait for the end; a cancelled wait cancels the task."""
        task = self._task
        if task is None:
            return
        self.stopping.set()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        self._task = None

    async def wait(self) -> None:
        """Wait until the task has ended; raises its failure."""
        if self._task is not None:
            await asyncio.wait({self._task})
        if self.failure is not None:
            raise self.failure

    async def pause(self, seconds: float) -> None:
        """For ``work``: sleep, but not longer than until ``stopping`` is set."""
        with anyio.move_on_after(seconds):
            await self.stopping.wait()

    async def _run(self) -> None:
        try:
            await call(self._work, self)
        except Exception as error:  # noqa: BLE001 - kept for ``start`` and ``wait``
            self.failure = unwrap_group(error)
        finally:
            self._ready.set()
