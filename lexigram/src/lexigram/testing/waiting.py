"""Wait for a state, with a guard against waiting for ever."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast, overload

import anyio

T = TypeVar("T")

# Far more than any state needs, also on a machine that does much else: reaching it means that the
# state never comes.
HANG_GUARD_SECONDS = 30.0
_PAUSES = (0.0,) * 20 + (0.001,) * 20  # most states come within a few turns of the event loop
_LAST_PAUSE = 0.01


# The union alone is too much for mypy: it finds no T for an async predicate.
@overload
async def wait_until(
    predicate: Callable[[], Awaitable[T]], *, timeout: float = HANG_GUARD_SECONDS
) -> T: ...


@overload
async def wait_until(predicate: Callable[[], T], *, timeout: float = HANG_GUARD_SECONDS) -> T: ...


async def wait_until(
    predicate: Callable[[], T | Awaitable[T]],
    *,
    timeout: float = HANG_GUARD_SECONDS,
) -> T:
    """Call ``predicate`` (plain or async) until its answer is true, and return that answer.

    Fails after ``timeout`` seconds with the place of the predicate and its last answer. What
    the predicate raises is raised.
    """
    answer: Any = None
    with anyio.move_on_after(timeout):
        pauses = iter(_PAUSES)
        while True:
            answer = predicate()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return cast("T", answer)
            await anyio.sleep(next(pauses, _LAST_PAUSE))
    raise AssertionError(
        f"waited {timeout:g} s for {_place(predicate)}; its last answer was {answer!r}"
    )


def _place(predicate: Callable[..., Any]) -> str:
    name = getattr(predicate, "__qualname__", repr(predicate))
    code = getattr(predicate, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
