"""The ways in which code of users fails, for every place that calls it.

``@pytest.mark.parametrize("fail", WAYS_TO_FAIL)``: ``await fail()`` never returns normally.
``never_return`` is one of them, so the caller needs a time limit (``TIME_LIMIT``).
``WAYS_TO_RAISE`` are those that need none, ``WAYS_TO_RAISE_NOW`` those of code that is not async,
and the first of each is an ordinary ``Exception``. ``WAYS_TO_FAIL_IN_A_TASK`` are
for callers with tasks of their own; elsewhere the task is that of whoever calls.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

TIME_LIMIT = 0.2  # seconds: what to set as the time-out of the handler

Fail = Callable[[], Awaitable[None]]


class CustomBaseException(BaseException):
    """What some libraries raise to get past ``except Exception``."""


def raise_exception() -> None:
    raise ValueError("failed on purpose")


def raise_cancelled() -> None:
    raise asyncio.CancelledError


def raise_generator_exit() -> None:
    raise GeneratorExit


def raise_custom_base_exception() -> None:
    raise CustomBaseException("failed on purpose")


def raise_base_exception_group() -> None:
    raise BaseExceptionGroup("failed on purpose", [CustomBaseException(), asyncio.CancelledError()])


def raise_system_exit() -> None:
    raise SystemExit(3)


async def await_a_cancelled_task() -> None:
    task = asyncio.ensure_future(anyio.sleep_forever())
    task.cancel()
    await task


async def never_return() -> None:
    await anyio.sleep_forever()


async def cancel_its_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.lowlevel.checkpoint()


def block_the_loop(lease: float) -> None:
    """Stand still for three leases, as a long computation does."""
    end = time.monotonic() + 3 * lease
    while time.monotonic() < end:
        pass


def _later(raise_now: Callable[[], None]) -> Fail:
    async def fail() -> None:
        raise_now()

    fail.__name__ = raise_now.__name__
    return fail


RAISING_NOW = (
    raise_exception,
    raise_cancelled,
    raise_generator_exit,
    raise_custom_base_exception,
    raise_base_exception_group,
    raise_system_exit,
)
RAISING: tuple[Fail, ...] = (*map(_later, RAISING_NOW), await_a_cancelled_task)

WAYS_TO_FAIL = [pytest.param(way, id=way.__name__) for way in (*RAISING, never_return)]
WAYS_TO_FAIL_IN_A_TASK = [
    *WAYS_TO_FAIL,
    pytest.param(cancel_its_own_task, id="cancel_its_own_task"),
]
WAYS_TO_RAISE = [pytest.param(way, id=way.__name__) for way in RAISING]
WAYS_TO_RAISE_NOW = [pytest.param(way, id=way.__name__) for way in RAISING_NOW]
FAILURES: dict[str, Fail] = {way.__name__: way for way in RAISING}
