"""Who waits for whom in PostgreSQL: whatever happens at once, nobody waits in a circle.

A transaction of the test stands for the half of a statement that has its rows and asks for more.
"""

import random
from contextlib import asynccontextmanager

import anyio
import pytest
from attrs import evolve

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    ANYTHING,
    DurableEngine,
    End,
    EndKind,
    NewRun,
    RunPlan,
    Spawn,
    StepPlan,
)
from lexigram.workflow.durable.store.overview import Overview

pytestmark = [pytest.mark.anyio, pytest.mark.service("postgresql")]

GUARD = 60.0  # against a hang only
# NOWAIT: what has to be free is refused at once when it is not, and not by the deadlock detector.
RUN = "SELECT id FROM lexigram_durable_runs WHERE id = ? FOR UPDATE NOWAIT"
GROUP = "SELECT id FROM lexigram_durable_groups WHERE id = ? FOR UPDATE NOWAIT"
LOCK = "SELECT resource_key FROM lexigram_locks WHERE resource_key = ? FOR UPDATE NOWAIT"


@pytest.fixture
def engine(postgres):
    return DurableEngine(postgres)


@pytest.fixture
async def other(postgres_url):
    async with Database(postgres_url) as database:
        yield database


def plan(*names, **options):
    steps = [StepPlan(name=name, step_type=name, handler=name, **options) for name in names]
    return RunPlan(workflow_id="w", steps=steps)


async def claimed(engine, lease):
    [claim] = (await engine.store.claim("w", lease, ANYTHING, 1)).claims
    return claim


def completed(claim, *spawns, **more):
    end = End(run_id=claim.run_id, step_no=claim.step_no, lease=claim.lease, kind=EndKind.COMPLETED)
    return evolve(end, spawns=spawns, **more)


def spawn(number=1, *names):
    return Spawn(plan=plan(*(names or ("leaf",))), runs=[NewRun() for _ in range(number)])


async def three_levels(engine):
    """A run whose child is at work again, since its own child failed."""
    submitted = await engine.submit(plan("top", "end"), [NewRun()])
    top = await claimed(engine, "L1")
    await engine.store.finish([completed(top, spawn(1, "middle", "gather"))])
    middle = await claimed(engine, "L2")
    await engine.store.finish([completed(middle, spawn())])
    leaf = await claimed(engine, "L3")
    await engine.error_step(leaf.step_id, "L3", "boom")
    middle = await claimed(engine, "L4")  # to tell that its child failed
    return submitted, top.run_id, middle, leaf.run_id


@asynccontextmanager
async def beside(other, statement, key, work):
    """Hold a row, let the work come to where it waits for it, then do more; all must end."""
    done = []

    async def working():
        done.append(await work())

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            async with other.transaction() as held:
                pid = (await held.execute("SELECT pg_backend_pid() AS pid")).rows[0]["pid"]
                await held.execute(statement, (key,))
                tasks.start_soon(working)
                await wait_until(lambda: _waits(other, pid), timeout=GUARD)
                yield held, done


async def _waits(other, pid):
    waiting = "SELECT 1 FROM pg_stat_activity WHERE CAST(? AS int) = ANY(pg_blocking_pids(pid))"
    async with Database(other.config.url) as third:
        return (await third.execute_query(waiting, (pid,))).rows


async def test_a_retry_of_a_group_and_the_end_of_a_child_do_not_wait_for_each_other(engine, other):
    submitted, top, middle, _ = await three_levels(engine)
    retry = engine.retry(group_id=submitted.group_id)
    async with beside(other, RUN, middle.run_id, lambda: retry) as (held, done):
        await held.execute(RUN, (top,))  # as an end of the child does next
    assert done == [1]


async def test_a_retry_of_a_run_and_the_end_of_a_child_do_not_wait_for_each_other(engine, other):
    _, top, middle, _ = await three_levels(engine)
    await engine.cancel(run_id=top)  # the child is told, and still at work
    retry = engine.retry(run_id=top)
    async with beside(other, RUN, middle.run_id, lambda: retry) as (held, done):
        await held.execute(RUN, (top,))
    assert done == [2]
    assert (await engine.store.run(top))["status"] == "waiting"


async def test_a_retry_of_a_child_has_only_runs_that_made_others_while_it_waits(engine, other):
    submitted, top, middle, leaf = await three_levels(engine)
    await engine.error_step(middle.step_id, "L4", "its child failed")
    retry = engine.retry(run_id=middle.run_id)
    async with beside(other, RUN, top, lambda: retry) as (held, done):
        await held.execute(RUN, (leaf,))
        await held.execute(GROUP, (submitted.group_id,))
    assert done == [2]


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_end_waits_for_those_that_made_runs_before_it_takes_groups(engine, other, goes_on):
    """A child of one run and a run of its own end together; ``goes_on``: a third goes on."""
    submitted = await engine.submit(plan("top", "end"), [NewRun()])
    top = await claimed(engine, "L1")
    await engine.store.finish([completed(top, spawn())])
    child = await claimed(engine, "L2")
    alone = await engine.submit(plan("leaf"), [NewRun()])
    ends = [completed(child), completed(await claimed(engine, "L3"))]
    if goes_on:
        await engine.submit(plan("a", "b"), [NewRun()])
        ends.append(completed(await claimed(engine, "L4")))
    async with beside(other, RUN, top.run_id, lambda: engine.store.finish(ends)) as (held, _):
        for group in (alone.group_id, submitted.group_id):
            await held.execute(GROUP, (group,))
    assert (await engine.stats(alone.group_id)).group_status is RunStatus.COMPLETED


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_end_gives_back_its_resource_before_it_takes_groups(engine, other, goes_on):
    submitted = await engine.submit(plan("leaf", resource_key="K"), [NewRun()])
    ends = [completed(await claimed(engine, "L1"))]
    if goes_on:
        await engine.submit(plan("a", "b"), [NewRun()])
        ends.append(completed(await claimed(engine, "L2")))
    async with beside(other, LOCK, "K", lambda: engine.store.finish(ends)) as (held, _):
        await held.execute(GROUP, (submitted.group_id,))
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED


async def test_removing_a_group_and_a_retry_do_not_wait_for_each_other(engine, other):
    submitted, top, middle, leaf = await three_levels(engine)
    await engine.cancel(group_id=submitted.group_id)
    await engine.release_step(middle.step_id, "L4")
    remove = Overview(engine.database).remove_group(submitted.group_id)
    async with beside(other, RUN, leaf, lambda: remove) as (held, done):
        await held.execute(GROUP, (submitted.group_id,))  # as a retry does after its rows
    assert done[0]["deleted_runs"] == 3
    assert await engine.store.run(top) is None


async def test_an_error_that_waited_for_the_reaper_finds_its_lease_gone(engine, other):
    """The lease is looked at by the statement that writes, not before it."""
    submitted = await engine.submit(plan("leaf", "next", retries=3), [NewRun()])
    claim = await claimed(engine, "L1")
    error = engine.error_step(claim.step_id, "L1", "boom")
    async with beside(other, RUN, claim.run_id, lambda: error) as (held, done):
        await held.execute(
            "UPDATE lexigram_durable_runs SET lease = 'L2', worker_id = 'x' WHERE id = ?",
            (claim.run_id,),
        )  # as a reap and a new claim in between
    assert done == [None]
    [first, _] = await engine.steps(submitted.runs[0])
    assert (first.status, first.worker_id, first.retry) == (RunStatus.RUNNING, "x", 0)
    assert await engine.attempts(submitted.runs[0]) == []


async def test_the_reaper_leaves_alone_what_is_just_ending(engine, other):
    """It skips the row, instead of taking back by its number what it saw before."""
    await engine.submit(plan("leaf", "next"), [NewRun()])
    claim = await claimed(engine, "L1")
    await engine.database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
    async with other.transaction() as held:
        await held.execute(RUN, (claim.run_id,))
        assert (await engine.store.reap([])).steps == []
        await held.execute(
            "UPDATE lexigram_durable_runs SET status = 'ready', step_no = 2, step_type = 'next',"
            " lease = NULL, lease_until = NULL, worker_id = NULL WHERE id = ?",
            (claim.run_id,),
        )  # as the end of its step
    assert (await engine.store.reap([])).steps == []
    assert (await engine.store.run(claim.run_id))["step_no"] == 2


async def test_trees_that_end_are_cancelled_and_retried_at_once_leave_nobody_waiting(
    engine, postgres_url
):
    """Every statement at random over the same trees, by five at once; none is ever refused."""
    submitted = await engine.submit(plan("top", "end"), [NewRun() for _ in range(4)])
    numbers = iter(range(1_000_000))

    async def one(seed):
        chance = random.Random(seed)
        async with Database(postgres_url) as database:
            mine = DurableEngine(database)
            for _ in range(40):
                lease = f"{seed}-{next(numbers)}"
                claims = (await mine.store.claim("w", lease, ANYTHING, 3)).claims
                plain = [claim for claim in claims if claim.step_type not in ("top", "middle")]
                for claim in claims:
                    if claim.step_type == "top":
                        await mine.store.finish([completed(claim, spawn(2, "middle", "gather"))])
                    if claim.step_type == "middle":
                        await mine.store.finish([completed(claim, spawn(2))])
                kinds = (EndKind.COMPLETED, EndKind.COMPLETED, EndKind.ERROR, EndKind.RELEASED)
                ends = [evolve(completed(claim), kind=chance.choice(kinds)) for claim in plain]
                await mine.store.finish(ends)
                await disturb(mine, chance)

    async def disturb(mine, chance):
        run = chance.choice(submitted.runs)
        aim = chance.choice([{"group_id": submitted.group_id}, {"run_id": run}])
        what = chance.randrange(8)
        if what < 3:
            await mine.retry(**aim, hard=what == 0)
        elif what == 3:
            await mine.cancel(run_id=run)
        elif what == 4:
            await mine.store.reconcile()

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for seed in range(5):
                tasks.start_soon(one, seed)
