"""Jobs survive the sudden death of the processes that work on them."""

import os
import signal

import anyio
import pytest

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.tasks import JobDeadLetters, ProgressTracker, SqlProgress, SqlTaskQueue
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
JOBS, KILLS, FOREVER = (5_000, 30, 20) if FULL else (150, 4, 4)
GUARD = 600.0

# Every arrival in a final state leaves a row, whoever brought it about.
FINAL = "('completed', 'failed', 'cancelled')"
AUDIT = {
    "sqlite": [
        f"""CREATE TRIGGER audit_jobs AFTER UPDATE OF state ON lexigram_jobs
        WHEN NEW.state IN {FINAL} BEGIN
        INSERT INTO audit (id, state) VALUES (NEW.id, NEW.state); END"""
    ],
    "postgresql": [
        """CREATE FUNCTION audit_job() RETURNS trigger AS $$ BEGIN
        INSERT INTO audit (id, state) VALUES (NEW.id, NEW.state); RETURN NEW; END
        $$ LANGUAGE plpgsql""",
        f"""CREATE TRIGGER audit_jobs AFTER UPDATE OF state ON lexigram_jobs FOR EACH ROW
        WHEN (NEW.state IN {FINAL}) EXECUTE FUNCTION audit_job()""",
    ],
}


async def killed(process):
    process.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(process.wait)


@pytest.mark.promise
async def test_every_job_ends_once_while_workers_are_killed(db, start, seed):
    await db.execute("CREATE TABLE audit (id TEXT NOT NULL, state TEXT NOT NULL)")
    for statement in AUDIT[db.dialect]:
        await db.execute(statement)
    queue = SqlTaskQueue(db, poll=0.1)
    tracker = ProgressTracker(SqlProgress(db, poll=0.1), queue)
    expected, cancelled, tasks = {}, [], []
    for number in range(JOBS):
        failures = seed.choice([0, 0, 0, 1, 2, 9])
        tasks.append(
            {
                "id": f"job-{number}",
                "name": "square",
                "kwargs": {"number": number, "failures": failures},
                "max_retries": 3,
                "max_deliveries": 1000,
                "priority": seed.randrange(3),
            }
        )
        expected[f"job-{number}"] = "completed" if failures <= 3 else "failed"
    for number in range(FOREVER):
        tasks.append({"id": f"forever-{number}", "name": "forever", "max_deliveries": 1000})
        expected[f"forever-{number}"] = "cancelled"
        cancelled.append(f"forever-{number}")
    seed.shuffle(tasks)
    assert all(answer.is_ok() for answer in await queue.enqueue_many(tasks))

    watched = [f"job-{seed.randrange(JOBS)}" for _ in range(5)]
    seen = {name: [] for name in watched}

    async def watch(name):
        async for snapshot in tracker.subscribe(name):
            seen[name].append(snapshot)

    async def unfinished(names=None):
        left = await queue.count("default") - await queue.count("default", JobStatus.COMPLETED)
        for status in (JobStatus.FAILED, JobStatus.CANCELLED):
            left -= await queue.count("default", status)
        return left

    async def kill_now_and_then():
        processes = [start() for _ in range(3)]
        for round_number in range(KILLS):
            await anyio.sleep(0.2 + seed.random())
            victim = seed.randrange(3)
            await killed(processes[victim])
            processes[victim] = start()
            if round_number % 2 and cancelled:
                assert await queue.cancel(cancelled.pop())
        for name in cancelled:
            assert await queue.cancel(name)

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as group:
            for name in set(watched):
                group.start_soon(watch, name)
            group.start_soon(kill_now_and_then)

            async def done():
                return await unfinished() == 0

            await wait_until(done, timeout=GUARD)

    audit = (await db.execute_query("SELECT id, state FROM audit")).rows
    states = {row["id"]: row["state"] for row in audit}
    assert len(audit) == len(states), "a job ended twice"
    assert states == expected
    for number in range(JOBS):
        result = await queue.get_result(f"job-{number}")
        if expected[result.job_id] == "completed":
            assert result.value == number * number
        else:
            assert result.error == "OSError: attempt 4"
    for name, snapshots in seen.items():
        currents = [snapshot.current for snapshot in snapshots]
        assert currents == sorted(currents), name
        assert snapshots[-1].is_final
    failed = [name for name, state in expected.items() if state == "failed"]
    assert await JobDeadLetters(queue).size() == len(failed)
    # Cancelled handlers do not run on: nobody counts any more.
    before = [await tracker.get(f"forever-{number}") for number in range(FOREVER)]
    probe = (
        await queue.enqueue({"name": "square", "kwargs": {"number": 3, "failures": 3}})
    ).unwrap()
    assert (await queue.wait(probe, GUARD)).value == 9
    assert [await tracker.get(f"forever-{number}") for number in range(FOREVER)] == before


@pytest.mark.promise
async def test_a_running_job_is_cancelled_from_another_process(db, start):
    process = start()
    queue = SqlTaskQueue(db, poll=0.1)
    job_id = (await queue.enqueue({"name": "forever"})).unwrap()

    async def runs():
        return (await queue.get_job(job_id)).status is JobStatus.RUNNING

    await wait_until(runs, timeout=60)
    assert await queue.cancel(job_id)
    result = await queue.wait(job_id, 60)
    assert (result.status, result.reason) == (JobStatus.CANCELLED, "asked")
    assert process.poll() is None


@pytest.mark.promise
async def test_a_worker_that_is_told_to_stop_hands_back_what_runs(db, start):
    process = start()
    queue = SqlTaskQueue(db, poll=0.1)
    job_id = (await queue.enqueue({"name": "forever"})).unwrap()

    async def runs():
        return (await queue.get_job(job_id)).status is JobStatus.RUNNING

    await wait_until(runs, timeout=60)
    process.send_signal(signal.SIGTERM)
    assert await anyio.to_thread.run_sync(process.wait) == 0
    found = await queue.get_job(job_id)
    assert (found.status, found.lost_count, found.retry_count) == (JobStatus.PENDING, 0, 0)


@pytest.mark.promise
async def test_a_job_that_kills_its_worker_every_time_is_poison(db, start):
    """Here the test kills it: what matters is that its retries are not used up by that."""
    queue = SqlTaskQueue(db, poll=0.1)
    job_id = (
        await queue.enqueue({"name": "forever", "max_retries": 0, "max_deliveries": 2})
    ).unwrap()
    for lost in range(2):
        process = start()

        async def runs(lost=lost):
            found = await queue.get_job(job_id)
            return found.status is JobStatus.RUNNING and found.lost_count == lost

        await wait_until(runs, timeout=60)
        await killed(process)

    async def ended():
        await queue.tend()
        return (await queue.get_job(job_id)).status.is_final

    await wait_until(ended, timeout=60)
    result = await queue.get_result(job_id)
    assert (result.status, result.reason) == (JobStatus.FAILED, "poison")


INNOCENTS = 50


@pytest.mark.promise
async def test_a_job_that_kills_its_workers_takes_no_other_along(db, start):
    """All are claimed together, and many run beside it when it begins."""
    queue = SqlTaskQueue(db, poll=0.1)
    tasks = [
        {"name": "square", "kwargs": {"number": number, "failures": 0}}
        for number in range(INNOCENTS)
    ]
    tasks.insert(5, {"name": "deadly"})
    tasks = [{**task, "max_deliveries": 5} for task in tasks]
    ids = [answer.unwrap() for answer in await queue.enqueue_many(tasks)]
    poison = ids.pop(5)
    deaths, process = 0, start(lease=1.0)

    async def all_ended():
        nonlocal deaths, process
        await queue.tend()
        if process.poll() is not None:
            deaths, process = deaths + 1, start(lease=1.0)
        found = [await queue.get_job(one) for one in (poison, *ids)]
        return all(one.status.is_final for one in found)

    await wait_until(all_ended, timeout=GUARD)
    results = [await queue.get_result(one) for one in ids]
    assert [one.value for one in results] == [number**2 for number in range(INNOCENTS)]
    found = await queue.get_job(poison)
    assert (found.status, found.reason) == (JobStatus.FAILED, "poison")
    assert deaths == found.lost_count == 5
