"""Whatever a job or a scheduled function does is a failure of that one call."""

import asyncio
import contextlib
import logging

import anyio
import pytest
from tests.failures import (
    TIME_LIMIT,
    WAYS_TO_FAIL_IN_A_TASK,
    WAYS_TO_RAISE,
    WAYS_TO_RAISE_NOW,
    Fail,
    block_the_loop,
    cancel_its_own_task,
    never_return,
)

from lexigram.app import Application
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.schedule import SchedulerProtocol
from lexigram.contracts.infra.tasks import JobStatus, TaskQueueProtocol
from lexigram.schedule import Callbacks, FiringState, ScheduleConfig, ScheduleModule, scheduled
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import (
    InMemoryTaskQueue,
    JobRetry,
    PoolSettings,
    TaskManager,
    TasksConfig,
    TasksModule,
    TaskWorker,
    job,
)
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio
GUARD = 60.0
NOW = JobRetry(base_delay=0.0)


def tracebacks(caplog, message):
    return [r for r in caplog.records if message in r.getMessage() and r.exc_info and r.exc_info[1]]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_failing_job_is_retried_then_fails_for_good_and_others_are_done(
    caplog, fail, concurrency
):
    caplog.set_level(logging.INFO)
    queue, attempts = InMemoryTaskQueue(poll=0.05), []

    @job("bad", retry=NOW)
    async def bad():
        attempts.append(1)
        await fail()

    async def good():
        return "done"

    worker = TaskWorker(
        "w", queue, {"bad": bad, "good": good}, PoolSettings(concurrency=concurrency)
    )
    await worker.start()
    try:
        settings = {"name": "bad", "max_retries": 2, "timeout": TIME_LIMIT}
        failing = (await queue.enqueue(settings)).unwrap()
        beside = (await queue.enqueue({"name": "good"})).unwrap()
        ended = await queue.wait(failing, GUARD)
        assert (await queue.wait(beside, GUARD)).value == "done"
        after = (await queue.enqueue({"name": "good"})).unwrap()
        assert (await queue.wait(after, GUARD)).value == "done"
        assert worker.is_alive
    finally:
        await worker.stop()
    assert ended.status is JobStatus.FAILED
    assert len(attempts) == 3
    assert ended.reason == "exhausted"
    retried = [r for r in caplog.records if "job will be tried again" in r.getMessage()]
    assert [(r.levelno, r.exc_info) for r in retried] == [(logging.INFO, None)] * 2
    [last] = tracebacks(caplog, "job failed permanently")
    assert last.levelno == logging.ERROR


async def test_a_job_that_blocks_the_loop_past_its_lease_is_done_and_so_are_others():
    lease, done = 0.2, []

    async def block(number):
        await asyncio.sleep(0)
        block_the_loop(lease)
        done.append(number)

    queue = InMemoryTaskQueue(poll=0.05)
    worker = TaskWorker("w", queue, {"block": block}, PoolSettings(concurrency=2, lease=lease))
    await worker.start()
    try:
        given = [
            (await queue.enqueue({"name": "block", "args": (number,)})).unwrap()
            for number in range(3)
        ]
        ended = [await queue.wait(one, GUARD) for one in given]
        assert worker.is_alive
    finally:
        await worker.stop()
    assert [one.status for one in ended] == [JobStatus.COMPLETED] * 3
    assert set(done) == {0, 1, 2}


async def test_a_job_that_cancels_its_own_task_and_returns_is_done_and_so_is_the_next():
    queue = InMemoryTaskQueue(poll=0.05)

    async def cancel():
        asyncio.current_task().cancel()
        return "done"

    async def good():
        await asyncio.sleep(0)
        return "done"

    worker = TaskWorker("w", queue, {"cancel": cancel, "good": good}, PoolSettings(concurrency=1))
    await worker.start()
    try:
        for name in ("cancel", "good"):
            given = (await queue.enqueue({"name": name})).unwrap()
            assert (await queue.wait(given, GUARD)).value == "done"
    finally:
        await worker.stop()


async def cancel_before_the_time_is_over() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    # Both timers are due when the loop runs again: the cancellation and the time limit.
    loop.call_later(0.01, block_the_loop, 0.1)
    loop.call_later(0.04, task.cancel)
    await anyio.sleep_forever()


async def cancel_when_the_time_is_over() -> None:
    try:
        await anyio.sleep_forever()
    except asyncio.CancelledError:
        asyncio.current_task().cancel()
        raise


@pytest.mark.parametrize("bad", [cancel_before_the_time_is_over, cancel_when_the_time_is_over])
async def test_a_job_that_cancels_its_own_task_as_its_time_is_over_fails_alone(bad):
    queue = InMemoryTaskQueue(poll=0.05)

    async def good():
        return "done"

    worker = TaskWorker("w", queue, {"bad": bad, "good": good}, PoolSettings(concurrency=1))
    await worker.start()
    try:
        bad_job = {"name": "bad", "max_retries": 0, "timeout": 0.05}
        failing = (await queue.enqueue(bad_job)).unwrap()
        assert (await queue.wait(failing, GUARD)).status is JobStatus.FAILED
        beside = (await queue.enqueue({"name": "good"})).unwrap()
        assert (await queue.wait(beside, GUARD)).value == "done"
        assert worker.is_alive
    finally:
        await worker.stop()


async def test_a_pool_whose_task_is_cancelled_by_others_dies_loudly_and_is_started_again(caplog):
    cancelled, done = [], []

    @job("bad")
    async def bad():
        task = asyncio.current_task()
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        cancelled.append(task)

    @job("good")
    async def good():
        done.append(1)

    module = TasksModule.configure(TasksConfig(backend="memory"), handlers=[bad, good])
    async with Application("t", modules=[module]) as app:
        queue = await app.container.resolve(TaskQueueProtocol)
        await queue.enqueue({"name": "bad"})
        await wait_until(lambda: tracebacks(caplog, "the worker pool failed"))
        assert (await app.health_check()).status is not HealthStatus.HEALTHY
        await queue.enqueue({"name": "good"})
        await wait_until(lambda: done)
        health = await app.health_check()
        assert health.status is HealthStatus.DEGRADED
        assert "worker pools that failed: default (CallAbortedError" in str(health.to_dict())


@pytest.mark.parametrize("fail", [*WAYS_TO_RAISE, *WAYS_TO_RAISE_NOW])
async def test_a_failing_job_does_not_end_a_drain(fail):
    queue = InMemoryTaskQueue(poll=0.05)

    async def good():
        return "done"

    await queue.enqueue({"name": "bad", "max_retries": 0})
    kept = (await queue.enqueue({"name": "good"})).unwrap()
    worker = TaskWorker("w", queue, {"bad": fail, "good": good})
    with anyio.fail_after(GUARD):
        assert await worker.drain() == 2
    assert (await queue.wait(kept, GUARD)).value == "done"


calls: list[str] = []
ways: dict[str, Fail] = {}


# Declared here: a declaration reads the file of the time zone, which would block the event loop.
@scheduled("0 3 * * *", name="bad")
async def bad() -> None:
    calls.append("bad")
    await ways["bad"]()


@scheduled("0 3 * * *", name="slow")
async def slow() -> None:
    block_the_loop(0.2)
    calls.append("slow")


@scheduled("0 3 * * *", name="good")
async def good() -> None:
    await asyncio.sleep(0)
    calls.append("good")


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_failing_scheduled_function_is_recorded_as_failed_and_others_run(caplog, fail):
    calls.clear()
    ways["bad"] = fail

    stub = ScheduleModule.stub(
        ScheduleConfig(run=False, callback_timeout=TIME_LIMIT), schedules=[bad, good]
    )
    async with Application("t", modules=[stub]) as app:
        scheduler = await app.container.resolve(SchedulerProtocol)
        callbacks = await app.container.resolve(Callbacks)
        for name in ("bad", "good"):
            await scheduler.run_now(name)
        await callbacks.run_pending()
        await scheduler.run_now("good")
        await callbacks.run_pending()
        [record] = await scheduler.firings("bad")
        assert record.state is FiringState.FAILED
        assert record.error
        kept = await scheduler.firings("good")
        assert [item.state for item in kept] == [FiringState.DONE] * 2
    assert sorted(calls) == ["bad", "good", "good"]
    assert len(tracebacks(caplog, "callback failed")) == 1


def firing(config, *schedules):
    sql = SqlModule.configure(SqlConfig(url="sqlite://"))
    return [sql, ScheduleModule.configure(config, schedules=schedules)]


async def test_the_loop_that_fires_survives_callbacks_that_cancel_and_block_it():
    calls.clear()
    ways["bad"] = cancel_its_own_task
    config = ScheduleConfig(poll=0.05, callback_lease=0.2)
    async with Application("t", modules=firing(config, bad, slow, good)) as app:
        scheduler = await app.container.resolve(SchedulerProtocol)
        for name in ("bad", "slow", "good"):
            await scheduler.run_now(name)
        await wait_until(lambda: {"bad", "slow", "good"} <= set(calls))

        async def ended():
            records = [await scheduler.firings(name) for name in ("bad", "slow", "good")]
            return [record[0].state for record in records] == [
                FiringState.FAILED,
                FiringState.DONE,
                FiringState.DONE,
            ]

        await wait_until(ended)
        await scheduler.run_now("good")
        await wait_until(lambda: calls.count("good") == 2)
        assert (await app.health_check()).is_healthy()


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_look_at_schedules_that_fails_is_made_again_and_shown_by_health(
    caplog, fail, monkeypatch
):
    calls.clear()
    failures = [1]
    async with Application("t", modules=firing(ScheduleConfig(poll=0.05), good)) as app:
        scheduler = await app.container.resolve(SchedulerProtocol)
        fire_due = scheduler.fire_due

        async def broken():
            if failures:
                await fail()
            return await fire_due()

        monkeypatch.setattr(scheduler, "fire_due", broken)
        await scheduler.run_now("good")

        async def is_unhealthy():
            return (await app.health_check()).status is HealthStatus.UNHEALTHY

        await wait_until(is_unhealthy)
        assert tracebacks(caplog, "schedules not looked at")
        failures.clear()

        async def is_healthy():
            return (await app.health_check()).is_healthy()

        await wait_until(is_healthy)


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_background_task_that_fails_is_logged_and_others_go_on(caplog, fail):
    manager, done = TaskManager(), []

    async def fine():
        done.append(1)

    manager.track(fail())
    manager.track(fine())
    await wait_until(lambda: manager.pending_count == 0)
    await manager.shutdown()
    assert done == [1]
    assert tracebacks(caplog, "a background task failed")


async def test_a_background_task_that_never_returns_is_cancelled_at_the_end(caplog):
    manager = TaskManager()
    manager.track_named("hanging", never_return())
    await manager.shutdown(timeout=TIME_LIMIT)
    assert manager.pending_count == 0
    assert "background tasks were cancelled" in caplog.text


async def test_a_background_task_that_takes_no_cancellation_does_not_hold_up_the_end(caplog):
    manager, is_over = TaskManager(), anyio.Event()

    async def resist():
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await is_over.wait()

    manager.track_named("resisting", resist())
    with anyio.fail_after(GUARD):
        await manager.shutdown(timeout=TIME_LIMIT)
    assert "they took no cancellation" in caplog.text
    is_over.set()
    await wait_until(lambda: manager.pending_count == 0)


async def test_a_background_task_that_cancels_itself_is_logged(caplog):
    manager = TaskManager()
    manager.track(cancel_its_own_task())
    await wait_until(lambda: manager.pending_count == 0)
    assert "a background task was cancelled" in caplog.text


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failing_subscriber_of_job_events_does_not_end_the_worker(fail):
    class Events:
        def has_subscribers(self, kind):
            return True

        async def publish(self, event):
            await fail()

    queue, done = InMemoryTaskQueue(poll=0.05), []

    async def good():
        done.append(1)

    worker = TaskWorker("w", queue, {"good": good}, events=Events())
    await worker.start()
    try:
        for _ in range(3):
            await queue.enqueue({"name": "good"})
        await wait_until(lambda: len(done) == 3)
        assert worker.is_alive
    finally:
        await worker.stop()


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failing_subscriber_of_ticks_does_not_stop_the_schedule(caplog, fail):
    class Events:
        def has_subscribers(self, kind):
            return True

        async def publish(self, event):
            await fail()

    calls.clear()
    stub = ScheduleModule.stub(ScheduleConfig(run=False), schedules=[good])
    async with Application("t", modules=[stub]) as app:
        scheduler = await app.container.resolve(SchedulerProtocol)
        callbacks = await app.container.resolve(Callbacks)
        callbacks._reporter.events = scheduler._reporter.events = Events()
        for _ in range(2):
            await scheduler.run_now("good")
            await callbacks.run_pending()
    assert calls == ["good", "good"]
    assert len(tracebacks(caplog, "could not be published")) == 2
