"""Call a function of others so that it can neither end nor hang its caller."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, overload

import anyio
from anyio import to_thread

from lexigram.concurrency._failures import as_failure
from lexigram.concurrency._sync import call_sync
from lexigram.concurrency.errors import CallTimeoutError

T = TypeVar("T")


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
