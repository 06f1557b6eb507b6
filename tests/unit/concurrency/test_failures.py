"""Whose exception it is: the handler's, or that of whoever cancelled its caller."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from lexigram.concurrency import CallAbortedError, as_failure, is_retryable, unwrap_group
from lexigram.contracts.core.errors import ConfigurationError, LexigramError
from lexigram.di.errors import ContainerError, ContainerValidationError, UnresolvableDependencyError


class Abort(BaseException):
    pass


async def await_a_cancelled_task() -> None:
    task = asyncio.ensure_future(anyio.sleep_forever())
    task.cancel()
    await task


async def leave_a_scope_then_await_a_cancelled_task() -> None:
    with anyio.move_on_after(0):
        await anyio.sleep_forever()
    await await_a_cancelled_task()


async def call(handler: Callable[[], Awaitable[None]]) -> Exception | None:
    try:
        await handler()
    except BaseException as error:
        failure = as_failure(error)
        if failure is None:
            raise
        return failure
    return None


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def handler() -> None:
        raise error

    return handler


@pytest.mark.parametrize(
    "error",
    [
        Abort("stop"),
        GeneratorExit(),
        SystemExit(3),
        BaseExceptionGroup("several", [Abort(), ValueError("one")]),
        BaseExceptionGroup("several", [asyncio.CancelledError()]),
        asyncio.CancelledError(),
    ],
    ids=["base", "generator-exit", "system-exit", "group", "group-of-cancelled", "cancelled"],
)
async def test_what_is_no_exception_is_a_failure_with_itself_as_the_cause(
    error: BaseException,
) -> None:
    failure = await call(raising(error))

    assert isinstance(failure, CallAbortedError)
    assert failure.cause is error
    assert type(error).__name__ in str(failure)


@pytest.mark.parametrize(
    "handler", [await_a_cancelled_task, leave_a_scope_then_await_a_cancelled_task]
)
async def test_a_cancelled_task_of_the_handler_is_a_failure(
    handler: Callable[[], Awaitable[None]],
) -> None:
    failure = await call(handler)

    assert isinstance(failure, CallAbortedError)
    assert isinstance(failure.cause, asyncio.CancelledError)


async def test_an_exception_is_its_own_failure() -> None:
    error = ValueError("wrong")

    assert await call(raising(error)) is error


async def test_the_cancellation_of_a_scope_around_the_call_passes() -> None:
    with anyio.move_on_after(0) as scope:
        await call(anyio.sleep_forever)

    assert scope.cancelled_caught


async def test_the_cancellation_of_the_task_passes() -> None:
    task = asyncio.ensure_future(call(anyio.sleep_forever))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_group_of_the_handler_that_is_cancelled_from_outside_passes() -> None:
    async def handler() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(anyio.sleep_forever)

    with anyio.move_on_after(0) as scope:
        await call(handler)

    assert scope.cancelled_caught


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), BaseExceptionGroup("several", [ValueError(), KeyboardInterrupt()])],
    ids=["alone", "in-a-group"],
)
async def test_an_interrupt_passes(error: BaseException) -> None:
    # Raised by hand: the loop would end with it.
    assert as_failure(error) is None


def test_a_coroutine_that_is_closed_without_a_loop_ends() -> None:
    coroutine = call(_suspend)
    coroutine.send(None)

    coroutine.close()


async def _suspend() -> None:
    await _Once()


class _Once:
    def __await__(self):
        yield


def test_the_error_of_groups_with_one_error_is_unwrapped() -> None:
    error, others = ValueError("one"), ExceptionGroup("two", [ValueError(), KeyError()])

    assert unwrap_group(ExceptionGroup("outer", [ExceptionGroup("inner", [error])])) is error
    assert unwrap_group(ExceptionGroup("outer", [others])) is others
    assert unwrap_group(error) is error


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("no key"),
        ContainerValidationError([], title="1 problem"),
        UnresolvableDependencyError("nothing provides Repo"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_wiring_and_configuration_are_not_retryable_also_in_a_group(
    error: LexigramError,
) -> None:
    assert not is_retryable(error)
    assert not is_retryable(ExceptionGroup("two", [ValueError(), ExceptionGroup("one", [error])]))


@pytest.mark.parametrize(
    "error",
    [ValueError(), LexigramError("busy"), ContainerError("the container is closed"), Abort()],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_retryable(error: BaseException) -> None:
    assert is_retryable(error)
