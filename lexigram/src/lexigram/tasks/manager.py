"""Coroutines that run beside their caller, owned so that none is lost."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from lexigram.concurrency import call
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.observability import get_logger

logger = get_logger(__name__)


class TaskManager:
    """Implements TaskManagerProtocol: in this process, nothing is durable.

    What is tracked keeps the context variables of the caller, except that it may not use a
    transaction the caller has open.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def pending_count(self) -> int:
        """How many have not finished."""
        return len(self._tasks)

    def track(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Run it in the background; an exception is logged."""
        self.track_named(getattr(coro, "__qualname__", "task"), coro)

    def track_named(self, name: str, coro: Coroutine[Any, Any, Any]) -> None:
        """The same under a name for logs."""
        if self._closed:
            coro.close()  # else Python warns that it was never awaited
            raise TaskQueueError(
                f"{name} was not started: the task manager is shut down",
                hint="track work before the application stops",
            )
        task = asyncio.get_running_loop().create_task(
            call(lambda: coro), name=name, context=contextvars.copy_context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        task.add_done_callback(lambda _: coro.close())  # one that was cancelled before it began

    async def shutdown(self, timeout: float = 30.0) -> None:
        """Wait for all, then cancel the rest; what resists for as long again is left behind."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            logger.warning("background tasks were cancelled", names=[t.get_name() for t in left])
            _, resisting = await asyncio.wait(left, timeout=timeout)
            if resisting:
                names = [task.get_name() for task in resisting]
                logger.error("background tasks go on: they took no cancellation", names=names)

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self._closed:
                logger.error("a background task was cancelled", task=task.get_name())
        elif (error := task.exception()) is not None:
            logger.error("a background task failed", task=task.get_name(), exc_info=error)
