"""The ways in which code of users fails, for every place that calls it.

``@pytest.mark.parametrize("fail", WAYS_TO_FAIL)``: ``await fail()`` never returns normally.
``never_return`` is one of them, so the caller needs a time limit (``TIME_LIMIT``).
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

TIME_LIMIT = 0.2  # seconds: what to set as the time-out of the handler

Fail = Callable[[], Awaitable[None]]


class CustomBaseException(BaseException):
    """What some libraries raise to get past ``except Exception``."""


async def raise_exception() -> None:
    raise ValueError("failed on purpose")


async def await_a_cancelled_task() -> None:
    task = asyncio.ensure_future(anyio.sleep_forever())
    task.cancel()
    await task


async def raise_generator_exit() -> None:
    raise GeneratorExit


async def raise_custom_base_exception() -> None:
    raise CustomBaseException("failed on purpose")


async def raise_base_exception_group() -> None:
    raise BaseExceptionGroup("failed on purpose", [CustomBaseException(), asyncio.CancelledError()])


async def raise_system_exit() -> None:
    raise SystemExit(3)


async def never_return() -> None:
    await anyio.sleep_forever()


RAISING: tuple[Fail, ...] = (
    raise_exception,
    await_a_cancelled_task,
    raise_generator_exit,
    raise_custom_base_exception,
    raise_base_exception_group,
    raise_system_exit,
)

WAYS_TO_FAIL = [pytest.param(way, id=way.__name__) for way in (*RAISING, never_return)]
WAYS_TO_RAISE = [pytest.param(way, id=way.__name__) for way in RAISING]
FAILURES: dict[str, Fail] = {way.__name__: way for way in RAISING}
