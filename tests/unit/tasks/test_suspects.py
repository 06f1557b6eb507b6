"""A job whose workers died twice runs alone in its process: it may be why they died."""

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.tasks import InMemoryTaskQueue, PoolSettings, TaskWorker
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

GUARD = 60.0


async def lose(queue, number, times):
    """Claim jobs as workers that die with them."""
    for _ in range(times):
        claims = []

        async def all_claimed(claims=claims):
            await queue.tend()
            claims += await queue.claim("dead", number, ("default",), 0.01)
            return len(claims) == number

        await wait_until(all_claimed, timeout=GUARD)

    async def all_lost():
        await queue.tend()
        return await queue.count("default", JobStatus.PENDING) == number

    await wait_until(all_lost, timeout=GUARD)


class Watched:
    """Notes which jobs run together."""

    def __init__(self):
        self.running, self.together = set(), []

    async def __call__(self, number):
        self.running.add(number)
        self.together.append(frozenset(self.running))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.running.discard(number)
        return number


async def results_of(queue, ids):
    return [(await queue.wait(one, GUARD)).value for one in ids]


@pytest.mark.parametrize("pools", [1, 2])
async def test_jobs_that_were_lost_twice_run_one_at_a_time_in_a_process(pools):
    queue, watched = InMemoryTaskQueue(poll=0.05), Watched()
    ids = [
        (await queue.enqueue({"name": "work", "args": (number,)})).unwrap() for number in range(10)
    ]
    await lose(queue, 10, times=2)
    workers = [
        TaskWorker(f"w{number}", queue, {"work": watched}, PoolSettings(concurrency=5))
        for number in range(pools)
    ]
    for worker in workers:
        await worker.start()
    try:
        assert await results_of(queue, ids) == list(range(10))
    finally:
        for worker in workers:
            await worker.stop()
    assert {len(together) for together in watched.together} == {1}
    assert [(await queue.get_job(one)).lost_count for one in ids] == [2] * 10


async def test_what_waits_for_the_end_of_a_suspect_is_not_held():
    """Should the suspect end the process, only what was begun is counted."""
    queue, gate, begun = InMemoryTaskQueue(poll=0.05), anyio.Event(), []

    async def work(number):
        begun.append(number)
        await gate.wait()
        return number

    ids = [
        (await queue.enqueue({"name": "work", "args": (number,)})).unwrap() for number in range(4)
    ]
    await lose(queue, 4, times=2)
    worker = TaskWorker("w", queue, {"work": work}, PoolSettings(concurrency=4))
    await worker.start()
    try:
        await wait_until(lambda: begun)
        assert await queue.count("default", JobStatus.RUNNING) == 1
        assert await queue.count("default", JobStatus.PENDING) == 3
        gate.set()
        assert await results_of(queue, ids) == list(range(4))
    finally:
        await worker.stop()


async def test_a_job_that_was_lost_once_runs_beside_others():
    queue, watched = InMemoryTaskQueue(poll=0.05), Watched()
    ids = [
        (await queue.enqueue({"name": "work", "args": (number,)})).unwrap() for number in range(4)
    ]
    await lose(queue, 4, times=1)
    worker = TaskWorker("w", queue, {"work": watched}, PoolSettings(concurrency=4))
    await worker.start()
    try:
        await results_of(queue, ids)
    finally:
        await worker.stop()
    assert max(map(len, watched.together)) == 4


async def test_a_drain_does_suspects_too():
    queue, watched = InMemoryTaskQueue(poll=0.05), Watched()
    for number in range(4):
        await queue.enqueue({"name": "work", "args": (number,)})
    await lose(queue, 4, times=2)
    worker = TaskWorker("w", queue, {"work": watched}, PoolSettings(concurrency=4))
    with anyio.fail_after(GUARD):
        await worker.drain()
    assert {len(together) for together in watched.together} == {1}
    assert await queue.count("default", JobStatus.COMPLETED) == 4


async def test_a_pool_that_stops_lets_the_next_suspect_run():
    queue, begun = InMemoryTaskQueue(poll=0.05), []

    async def hang():
        begun.append(1)
        await anyio.sleep_forever()

    (await queue.enqueue({"name": "hang"})).unwrap()
    await lose(queue, 1, times=2)
    settings = PoolSettings(concurrency=1, drain_timeout=0.0)
    for number in (1, 2):
        worker = TaskWorker("w", queue, {"hang": hang}, settings)
        await worker.start()
        await wait_until(lambda number=number: len(begun) == number)
        await worker.stop()
