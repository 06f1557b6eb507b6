import asyncio
import contextlib
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest
from tests.retries import HOPELESS

from lexigram.contracts.infra.tasks import JobStatus, TaskQueueError
from lexigram.events import EventBus
from lexigram.tasks import (
    InMemoryTaskQueue,
    JobCancelled,
    JobCompleted,
    JobContext,
    JobEvent,
    JobFailed,
    JobRetry,
    MemoryProgress,
    PoolSettings,
    ProgressStatus,
    ProgressTracker,
    TaskWorker,
    current_job,
    job,
)
from lexigram.testing.waiting import wait_until

pytestmark = pytest.mark.anyio
GUARD = 60.0
NOW = JobRetry(base_delay=0.0)


@pytest.fixture
def queue():
    return InMemoryTaskQueue(poll=0.05)


@contextlib.asynccontextmanager
async def working(queue, handlers, **settings):
    events = settings.pop("events", None)
    progress = settings.pop("progress", None)
    worker = TaskWorker(
        "w", queue, handlers, PoolSettings(**settings), events=events, progress=progress
    )
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def ended(queue, name, **options):
    job_id = (await queue.enqueue({"name": name, **options})).unwrap()
    return await queue.wait(job_id, GUARD)


async def test_a_handler_gets_the_arguments_and_its_result_is_kept(queue):
    async def add(a, b=0, *, c=0):
        return a + b + c

    async with working(queue, {"add": add}):
        assert (await ended(queue, "add", args=[1], kwargs={"b": 2, "c": 3})).value == 6


async def test_a_plain_function_runs_beside_the_event_loop(queue):
    import threading

    main = threading.get_ident()

    async with working(queue, {"where": lambda: threading.get_ident() != main}):
        assert (await ended(queue, "where")).value is True


async def test_n_retries_come_after_the_first_attempt(queue):
    attempts = []

    @job("flaky", retry=NOW)
    async def flaky(context: JobContext):
        attempts.append(context.attempt)
        raise OSError("down")

    async with working(queue, {"flaky": flaky}):
        result = await ended(queue, "flaky", max_retries=3)
    assert attempts == [1, 2, 3, 4]
    assert (result.status, result.reason) == (JobStatus.FAILED, "exhausted")
    assert result.error == "OSError: down"


async def test_errors_to_abort_on_and_errors_not_to_retry_end_the_job_at_once(queue):
    @job("abort", retry=JobRetry(abort_on=(KeyError,)))
    async def abort():
        raise KeyError("x")

    @job("other", retry=JobRetry(retry_on=(OSError,)))
    async def other():
        raise ValueError("x")

    async with working(queue, {"abort": abort, "other": other}):
        for name in ("abort", "other"):
            result = await ended(queue, name)
            assert (result.status, result.reason) == (JobStatus.FAILED, "aborted")


async def test_waits_grow_up_to_the_cap_with_jitter_below():
    plain = JobRetry(base_delay=1.0, factor=2.0, max_delay=5.0, jitter=False)
    assert [plain.delay(n) for n in (1, 2, 3, 4, 400)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    drawn = [JobRetry(base_delay=1.0, max_delay=5.0).delay(9) for _ in range(50)]
    assert all(0 <= delay <= 5 for delay in drawn)
    assert len(set(drawn)) > 1


async def test_an_attempt_that_takes_too_long_is_stopped(queue):
    stopped = []

    async def slow():
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    async with working(queue, {"slow": slow}):
        result = await ended(queue, "slow", timeout=0.02, max_retries=0)
    assert stopped == [True]
    assert result.status is JobStatus.FAILED
    assert "LEX_ERR_TASK_008" in result.error


async def test_a_running_job_is_cancelled_through_its_scope(queue):
    seen = {}

    async def slow(context: JobContext):
        seen["began"] = True
        try:
            await anyio.sleep_forever()
        finally:
            seen["cancelled"] = context.cancelled

    async with working(queue, {"slow": slow}):
        job_id = (await queue.enqueue({"name": "slow"})).unwrap()
        await wait_until(lambda: "began" in seen)
        assert await queue.cancel(job_id)
        result = await queue.wait(job_id, GUARD)
    assert (result.status, result.reason) == (JobStatus.CANCELLED, "asked")
    assert seen["cancelled"] is True


async def test_a_handler_that_fails_while_it_is_cancelled_is_cancelled(queue):
    began = anyio.Event()

    async def slow():
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("cleanup")

    async with working(queue, {"slow": slow}):
        job_id = (await queue.enqueue({"name": "slow"})).unwrap()
        await began.wait()
        await queue.cancel(job_id)
        assert (await queue.wait(job_id, GUARD)).status is JobStatus.CANCELLED


async def test_a_handler_whose_helper_was_cancelled_has_failed_like_any_other(queue):
    async def slow():
        helper = asyncio.ensure_future(anyio.sleep_forever())
        asyncio.get_running_loop().call_soon(helper.cancel)
        await helper

    async with working(queue, {"slow": slow}):
        result = await ended(queue, "slow", max_retries=0)
    assert (result.status, result.reason) == (JobStatus.FAILED, "exhausted")
    assert "cancelled" in result.error


async def test_a_handler_that_cancels_itself_stops_no_other_job(queue):
    async def selfish():
        asyncio.current_task().cancel()
        await anyio.sleep_forever()

    async def fine():
        return 1

    async with working(queue, {"selfish": selfish, "fine": fine}, concurrency=1) as worker:
        await queue.enqueue({"name": "selfish"})
        assert (await ended(queue, "fine")).value == 1
        assert worker.is_alive


async def test_a_job_that_timed_out_leaves_nothing_to_the_next_one_of_its_task(queue):
    tasks = set()

    async def slow():
        tasks.add(asyncio.current_task())
        await anyio.sleep_forever()

    async def fine():
        tasks.add(asyncio.current_task())
        await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0) as scope:
            await anyio.sleep_forever()
        return [scope.cancelled_caught, asyncio.current_task().cancelling()]

    async with working(queue, {"slow": slow, "fine": fine}, concurrency=1):
        for _ in range(3):
            late = await ended(queue, "slow", timeout=0.001, max_retries=0)
            assert late.status is JobStatus.FAILED
            assert (await ended(queue, "fine")).value == [True, 0]
    assert len(tasks) == 1


async def test_a_drain_that_is_cancelled_hands_back_what_it_has(queue):
    began = anyio.Event()

    async def slow():
        began.set()
        await anyio.sleep_forever()

    job_id = (await queue.enqueue({"name": "slow"})).unwrap()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(TaskWorker("w", queue, {"slow": slow}).drain)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert (await queue.get_job(job_id)).status is JobStatus.PENDING


async def test_a_job_without_a_handler_is_tried_again_and_then_a_dead_letter(queue):
    async with working(queue, {"mail": print}):
        result = await ended(queue, "mial", max_retries=0)
    assert "did you mean 'mail'" in result.error


async def test_a_handler_registered_later_is_found(queue):
    handlers = {}
    async with working(queue, handlers):

        async def late():
            return 1

        handlers["late"] = late
        assert (await ended(queue, "late")).value == 1


async def test_arguments_that_do_not_fit_are_told_and_not_tried_again(queue):
    async def mail(to: str, *, copies: int = 1):
        return None

    async with working(queue, {"mail": mail}):
        for options, text in (
            ({}, "needs an argument 'to'"),
            ({"kwargs": {"to": "a", "cc": "b"}}, "no argument cc"),
            ({"args": ["a", 1, 2]}, "takes 2 arguments, 3 were given"),
            ({"args": ["a"], "kwargs": {"to": "b"}}, "got 'to' twice"),
            ({"args": ["a"], "kwargs": {"copies": "many"}}, "cannot take 'copies'"),
        ):
            result = await ended(queue, "mail", **options)
            assert (result.status, result.reason) == (JobStatus.FAILED, "aborted")
            assert text in result.error


async def test_no_more_jobs_run_at_once_than_allowed(queue):
    running, most = 0, 0

    async def count():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1

    async with working(queue, {"count": count}, concurrency=3, prefetch=5):
        ids = [answer.unwrap() for answer in await queue.enqueue_many([{"name": "count"}] * 30)]
        for job_id in ids:
            await queue.wait(job_id, GUARD)
    assert most == 3


async def test_what_a_handler_sets_in_its_context_ends_with_the_job(queue):
    variable = ContextVar("variable", default="clean")

    async def leak():
        before = variable.get()
        variable.set("dirty")
        return before

    async with working(queue, {"leak": leak}, concurrency=1):
        assert [(await ended(queue, "leak")).value for _ in range(3)] == ["clean"] * 3


async def test_a_job_enqueued_by_a_handler_belongs_to_its_story(queue):
    async def parent():
        return (await queue.enqueue({"name": "child"})).unwrap()

    async def child():
        return [current_job().job.causation_id, current_job().job.correlation_id]

    async with working(queue, {"parent": parent, "child": child}):
        outer = await ended(queue, "parent", correlation_id="request")
        inner = await queue.wait(outer.value, GUARD)
    assert inner.value == [outer.job_id, "request"]


async def test_stopping_waits_for_running_jobs(queue):
    began, finish = anyio.Event(), anyio.Event()

    async def slow():
        began.set()
        await finish.wait()
        return "whole"

    worker = TaskWorker("w", queue, {"slow": slow}, PoolSettings(drain_timeout=GUARD))
    await worker.start()
    job_id = (await queue.enqueue({"name": "slow"})).unwrap()
    await began.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.stop)
        await anyio.lowlevel.checkpoint()
        later = (await queue.enqueue({"name": "slow"})).unwrap()
        finish.set()
    assert (await queue.get_result(job_id)).value == "whole"
    assert (await queue.get_job(later)).status is JobStatus.PENDING


async def test_stopping_hands_back_what_does_not_finish(queue):
    began = anyio.Event()

    async def slow():
        began.set()
        await anyio.sleep_forever()

    async with working(
        queue, {"slow": slow}, concurrency=1, prefetch=1, drain_timeout=0.0
    ) as worker:
        ids = [(await queue.enqueue({"name": "slow"})).unwrap() for _ in range(2)]
        await began.wait()
        await wait_until(lambda: worker.get_stats()["held"] == 2)
    for job_id in ids:
        found = await queue.get_job(job_id)
        assert (found.status, found.retry_count, found.lost_count) == (JobStatus.PENDING, 0, 0)
    assert worker.get_stats()["released"] == 2


async def test_start_and_stop_twice_are_once(queue):
    worker = TaskWorker("w", queue, {})
    await worker.stop()
    await worker.start()
    await worker.start()
    assert worker.is_alive
    await worker.stop()
    await worker.stop()
    assert not worker.is_alive
    await worker.start()
    await worker.stop()


async def test_a_worker_that_lost_its_lease_stops_the_handler_and_reports_nothing(queue):
    began, stopped = anyio.Event(), anyio.Event()

    async def slow():
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with working(queue, {"slow": slow}, lease=0.5) as worker:
        job_id = (await queue.enqueue({"name": "slow"})).unwrap()
        await began.wait()
        # As if this process had been stopped for long: somebody else has the job now.
        row = queue.store._rows[job_id]
        row["fence"] += 1
        with anyio.fail_after(GUARD):
            await stopped.wait()
        await wait_until(lambda: not worker.is_busy())
        assert (await queue.get_job(job_id)).status is JobStatus.RUNNING
        row["lease_until"] = row["lease_until"] + 1000


async def test_a_handler_can_ask_whether_the_job_is_still_its_own(queue):
    async def careful(context: JobContext):
        return await context.heartbeat()

    async with working(queue, {"careful": careful}):
        assert (await ended(queue, "careful")).value is True


async def test_a_queue_that_fails_for_a_while_is_tried_again(queue):
    failures = 3
    plain = queue.claim

    async def claim(*args, **kwargs):
        nonlocal failures
        if failures:
            failures -= 1
            raise TaskQueueError("down")
        return await plain(*args, **kwargs)

    queue.claim = claim

    async def fine():
        return 1

    async with working(queue, {"fine": fine}):
        assert (await ended(queue, "fine")).value == 1


async def test_an_end_that_cannot_be_written_is_tried_again(queue):
    failures = 3
    plain = queue.finish

    async def finish(ends):
        nonlocal failures
        if failures:
            failures -= 1
            raise TaskQueueError("down")
        return await plain(ends)

    queue.finish = finish

    async def fine():
        return 1

    async with working(queue, {"fine": fine}):
        assert (await ended(queue, "fine")).value == 1


async def test_events_are_told_in_order_and_only_when_somebody_listens(queue):
    bus, seen = EventBus(), []
    listen = seen.append  # one object: a bound method is a new one at every access
    bus.subscribe(JobEvent, listen)

    @job("flaky", retry=NOW)
    async def flaky(context: JobContext):
        if context.attempt == 1:
            raise OSError("x")

    async def bad():
        raise ValueError("x")

    async with working(queue, {"flaky": flaky, "bad": bad}, events=bus) as worker:
        await ended(queue, "flaky")
        await wait_until(lambda: not worker.is_busy())
        kinds = [type(event).__name__ for event in seen]
        assert kinds == ["JobStarted", "JobRetried", "JobStarted", "JobCompleted"]
        await ended(queue, "bad", max_retries=0)
        await wait_until(lambda: any(isinstance(event, JobFailed) for event in seen))
        assert bus.unsubscribe(JobEvent, listen)
        before = len(seen)
        await ended(queue, "bad", max_retries=0)
        await wait_until(lambda: not worker.is_busy())
        assert len(seen) == before


async def test_a_subscriber_that_fails_does_not_fail_the_job(queue):
    bus = EventBus()

    def fail(event):
        raise OSError("listener")

    bus.subscribe(JobCompleted, fail)

    async def fine():
        return 1

    async with working(queue, {"fine": fine}, events=bus):
        assert (await ended(queue, "fine")).value == 1


async def test_the_queue_tells_of_jobs_cancelled_before_they_ran(queue):
    bus, seen = EventBus(), []
    bus.subscribe(JobCancelled, seen.append)
    queue = InMemoryTaskQueue(events=bus)
    first = (await queue.enqueue({"name": "x"})).unwrap()
    second = (await queue.enqueue({"name": "x", "depends_on": [first]})).unwrap()
    await queue.cancel(first)
    assert [(event.job_id, event.reason) for event in seen] == [
        (first, "asked"),
        (second, "dependency"),
    ]


async def test_metrics_count_what_happens(queue, fake_metrics):
    queue = InMemoryTaskQueue(metrics=fake_metrics)

    async def fine():
        return 1

    worker = TaskWorker("w", queue, {"fine": fine}, metrics=fake_metrics)
    await queue.enqueue({"name": "fine"})
    assert await worker.drain() == 1
    assert fake_metrics.counted("tasks.enqueued", queue="default") == 1
    assert fake_metrics.counted("tasks.finished", status="completed") == 1
    assert len(fake_metrics.observed("tasks.seconds")) == 1


async def test_progress_ends_with_the_job_whether_it_reported_or_not(queue):
    tracker = ProgressTracker(MemoryProgress(poll=0.05), queue)

    async def reports(context: JobContext):
        for number in range(1, 4):
            await context.progress(number, 3, f"step {number}")

    async def silent():
        raise ValueError("no")

    async with working(queue, {"reports": reports, "silent": silent}, progress=tracker):
        job_id = (await queue.enqueue({"name": "reports"})).unwrap()
        with anyio.fail_after(GUARD):
            seen = [item async for item in tracker.subscribe(job_id)]
        currents = [item.current for item in seen]
        assert currents == sorted(currents)
        assert seen[-1].status is ProgressStatus.COMPLETE
        job_id = (await queue.enqueue({"name": "silent", "max_retries": 0})).unwrap()
        with anyio.fail_after(GUARD):
            seen = [item async for item in tracker.subscribe(job_id)]
        assert (seen[-1].status, seen[-1].error) == (ProgressStatus.FAILED, "ValueError: no")


async def test_progress_of_a_second_attempt_does_not_go_back(queue):
    tracker = ProgressTracker(MemoryProgress(), queue)

    @job("again", retry=NOW)
    async def again(context: JobContext):
        for number in range(3):
            await context.progress(number, 3)
        if context.attempt == 1:
            raise OSError("x")
        return (await tracker.get(context.job.id)).current

    async with working(queue, {"again": again}, progress=tracker):
        assert (await ended(queue, "again")).value == 2


async def test_drain_does_jobs_and_those_they_enqueue(queue):
    done = []

    async def chain(left: int):
        done.append(left)
        if left:
            await queue.enqueue({"name": "chain", "args": [left - 1]})

    await queue.enqueue({"name": "chain", "args": [3]})
    await queue.enqueue({"name": "chain", "args": [0], "delay": 3600})
    assert await TaskWorker("w", queue, {"chain": chain}).drain() == 4
    assert done == [3, 2, 1, 0]


class PlainQueue:
    """TaskQueueProtocol and nothing else."""

    def __init__(self):
        self._queue = InMemoryTaskQueue()
        for name in (
            *("enqueue", "dequeue", "ack", "nack", "get_job", "delete_job"),
            *("count", "get_task_count", "clear", "close"),
        ):
            setattr(self, name, getattr(self._queue, name))


async def test_a_queue_that_cannot_lease_is_worked_off_too():
    queue = PlainQueue()
    seen = []

    async def fine(number: int):
        seen.append(number)

    async def bad():
        raise ValueError("x")

    async with working(queue, {"fine": fine, "bad": bad}):
        for number in range(5):
            await queue.enqueue({"name": "fine", "args": [number]})
        bad_id = (await queue.enqueue({"name": "bad", "max_retries": 1})).unwrap()

        async def failed():
            return (await queue.get_job(bad_id)).status is JobStatus.FAILED

        await wait_until(failed)
        await wait_until(lambda: len(seen) == 5)
    assert sorted(seen) == list(range(5))


@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_ends_the_job_after_one_attempt(queue, make):
    attempts = []

    @job("bad", retry=NOW)
    async def bad(context: JobContext):
        attempts.append(context.attempt)
        raise make()

    async with working(queue, {"bad": bad}):
        result = await ended(queue, "bad", max_retries=3)
    assert attempts == [1]
    assert (result.status, result.reason) == (JobStatus.FAILED, "aborted")
    assert result.error.startswith(type(make()).__name__)
