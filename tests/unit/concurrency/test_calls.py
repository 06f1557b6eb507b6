"""``call``: code of others neither ends nor hangs its caller."""

import asyncio

import anyio
import anyio.lowlevel
import pytest
from tests.failures import (
    TIME_LIMIT,
    WAYS_TO_RAISE,
    WAYS_TO_RAISE_NOW,
    never_return,
    raise_exception,
)

from lexigram.concurrency import CallAbortedError, CallTimeoutError, call, call_in_thread

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_what_a_coroutine_raises_is_an_exception(fail, timeout):
    with pytest.raises((CallAbortedError, ValueError)):
        await call(fail, timeout=timeout)


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_what_a_function_raises_is_an_exception_with_the_original_as_its_cause(fail):
    with pytest.raises((CallAbortedError, ValueError)) as caught:
        await call(fail)
    assert (fail is raise_exception) == (caught.value.__cause__ is None)


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_what_a_function_raises_in_a_thread_is_an_exception(fail):
    with pytest.raises((CallAbortedError, ValueError)):
        await call_in_thread(fail)
    assert await call_in_thread(max, 1, 2) == 2


async def test_sync_and_async_functions_get_the_arguments_and_their_value_is_returned():
    async def add(one, other):
        return one + other

    assert await call(add, 1, 2) == 3
    assert await call(max, 1, 2, timeout=60.0) == 2


async def test_a_call_that_takes_too_long_is_cancelled_and_named():
    ended = []

    async def hang():
        try:
            await never_return()
        finally:
            ended.append(True)

    with pytest.raises(CallTimeoutError, match=r"the loader took more than 0\.2 s") as caught:
        await call(hang, timeout=TIME_LIMIT, name="the loader")
    assert ended == [True]
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.details == {"timeout": TIME_LIMIT}


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("how", ["task", "scope"])
async def test_a_cancellation_of_the_caller_passes(how, timeout):
    reached = anyio.Event()

    async def hang():
        reached.set()
        await never_return()

    async def wait():
        await call(hang, timeout=timeout, host=host)

    host = asyncio.current_task()
    if how == "scope":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await reached.wait()
            tasks.cancel_scope.cancel()
        return
    host = task = asyncio.create_task(wait())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("returns", [True, False])
async def test_a_function_that_cancels_the_task_it_runs_in_fails_alone_or_returns(returns):
    async def cancel():
        asyncio.current_task().cancel()
        if not returns:
            await anyio.lowlevel.checkpoint()
        return "value"

    async def work():
        if returns:
            assert await call(cancel, host=host) == "value"
        else:
            with pytest.raises(CallAbortedError):
                await call(cancel, host=host)
        await anyio.lowlevel.checkpoint()
        return asyncio.current_task().cancelling()

    host = asyncio.current_task()
    assert await asyncio.create_task(work()) == 0


async def test_an_interrupt_passes():
    # Closed by hand: the loop would end with what passes.
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(interrupt).send(None)
