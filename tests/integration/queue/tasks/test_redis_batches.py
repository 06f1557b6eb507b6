"""Jobs in Redis that come, are claimed and end together: each is still a job of its own."""

import pytest
from redis.asyncio import Redis
from tests.names import unique_name

from lexigram.contracts.infra.tasks import EndKind, JobEnd, JobStatus
from lexigram.queue.tasks import RedisJobs
from lexigram.tasks.queue import TaskQueue

pytestmark = [pytest.mark.anyio, pytest.mark.service("redis")]
LEASE = 30.0


@pytest.fixture
async def queue(services):
    url = f"redis://{services['redis'].address}/0"
    prefix = unique_name()
    state = RedisJobs(url, prefix=prefix + ":{jobs}", poll=0.2)
    yield TaskQueue(state)
    await state.aclose()
    async with Redis.from_url(url) as client:
        async for key in client.scan_iter(f"{prefix}*", count=1000):
            await client.delete(key)


async def counts(queue, name="default"):
    """Of each status, as the table of counts says; it must agree with the jobs themselves."""
    found = {status: await queue.count(name, status) for status in JobStatus}
    jobs = await queue.list_jobs(name, limit=5000)
    assert found == {status: sum(job.status is status for job in jobs) for status in JobStatus}
    return {status.value: number for status, number in found.items() if number}


def ends(claims, kind=EndKind.COMPLETED, **facts):
    return [JobEnd(claim=claim, kind=kind, **facts) for claim in claims]


async def test_of_two_with_one_id_the_second_is_refused(queue):
    first, second = await queue.enqueue_many([{"name": "a", "id": "1"}, {"name": "b", "id": "1"}])
    assert first.unwrap() == "1"
    assert "accepted before" in str(second.unwrap_err())
    assert (await queue.get_job("1")).name == "a"
    assert await counts(queue) == {"pending": 1}


async def test_of_two_with_one_unique_key_the_second_is_refused_until_the_first_ends(queue):
    tasks = [{"name": "a", "unique_key": "k"}] * 2
    first, second = await queue.enqueue_many(tasks)
    assert first.is_ok()
    assert second.is_err()
    [claim] = await queue.claim("w", 10, (), LEASE)
    assert (await queue.enqueue(tasks[0])).is_err()
    assert await queue.finish(ends([claim])) == [True]
    assert (await queue.enqueue(tasks[0])).is_ok()


async def test_of_two_with_one_idempotency_key_there_is_one_job(queue):
    first, second = await queue.enqueue_many([{"name": "a", "idempotency_key": "k"}] * 2)
    assert first.unwrap() == second.unwrap()
    assert await counts(queue) == {"pending": 1}


async def test_a_job_may_wait_for_one_that_comes_with_it(queue):
    tasks = [{"name": "a", "id": "1"}, {"name": "b", "id": "2", "depends_on": ["1"]}]
    await queue.enqueue_many(tasks)
    claims = await queue.claim("w", 10, (), LEASE)
    assert [claim.job.id for claim in claims] == ["1"]
    await queue.finish(ends(claims))
    claims = await queue.claim("w", 10, (), LEASE)
    assert [claim.job.id for claim in claims] == ["2"]
    assert await counts(queue) == {"completed": 1, "running": 1}


async def test_thousands_end_in_one_go(queue):
    for _ in range(5):
        await queue.enqueue_many([{"name": "a"}] * 500)
    claims = await queue.claim("w", 5000, (), LEASE)
    assert len({claim.job.id for claim in claims}) == 2500
    assert await counts(queue) == {"running": 2500}
    assert await queue.finish(ends(claims)) == [True] * 2500
    assert await queue.finish(ends(claims)) == [False] * 2500
    assert await counts(queue) == {"completed": 2500}
    assert await queue.purge(0) == 2500
    assert await counts(queue) == {}


async def test_ends_of_every_kind_in_one_go_are_each_written(queue):
    await queue.enqueue_many([{"name": "a", "id": str(n), "priority": -n} for n in range(6)])
    claims = await queue.claim("w", 10, (), LEASE)
    assert [claim.job.id for claim in claims] == list("012345")
    assert await queue.cancel("5")
    kinds = (EndKind.COMPLETED, EndKind.FAILED, EndKind.CANCELLED, EndKind.RELEASED)
    told = [JobEnd(claim=c, kind=k, error="e") for c, k in zip(claims, kinds, strict=False)]
    told += ends(claims[4:], EndKind.RETRY, error="again")
    assert await queue.finish(told) == [True] * 6
    assert await counts(queue) == {
        "completed": 1,
        "failed": 1,
        "cancelled": 2,
        "pending": 1,
        "retrying": 1,
    }
    assert (await queue.get_result("5")).reason == "asked"
    assert (await queue.get_job("4")).last_error == "again"


async def test_a_job_that_succeeds_after_a_failure_has_no_error(queue):
    await queue.enqueue({"name": "a", "id": "1"})
    await queue.finish(ends(await queue.claim("w", 1, (), LEASE), EndKind.RETRY, error="once"))
    [claim] = await queue.claim("w", 1, (), LEASE)
    assert (claim.job.retry_count, claim.job.last_error) == (1, "once")
    await queue.finish(ends([claim]))
    job = await queue.get_job("1")
    assert (job.status, job.last_error) == (JobStatus.COMPLETED, "")
    assert await counts(queue) == {"completed": 1}


async def test_a_queue_that_is_named_twice_gives_each_job_once(queue):
    await queue.enqueue_many([{"name": "a"}] * 4)
    claims = await queue.claim("w", 10, ("default", "default"), LEASE)
    assert len({claim.job.id for claim in claims}) == len(claims) == 4


async def test_the_most_urgent_of_all_queues_come_first_and_leave_their_queues(queue):
    tasks = [{"name": "a", "queue": q, "priority": p} for p in range(5) for q in ("x", "y")]
    await queue.enqueue_many(tasks)
    first = await queue.claim("w", 4, (), LEASE)
    assert [claim.job.priority for claim in first] == [4, 4, 3, 3]
    rest = await queue.claim("w", 20, (), LEASE)
    assert [claim.job.priority for claim in rest] == [2, 2, 1, 1, 0, 0]
    assert await counts(queue, "x") == await counts(queue, "y") == {"running": 5}


async def test_every_field_of_a_job_comes_back(queue):
    task = {
        "name": "a",
        "id": "1",
        "args": ["ä", "\n"],
        "kwargs": {"n": 1.5, "none": None},
        "queue": "q",
        "priority": -3,
        "max_retries": 0,
        "max_deliveries": 7,
        "timeout": 0.1,
        "result_ttl": 12.25,
        "unique_key": "u",
        "idempotency_key": "i",
        "correlation_id": "c",
        "causation_id": "p",
        "on_dependency_failure": "run",
        "trace_context": {"traceparent": "00-1"},
    }
    await queue.enqueue(task)
    [claim] = await queue.claim("w", 1, ("q",), LEASE)
    kept = await queue.get_job("1")
    for job in (claim.job, kept):
        told = {name: getattr(job, name) for name in task}
        assert told == {**task, "args": ("ä", "\n")}
    assert (claim.job.status, kept.status) == (JobStatus.RUNNING, JobStatus.RUNNING)
    assert kept.started_at >= kept.created_at
