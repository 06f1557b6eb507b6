"""A job exists if and only if the transaction it was enqueued in commits."""

import anyio
import pytest

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.tasks import PoolSettings, SqlTaskQueue, TaskWorker

pytestmark = pytest.mark.anyio
GUARD = 60.0


async def test_a_job_is_there_after_the_commit_and_not_before(db, queue):
    async with db.transaction():
        job_id = (await queue.enqueue({"name": "x"})).unwrap()
        many = await queue.enqueue_many([{"name": "y"}, {"name": "z", "depends_on": [job_id]}])
        assert all(answer.is_ok() for answer in many)
    assert (await queue.get_job(job_id)).status is JobStatus.PENDING
    assert await queue.get_task_count() == 3


async def test_a_job_of_a_rolled_back_transaction_never_was(db, queue):
    with pytest.raises(OSError, match="no"):
        async with db.transaction():
            job_id = (await queue.enqueue({"name": "x", "unique_key": "k"})).unwrap()
            await queue.enqueue({"name": "y", "idempotency_key": "i"})
            raise OSError("no")
    assert await queue.get_job(job_id) is None
    assert await queue.get_task_count() == 0
    assert (await queue.enqueue({"name": "x", "id": job_id, "unique_key": "k"})).is_ok()
    assert (await queue.enqueue({"name": "y", "idempotency_key": "i"})).is_ok()


async def test_a_refused_job_leaves_the_transaction_usable(db, queue):
    await queue.enqueue({"name": "x", "id": "taken", "unique_key": "k"})
    async with db.transaction():
        for wrong in (
            {"name": "x", "id": "taken"},
            {"name": "x", "unique_key": "k"},
            {"name": "x", "depends_on": ["nobody"]},
            {"name": ""},
        ):
            assert (await queue.enqueue(wrong)).is_err()
        good = (await queue.enqueue({"name": "good"})).unwrap()
    assert await queue.get_job(good) is not None


@pytest.mark.quick
async def test_a_worker_gets_the_job_only_after_the_commit(db, queue):
    done = anyio.Event()

    async def work():
        done.set()

    worker = TaskWorker("w", queue, {"work": work}, PoolSettings())
    await worker.start()
    try:
        async with db.transaction():
            await queue.enqueue({"name": "work"})
            await anyio.sleep(0.05)
            assert not done.is_set()
        with anyio.fail_after(GUARD):
            await done.wait()
    finally:
        await worker.stop()


@pytest.mark.service("postgresql")
async def test_jobs_of_other_tasks_are_not_part_of_ones_transaction(postgres):
    """Group commit must not write them into the transaction of one of them.

    On PostgreSQL only: the one writer of SQLite is held by the transaction.
    """
    db, queue = postgres, SqlTaskQueue(postgres)
    inside = anyio.Event()
    leave = anyio.Event()

    async def roll_back():
        with pytest.raises(OSError, match="no"):
            async with db.transaction():
                await queue.enqueue({"name": "mine"})
                inside.set()
                await leave.wait()
                raise OSError("no")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(roll_back)
        await inside.wait()
        job_id = (await queue.enqueue({"name": "other"})).unwrap()
        leave.set()
    assert (await queue.get_job(job_id)).name == "other"
    assert await queue.get_task_count() == 1


async def test_a_handler_may_enqueue_in_a_transaction_of_its_own(db, queue):
    async def parent():
        async with db.transaction():
            return (await queue.enqueue({"name": "child"})).unwrap()

    async def child():
        return "done"

    worker = TaskWorker("w", queue, {"parent": parent, "child": child})
    await worker.start()
    try:
        job_id = (await queue.enqueue({"name": "parent"})).unwrap()
        inner = (await queue.wait(job_id, GUARD)).value
        assert (await queue.wait(inner, GUARD)).value == "done"
    finally:
        await worker.stop()
