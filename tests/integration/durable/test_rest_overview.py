"""What operators see of durable runs, on both databases."""

import pytest

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    NewRun,
    RunNotFoundError,
    RunPlan,
    StepPlan,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.errors import GroupBusyError
from lexigram.workflow.durable.store.overview import Overview

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param))


PLAN = RunPlan(
    workflow_id="w",
    param_id="p",
    steps=[
        StepPlan(name="parse it", step_type="parse", handler="f", resource_key="K"),
        StepPlan(name="store it", step_type="store", handler="f"),
    ],
)


async def test_lists_come_in_pages_newest_first_and_filtered(engine):
    overview = Overview(engine.database)
    first = await engine.submit(PLAN, [NewRun(batch_id=7), NewRun(batch_id=7)], name="a")
    second = await engine.submit(PLAN, [NewRun(doc_id="d")])
    page = await overview.groups(limit=1)
    assert (page.total, [item["id"] for item in page.items]) == (2, [second.group_id])
    assert [g["id"] for g in (await overview.groups(batch_id=7)).items] == [first.group_id]
    assert (await overview.groups(status=RunStatus.FAILED)).items == []
    assert (await overview.runs(limit=2)).total == 3
    assert {run["id"] for run in (await overview.runs(batch_id=7)).items} == set(first.runs)
    assert (await overview.runs(group_id=second.group_id)).items[0]["doc_id"] == "d"
    assert (await overview.counts(7)) == {"PENDING": 2}


async def test_a_failed_step_is_found_and_later_ones_are_cancelled(engine):
    overview = Overview(engine.database)
    group = await engine.submit(PLAN, [NewRun()])
    step = await engine.claim_next_step("w1", "lease-1")
    assert [s["id"] for s in await overview.steps(status=RunStatus.RUNNING)] == [step.id]
    assert [lock["resource_key"] for lock in await overview.locks()] == ["K"]
    with pytest.raises(GroupBusyError):
        await overview.remove_group(group.group_id)
    await engine.error_step(step.id, "lease-1", "no", {"error": "OSError"})
    [failed] = await overview.steps(status=RunStatus.FAILED)
    assert (failed["status_message"], failed["status_meta"]) == ("no", {"error": "OSError"})
    run = await overview.run(group.runs[0])
    assert [s["status"] for s in run["steps"]] == ["FAILED", "CANCELLED"]
    assert run["status"] == "FAILED"
    assert run["start_date"].endswith("+00:00")
    assert [s["step"] for s in await overview.step_stats(group.group_id)] == ["parse it"]
    assert len(await overview.durations(group.group_id)) == 1
    removed = await overview.remove_group(group.group_id)
    assert removed == {"deleted_groups": 1, "deleted_runs": 1, "deleted_attempts": 1}
    for ask in (overview.group, overview.remove_group, overview.step_stats):
        with pytest.raises(RunNotFoundError):
            await ask(group.group_id)
    with pytest.raises(RunNotFoundError):
        await overview.run(group.runs[0])


async def test_workers_are_seen_by_their_check_in(engine):
    await engine.store.heartbeat("w1")
    assert [w["id"] for w in await Overview(engine.database).workers()] == ["w1"]


async def test_runs_that_runs_make_are_not_counted_in_the_batch(engine):
    async def split(ctx):
        ctx.spawn(["store it"], [NewRun(), NewRun()])

    async def work():
        return None

    steps = [
        StepPlan(name="split it", step_type="route", handler="split"),
        StepPlan(name="store it", step_type="store", handler="work"),
    ]
    group = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun(batch_id=5)])
    worker = Worker(WorkerConfig(poll_interval=0.1), engine, {"split": split, "work": work})
    await worker.start()
    try:

        async def ended():
            return (await engine.stats(group.group_id)).group_status is RunStatus.COMPLETED

        await wait_until(ended)
    finally:
        await worker.stop(0.0)
    overview = Overview(engine.database)
    assert await overview.counts(5) == {"COMPLETED": 1}
    parents = [run["parent_run_id"] for run in (await overview.runs(batch_id=5)).items]
    assert parents == [None], "those that a run made are found by it"
