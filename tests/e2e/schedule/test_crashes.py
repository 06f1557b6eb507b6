"""Several processes with one schedule, and the sudden death of some of them."""

import os
import signal
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import anyio
import pytest

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.tasks import SqlTaskQueue
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(600)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
TICKS, KILL_EVERY = (60, 10) if FULL else (10, 3)


async def rows(db, sql):
    return (await db.execute_query(sql)).rows


async def made(db):
    return [row["tick"] for row in await rows(db, "SELECT tick FROM made")]


async def fired_until(db, start, count, *, table="made"):
    async def reached():
        assert start.died() is None
        return (await rows(db, f"SELECT count(*) AS n FROM {table}"))[0]["n"] >= count

    await wait_until(reached, timeout=120)


async def fire_and_kill(db, start, seed, work, table):
    """Three processes until there are enough ticks; one of them is killed now and then."""
    processes = [start(work) for _ in range(3)]
    kills = 0
    for until in range(KILL_EVERY, TICKS, KILL_EVERY):
        await fired_until(db, start, until, table=table)
        await anyio.sleep(seed.random())  # anywhere between two ticks
        victim = seed.randrange(3)
        processes[victim].send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(processes[victim].wait)
        processes[victim] = start(work)
        kills += 1
    await fired_until(db, start, TICKS, table=table)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.wait)
    assert kills == len(range(KILL_EVERY, TICKS, KILL_EVERY))


async def check_ticks(db, found):
    counts = Counter(found)
    assert set(counts.values()) == {1}, "a tick fired twice"
    ticks = sorted(datetime.fromisoformat(tick) for tick in counts)
    gaps = {other - one for one, other in pairwise(ticks)}
    assert gaps == {timedelta(seconds=1)}, "a tick was lost"
    assert len(ticks) >= TICKS
    recorded = await rows(db, "SELECT tick FROM lexigram_schedule_firings")
    assert len(recorded) == len(ticks), "a tick without its job, or a job without its tick"


async def test_three_processes_fire_each_tick_of_a_second_once_while_one_is_killed(db, start, seed):
    await fire_and_kill(db, start, seed, "jobs", "made")
    await check_ticks(db, await made(db))


async def test_each_tick_is_one_job_of_the_real_queue_and_each_job_is_done(db, start, seed):
    await fire_and_kill(db, start, seed, "queue", "lexigram_jobs")
    queue = SqlTaskQueue(db, poll=0.1)
    jobs = await queue.list_jobs(limit=10 * TICKS)
    await check_ticks(db, [job.kwargs["tick"] for job in jobs])
    start("queue")  # what was running when all were killed
    for job in jobs:
        assert (await queue.wait(job.id, 60)).status is JobStatus.COMPLETED
    assert set(await made(db)) >= {job.kwargs["tick"] for job in jobs}


@pytest.mark.promise
async def test_ticks_of_a_time_without_any_process_are_made_up_for_where_all_shall_fire(db, start):
    process = start("jobs")
    await fired_until(db, start, 1)
    process.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(process.wait)
    before = len(await made(db))
    await anyio.sleep(3)  # ticks pass by: time itself is what is tested
    start("jobs")
    await fired_until(db, start, before + 3)
    ticks = sorted(datetime.fromisoformat(tick) for tick in await made(db))
    gaps = {other - one for one, other in pairwise(ticks)}
    assert gaps == {timedelta(seconds=1)}


@pytest.mark.promise
async def test_the_callback_of_a_killed_process_is_run_by_another(db, start):
    # As the victim leaves it: claimed, and its lease not renewed any more.
    victim = start("callbacks")
    await fired_until(db, start, 1, table="called")
    victim.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(victim.wait)
    await db.execute(
        "UPDATE lexigram_schedule_firings SET state = 'pending', lease = 1, holder = 'dead'"
    )
    start("callbacks")

    async def all_done():
        found = await rows(
            db, "SELECT state FROM lexigram_schedule_firings WHERE lease IS NOT NULL"
        )
        return not found

    await wait_until(all_done, timeout=60)
    states = {row["state"] for row in await rows(db, "SELECT state FROM lexigram_schedule_firings")}
    assert states <= {"done", "pending"}
