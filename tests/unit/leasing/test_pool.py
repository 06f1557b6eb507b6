"""The loop of a worker, on a list instead of a queue."""

import asyncio
from contextvars import ContextVar

import anyio
import pytest

from lexigram.leasing import LeasedRun, LeasePool, StopReason
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

GUARD = 30.0
seen: ContextVar[str] = ContextVar("seen", default="nothing")


class Worker:
    """Runs the names on ``todo``; each handler waits for ``go``."""

    def __init__(self, todo, size=2, prefetch=0):
        self.todo, self.begun, self.done, self.released, self.errors = list(todo), [], [], [], []
        self.go, self.news, self.stopping = anyio.Event(), asyncio.Event(), asyncio.Event()
        self.claims = []  # what the next claims raise
        self.most = 0
        self.pool = LeasePool(
            size,
            prefetch=prefetch,
            claim=self.claim,
            run=self.run,
            wait_for_work=self.wait_for_work,
            on_outage=self.on_outage,
            release=self.release,
        )

    async def claim(self, room):
        if self.claims:
            raise self.claims.pop(0)
        taken, self.todo = self.todo[:room], self.todo[room:]
        for name in taken:
            self.pool.add(LeasedRun(name))
        return len(taken)

    async def wait_for_work(self):
        await self.news.wait()
        self.news.clear()

    async def run(self, run):
        self.begun.append((run.key, seen.get()))
        seen.set(run.key)
        self.most = max(self.most, self.pool.running)
        with run.scope:
            await self.go.wait()
        run.is_reported = True
        self.done.append((run.key, run.stop_reason))
        self.pool.forget(run)

    def on_outage(self, error, failures):
        self.errors.append((str(error), failures))
        if isinstance(error, KeyError):
            raise error

    async def release(self, runs):
        for run in runs:
            self.released.append((run.key, run.stop_reason))
            self.pool.forget(run)

    async def serve(self, timeout=GUARD):
        async with anyio.create_task_group() as tasks:
            self.pool.open(tasks, self.stopping)
            await self.pool.claim_until_stopped()
            await self.pool.drain(timeout)
            tasks.cancel_scope.cancel()


async def test_no_more_run_than_there_are_places_and_all_are_done_each_in_its_own_context():
    worker = Worker("abcdefg", size=2)
    worker.go.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await wait_until(lambda: len(worker.done) == 7)
        worker.stopping.set()
    assert worker.begun == [(name, "nothing") for name in "abcdefg"]
    assert worker.most == 2
    assert worker.pool.held == {}


async def test_more_are_held_than_run_and_no_more_than_asked_for():
    worker = Worker("abcdefg", size=2, prefetch=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await wait_until(lambda: len(worker.begun) == 2)
        assert (list(worker.pool.held), worker.todo) == (["a", "b", "c", "d", "e"], ["f", "g"])
        worker.go.set()
        await wait_until(lambda: len(worker.done) == 7)
        worker.stopping.set()


async def test_an_idle_pool_claims_when_there_is_news():
    worker = Worker("")
    worker.go.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await anyio.wait_all_tasks_blocked()
        worker.todo = ["a"]
        worker.news.set()
        await wait_until(lambda: worker.done)
        worker.stopping.set()


async def test_a_stop_gives_back_what_has_not_begun_and_waits_for_the_rest():
    worker = Worker("abc", size=1, prefetch=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await wait_until(lambda: worker.begun)
        worker.stopping.set()
        await wait_until(lambda: worker.released)
        assert not worker.done
        worker.go.set()
    assert worker.released == [("b", StopReason.STOPPED), ("c", StopReason.STOPPED)]
    assert worker.done == [("a", None)]


async def test_what_does_not_end_in_time_is_cancelled():
    worker = Worker("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve, 0.01)
        await wait_until(lambda: worker.begun)
        worker.stopping.set()
    assert worker.done == [("a", StopReason.STOPPED)]


async def test_an_outage_is_waited_for_and_counted_until_a_claim_works():
    worker = Worker("a")
    worker.claims = [OSError("away"), OSError("away")]
    worker.go.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await wait_until(lambda: worker.done)
        worker.stopping.set()
    assert worker.errors == [("away", 1), ("away", 2)]


async def test_an_error_that_is_no_outage_ends_the_pool_and_what_it_held_is_known():
    worker = Worker("ab", size=1)
    with anyio.fail_after(GUARD), pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.serve)
            await wait_until(lambda: worker.begun)
            worker.claims = [KeyError("defect")]
            worker.pool.wake()
            worker.pool.forget(worker.pool.held["a"])
    assert caught.group_contains(KeyError)
    assert [run.key for run in worker.pool.clear()] == []


async def test_the_first_reason_to_stop_counts_and_a_reported_run_is_not_cancelled():
    run = LeasedRun("a")
    run.stop(StopReason.LOST)
    run.stop(StopReason.STOPPED)
    assert (run.stop_reason, run.scope.cancel_called) == (StopReason.LOST, True)
    reported = LeasedRun("b")
    reported.is_reported = True
    reported.stop(StopReason.STOPPED)
    assert (reported.stop_reason, reported.scope.cancel_called) == (None, False)
