"""``BackgroundTask``: started in one task, stopped in another, and its failure is not lost."""

import asyncio
from contextvars import ContextVar

import anyio
import pytest
from tests.failures import WAYS_TO_RAISE

from lexigram.concurrency import BackgroundTask, CallAbortedError

pytestmark = pytest.mark.anyio

GUARD = 30.0
ambient: ContextVar[str] = ContextVar("ambient", default="empty")


async def serve(task):
    task.set_ready()
    await task.stopping.wait()


async def test_it_runs_from_start_to_stop_whoever_calls_and_again():
    task = BackgroundTask("loop", serve)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task.start)
        await task.start()  # it runs already
        assert task.is_running
        assert task.host.get_name() == "loop"
        await task.stop()
        await task.stop()
        assert (task.is_running, task.failure) == (False, None)
        await task.wait()


async def test_it_does_not_see_the_context_of_its_caller():
    found = []

    async def work(task):
        found.append(ambient.get())

    token = ambient.set("a transaction")
    task = BackgroundTask("loop", work)
    await task.start()
    await task.wait()
    ambient.reset(token)
    assert found == ["empty"]


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failure_before_it_is_ready_is_raised_by_start_and_wait(fail):
    async def work(task):
        await fail()

    task = BackgroundTask("loop", work)
    for wait in (task.start, task.wait):
        with pytest.raises(Exception) as caught:
            await wait()
        assert task.failure is caught.value
    assert not task.is_running
    await task.stop()


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failure_after_it_was_ready_is_raised_by_wait(fail):
    go = anyio.Event()

    async def work(task):
        task.set_ready()
        await go.wait()
        await fail()

    task = BackgroundTask("loop", work)
    await task.start()
    go.set()
    with anyio.fail_after(GUARD), pytest.raises((CallAbortedError, ValueError)):
        await task.wait()
    assert not task.is_running


async def test_the_only_failure_of_a_group_is_the_failure():
    async def fail():
        raise ValueError("on purpose")

    async def work(task):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    with pytest.raises(ValueError, match="on purpose"):
        await BackgroundTask("loop", work).start()


async def test_a_wait_for_the_end_that_is_cancelled_cancels_it():
    begun, ended = anyio.Event(), anyio.Event()

    async def work(task):
        task.set_ready()
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    task = BackgroundTask("loop", work)
    await task.start()
    await begun.wait()
    stopping = asyncio.create_task(task.stop())
    await task.stopping.wait()
    stopping.cancel()
    with anyio.fail_after(GUARD):
        await ended.wait()
    assert task.failure is None


async def test_a_pause_ends_when_it_is_stopped():
    async def work(task):
        task.set_ready()
        while not task.stopping.is_set():
            await task.pause(GUARD * 10)

    task = BackgroundTask("loop", work)
    await task.start()
    with anyio.fail_after(GUARD):
        await task.stop()
