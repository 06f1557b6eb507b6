"""Operators cancel, pause, resume and retry while workers fan out: everything ends, once."""

import os
import random

import anyio
import pytest

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(600)]

FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
RUNS, SECONDS = (40, 60.0) if FULL else (8, 1.5)
GUARD = 300.0

PAGES = RunPlan(
    workflow_id="pages",
    steps=[
        StepPlan(name="ocr", step_type="x", handler="page"),
        StepPlan(name="save", step_type="y", handler="page", resource_key="K"),
    ],
)
PLAN = RunPlan(
    workflow_id="fan",
    steps=[
        StepPlan(name="split", step_type="x", handler="split"),
        StepPlan(name="gather", step_type="y", handler="gather"),
        StepPlan(name="split again", step_type="x", handler="split"),
        StepPlan(name="gather again", step_type="y", handler="gather"),
    ],
    lifecycle={
        event: [LifecycleHandler(name="note", handler="note", retries=3)]
        for event in (LifeCycleEvent.GROUP_END, LifeCycleEvent.ITEM_END)
    },
)


@pytest.fixture(
    params=["sqlite_url", pytest.param("postgres_url", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def engine(url):
    async with Database(url) as database:
        yield DurableEngine(database, Terms(lease=30.0))


async def test_whatever_operators_do_every_step_completes_once_and_every_end_is_handled_once(
    engine,
):
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    heard = []

    async def split(ctx):
        ctx.spawn(PAGES, [NewRun(params={"page": page}) for page in range(3)])

    async def page(page):
        await anyio.sleep(chance.random() * 0.004)
        if chance.random() < 0.03:
            raise OSError("now and then")
        return {"page": page}

    async def gather(ctx):
        assert sorted(c.status_meta["page"] for c in await ctx.children()) == [0, 1, 2]

    async def note(event):
        heard.append((event.kind, event.group_id, event.run_id, event.ending))

    handlers = {"split": split, "page": page, "gather": gather, "note": note}
    config = WorkerConfig(consumers={"x": 3, "*": 3}, poll_interval=0.1)
    workers = [Worker(config, engine, handlers) for _ in range(3)]
    for worker in workers:
        await worker.start()
    groups = [await engine.submit(PLAN, [NewRun() for _ in range(RUNS)]) for _ in range(3)]

    async def operate():
        kinds = ["cancel", "pause", "resume", "resume", "retry", "hard", "reconcile"]
        with anyio.move_on_after(SECONDS):
            while True:
                what, group = chance.choice(kinds), chance.choice(groups)
                which = {"group_id": group.group_id}
                if chance.random() < 0.7:
                    made = await engine.children(chance.choice(group.runs))
                    runs = [*group.runs, *(child.run_id for child in made)]
                    which = {"run_id": chance.choice(runs)}
                if what == "reconcile":
                    # it may come before a cancel has counted those that made what it cancelled
                    await engine.store.reconcile()
                elif what == "hard":
                    await engine.retry(**which, hard=True)
                else:
                    await getattr(engine, what)(**which)
                await anyio.sleep(chance.random() * 0.02)

    async def all_completed():
        done = 0
        for group in groups:
            await engine.resume(group_id=group.group_id)
            stats = await engine.stats(group.group_id)
            if stats.failed:
                await engine.retry(group_id=group.group_id)
            # a group of which some runs were cancelled is completed, too
            done += stats.completed == RUNS and stats.group_status is RunStatus.COMPLETED
        return done == len(groups)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(operate)
        await wait_until(all_completed, timeout=GUARD)
        query = engine.database.execute_query
        ids = ", ".join(str(group.group_id) for group in groups)

        async def all_handled():
            found = await query(
                "SELECT id FROM lexigram_durable_events WHERE delivered_at IS NULL"
                f" AND audience = 'handler' AND group_id IN ({ids})"
            )
            return found.rows == []

        await wait_until(all_handled, timeout=GUARD)
    finally:
        for worker in workers:
            await worker.stop(5.0)
    twice = await query(
        "SELECT h.run_id FROM lexigram_durable_history h JOIN lexigram_durable_runs r"
        f" ON r.id = h.run_id AND r.group_id IN ({ids})"
        " WHERE h.status = 'COMPLETED' GROUP BY h.run_id, h.step_no HAVING count(*) > 1"
    )
    assert twice.rows == [], "a step was completed twice"
    assert len(heard) == len(set(heard)), "an end was handled twice"
    for group in groups:
        row = await engine.store.group(group.group_id)
        ends = [one for one in heard if one[:2] == (LifeCycleEvent.GROUP_END, group.group_id)]
        assert sorted(ending for *_, ending in ends) == list(range(1, row["endings"] + 1))
        assert (row["total"], row["remaining"], row["failed"]) == (RUNS, 0, 0)
        for run in group.runs:
            assert len(await engine.children(run, 1)) == len(await engine.children(run, 3)) == 3
    assert await engine.store.reconcile() == 0
