"""Whatever a job or a scheduled function raises is a failure of that one call."""

import asyncio

import anyio
import pytest
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, WAYS_TO_RAISE, Fail

from lexigram.app import Application
from lexigram.contracts.infra.schedule import SchedulerProtocol
from lexigram.contracts.infra.tasks import JobStatus
from lexigram.schedule import Callbacks, FiringState, ScheduleModule, scheduled
from lexigram.tasks import InMemoryTaskQueue, JobRetry, PoolSettings, TaskWorker, job
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio
GUARD = 60.0
NOW = JobRetry(base_delay=0.0)


def tracebacks(caplog, message):
    return [r for r in caplog.records if message in r.getMessage() and r.exc_info and r.exc_info[1]]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_job_is_retried_then_fails_for_good_and_others_are_done(
    caplog, fail, concurrency
):
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
    assert len(tracebacks(caplog, "job will be tried again")) == 2
    assert len(tracebacks(caplog, "job failed for good")) == 1


@pytest.mark.parametrize("fail", [*WAYS_TO_RAISE, pytest.param(None, id="raise_in_a_thread")])
async def test_a_failing_job_does_not_end_a_drain(fail):
    queue = InMemoryTaskQueue(poll=0.05)

    def leave():
        raise SystemExit(2)

    async def good():
        return "done"

    await queue.enqueue({"name": "bad", "max_retries": 0})
    kept = (await queue.enqueue({"name": "good"})).unwrap()
    worker = TaskWorker("w", queue, {"bad": fail or leave, "good": good})
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


@scheduled("0 3 * * *", name="good")
async def good() -> None:
    await asyncio.sleep(0)
    calls.append("good")


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failing_scheduled_function_is_recorded_as_failed_and_others_run(caplog, fail):
    calls.clear()
    ways["bad"] = fail

    async with Application("t", modules=[ScheduleModule.stub(schedules=[bad, good])]) as app:
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
