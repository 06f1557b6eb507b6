"""Nothing waits for a poll: not between steps, not after a failure, not for new runs."""

from collections import Counter

import pytest

from lexigram.app import Application
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(request.param).config.url


async def test_many_steps_and_failures_need_no_poll(url):
    calls = Counter()

    async def work(run_step, ctx):
        calls[run_step.step_type] += 1
        if ctx.attempt == 1:
            raise OSError("the first time")

    # Longer than the test may take: whatever waited for it would never end.
    durable = DurableConfig(run_worker=True, poll_interval=3600.0, pools={"parse": 1, "*": 1})
    modules = [
        SqlModule.configure(SqlConfig(url=url)),
        WorkflowModule.stub(WorkflowConfig(durable=durable), step_handlers={"work": work}),
    ]
    kinds = ("parse", "chunk", "parse", "store")
    steps = [StepPlan(name=kind, step_type=kind, handler="work", retries=2) for kind in kinds]
    plan = RunPlan(workflow_id="w", steps=steps)
    async with Application("pace", modules=modules) as app:
        engine = app.container.get(DurableFleet).engine
        for _ in range(2):  # the second group comes when the worker is idle
            group = await engine.submit(plan, [NewRun() for _ in range(10)])

            async def ended(group_id=group.group_id):
                return (await engine.stats(group_id)).group_status is RunStatus.COMPLETED

            await wait_until(ended)
    assert calls == {"parse": 2 * 10 * 2 * 2, "chunk": 2 * 10 * 2, "store": 2 * 10 * 2}
