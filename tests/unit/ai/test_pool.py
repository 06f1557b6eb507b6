"""The pool behind a job worker: its class, its queue, its width, its death."""

import anyio
import pytest

from lexigram.ai.workers.errors import WorkerError
from lexigram.ai.workers.pool import TaskPool
from lexigram.tasks import InMemoryTaskQueue, PoolSettings, TaskWorker, job
from lexigram.testing.waiting import wait_until


class Work:
    """A handler that says how many of it run at once, and waits until it may go on."""

    def __init__(self):
        self.now = self.most = self.done = 0
        self.go = anyio.Event()

    def handlers(self):
        @job("work", queue="own", max_retries=7)
        async def work(n: int = 0) -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            await self.go.wait()
            self.now -= 1
            self.done += 1
            return n

        return {"work": work}


def pool(queue, work, concurrency=2, **more):
    return TaskPool("p", queue, work.handlers(), concurrency=concurrency, queue_name="own", **more)


async def enqueue(queue, count, name="own"):
    for n in range(count):
        told = {"name": "work", "kwargs": {"n": n}, "queue": name}
        (await queue.enqueue(told)).unwrap()


async def test_no_more_jobs_run_at_once_than_allowed_also_with_a_pool_of_others_beside_it():
    queue, work = InMemoryTaskQueue(), Work()
    own = pool(queue, work)
    other = TaskWorker("other", queue, own.handlers, PoolSettings(concurrency=10))
    await enqueue(queue, 8)
    await own.start()
    await other.start()
    await wait_until(lambda: work.now == 2)
    await anyio.wait_all_tasks_blocked()
    work.go.set()
    await wait_until(lambda: work.done == 8)
    assert work.most == 2
    await own.stop()
    await other.stop()


async def test_it_takes_jobs_of_its_own_queue_only():
    queue, work = InMemoryTaskQueue(), Work()
    work.go.set()
    await enqueue(queue, 1)
    await enqueue(queue, 1, "another")
    assert await pool(queue, work).drain() == 1
    assert await queue.get_task_count() == 1


async def test_what_the_handler_declares_still_counts():
    work = Work()
    declared = pool(InMemoryTaskQueue(), work).handlers["work"].__wrapped__
    assert declared.__name__ == "work"


async def test_a_class_of_the_application_is_made_once_per_slot():
    made = []

    class Own:
        def __init__(self, worker_id, queue, handlers):
            self.worker_id, self.handlers = worker_id, handlers
            self.running = False
            made.append(self)

        async def start(self):
            self.running = True

        async def stop(self):
            self.running = False

    own = pool(InMemoryTaskQueue(), Work(), concurrency=3, make_worker=Own)
    await own.start()
    assert [worker.worker_id for worker in made] == ["p-1", "p-2", "p-3"]
    assert own.is_alive
    await own.stop()
    assert not any(worker.running for worker in made)
    assert not own.is_alive


async def test_wait_returns_after_a_stop_and_raises_after_a_death():
    own = pool(InMemoryTaskQueue(), Work())
    await own.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(own.wait)
        await anyio.wait_all_tasks_blocked()
        await own.stop()
    await own.start()
    own.workers[0]._task.host.cancel()
    with pytest.raises(WorkerError, match="ended unexpectedly"):
        await own.wait()
    assert not own.is_alive
    await own.start()
    assert own.is_alive
    await own.stop()
