"""Tasks that live as long as a queue: one owner, awaited when it ends."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup


class Background:
    """A task group with a task of its own, so that any task may open and close it.

    Opened in a request or in a test's fixture, it must not end with that task, nor see its
    context (a transaction, a span).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._owner: asyncio.Task[None] | None = None
        self._group: TaskGroup | None = None
        self._stop = anyio.Event()
        # Work that a callback of the event loop started, and its wake-up.
        self._called: list[Callable[[TaskGroup], object]] = []
        self._wake = anyio.Event()

    @property
    def is_open(self) -> bool:
        """True between ``open`` and ``close``."""
        return self._group is not None

    @property
    def host(self) -> asyncio.Task[None] | None:
        """The task that alone may cancel the others (see ``lexigram.concurrency.call``)."""
        return self._owner

    async def open(self) -> None:
        """Begin; a second time does nothing."""
        if self._owner is not None:
            return
        self._stop, self._wake = anyio.Event(), anyio.Event()
        ready = anyio.Event()
        self._owner = asyncio.get_running_loop().create_task(
            self._own(ready), name=self._name, context=contextvars.Context()
        )
        await ready.wait()

    def start(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: str) -> None:
        """Run ``work(*args)`` until it returns or everything is closed."""
        assert self._group is not None, "opened first"
        if asyncio.current_task() is None:
            # A timer of the loop: where sniffio is installed, anyio starts nothing outside a task.
            self._called.append(lambda group: group.start_soon(work, *args, name=name))
            self._wake.set()
        else:
            self._group.start_soon(work, *args, name=name)

    async def close(self) -> None:
        """Cancel what still runs and wait for it; raises the error of a failed task."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        self._stop.set()
        self._wake.set()
        await owner

    async def _own(self, ready: anyio.Event) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                ready.set()
                while not self._stop.is_set():
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    called, self._called = self._called, []
                    for start in called:
                        start(group)
                group.cancel_scope.cancel()
        finally:
            self._group = None
