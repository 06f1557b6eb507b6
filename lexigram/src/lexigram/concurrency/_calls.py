"""Call functions of others, once or as tasks, so that they can neither end nor hang their caller."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, overload

import anyio
from anyio import to_thread

from lexigram.concurrency._failures import as_failure
from lexigram.concurrency._sync import call_sync
from lexigram.concurrency.errors import CallTimeoutError

T = TypeVar("T")

RESTART_SHOWN = 60.0  # seconds that health shows a task that failed and was restarted

_log = logging.getLogger(__name__)


@overload
async def call(
    function: Callable[..., Awaitable[T]],
    /,
    *args: Any,
    timeout: float | None = None,
    name: str = "the handler",
    host: asyncio.Task[Any] | None = None,
) -> T: ...
@overload
async def call(
    function: Callable[..., T],
    /,
    *args: Any,
    timeout: float | None = None,
    name: str = "the handler",
    host: asyncio.Task[Any] | None = None,
) -> T: ...
async def call(
    function: Callable[..., Any],
    /,
    *args: Any,
    timeout: float | None = None,
    name: str = "the handler",
    host: asyncio.Task[Any] | None = None,
) -> Any:
    """Call a function, sync or async; whatever it raises is an ``Exception`` of this call.

    Only ``KeyboardInterrupt`` and a cancellation of the caller pass. After ``timeout`` seconds the
    call is cancelled, which is a CallTimeoutError that names the function as ``name``.

    ``host`` is for supervisors: the task that alone may cancel the current one, directly or by a
    cancel scope. A function that cancels the task it runs in then fails like any other, if it does
    not return before it notices.
    """
    try:
        if timeout is None:
            answer = function(*args)
            result = await answer if inspect.isawaitable(answer) else answer
        else:
            result = await _within(timeout, name, function, args)
    except BaseException as error:
        await take_back_cancellation(host)
        failure = as_failure(error)
        if failure is None or failure is error:
            raise
        raise failure from error
    await take_back_cancellation(host)
    return result


async def call_in_thread(
    function: Callable[..., T], /, *args: Any, abandon_on_cancel: bool = False
) -> T:
    """Call a sync function in a worker thread; whatever it raises is an ``Exception``.

    Out of a thread, ``GeneratorExit`` would close the coroutines that wait for it.
    """
    return await to_thread.run_sync(call_sync, function, *args, abandon_on_cancel=abandon_on_cancel)


async def _within(
    seconds: float, name: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    with time_limit(seconds, name):
        answer = function(*args)
        return await answer if inspect.isawaitable(answer) else answer


@contextlib.contextmanager
def time_limit(seconds: float | None, name: str) -> Iterator[None]:
    """Cancel the block after so many seconds, and raise a CallTimeoutError that names it.

    None is no limit.
    """
    with anyio.move_on_after(seconds) as limit:
        yield
    if limit.cancelled_caught:
        assert seconds is not None
        raise CallTimeoutError(name, seconds)


async def take_back_cancellation(host: asyncio.Task[Any] | None) -> bool:
    """Forget a cancellation of the current task that neither its host nor a scope asked for.

    ``call`` does it; for a supervisor that has to call in a shorter way. True if there was one.
    """
    task = asyncio.current_task()
    if host is None or task is None or not task.cancelling() or host.cancelling():
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return False
    with contextlib.suppress(asyncio.CancelledError):
        # Before Python 3.13 uncancel() leaves a request that the task has not met yet.
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()
    return True


class TaskSupervisor:
    """Runs the tasks of one worker: a defect must neither end it nor pass in silence.

    One that fails is logged, restarted after ``delay``, and shown.

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
