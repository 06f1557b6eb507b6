"""Restart the tasks of a worker that fail: a defect must neither end it nor pass in silence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from lexigram.concurrency._calls import call, take_back_cancellation
from lexigram.concurrency._failures import as_failure

RESTART_SHOWN = 60.0  # seconds that health shows a task that failed and was restarted

_log = logging.getLogger(__name__)


class TaskSupervisor:
    """Runs the tasks of one worker. One that fails is logged, restarted after ``delay``, and shown.

    ``delay`` takes the number of failures in a row. ``host`` returns the task that alone may cancel
    the others, directly or by a cancel scope: any other cancellation is a failure. With
    ``give_up_after`` that many failures in a row are too many: the last one is raised, as is any
    failure for which ``is_final`` is True.
    ``on_failure`` is called with the name of a task that failed.
    """

    def __init__(
        self,
        worker: str,
        *,
        delay: Callable[[int], float],
        host: Callable[[], asyncio.Task[Any] | None],
        give_up_after: int | None = None,
        is_final: Callable[[Exception], bool] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._worker = worker
        self._delay = delay
        self._host = host
        self._give_up_after = give_up_after
        self._is_final = is_final
        self._on_failure = on_failure
        self._failed: dict[str, tuple[float, str]] = {}

    async def run(self, task: str, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Call ``work(*args)`` until it returns; each failure restarts it."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                return await call(work, *args, host=self._host())
            except Exception as failure:
                failures = 1 if time.monotonic() - began > RESTART_SHOWN else failures + 1
                if failures == self._give_up_after:
                    raise
                if self._is_final is not None and self._is_final(failure):
                    raise
                self._note(task, failure, "restarted")
            await anyio.sleep(self._delay(failures))

    async def run_once(
        self, task: str, work: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        """Call ``work(*args)``; a failure ends only that call."""
        try:
            await call(work, *args, host=self._host())
        except Exception as failure:  # noqa: BLE001 - logged with its traceback
            self._note(task, failure, "given up")

    @property
    def failed(self) -> dict[str, str]:
        """Tasks that failed within the last minute, with the error."""
        since = time.monotonic() - RESTART_SHOWN
        return {task: text for task, (at, text) in self._failed.items() if at > since}

    async def failure_of(self, error: BaseException) -> Exception | None:
        """``as_failure`` in a task of the worker, also for code that cancels its own task."""
        await self.take_back_cancellation()
        return as_failure(error)

    async def take_back_cancellation(self) -> None:
        """Forget a cancellation of the current task that the worker did not ask for."""
        await take_back_cancellation(self._host())

    def _note(self, task: str, failure: Exception, fate: str) -> None:
        self._failed[task] = (time.monotonic(), f"{type(failure).__name__}: {failure}")
        if self._on_failure is not None:
            self._on_failure(task)
        _log.error("task %s of %s failed and is %s", task, self._worker, fate, exc_info=failure)
