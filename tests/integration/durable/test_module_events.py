"""Hooks and bus messages of durable runs: who hears what, and how often."""

import pytest

from lexigram.app import Application
from lexigram.contracts.queue import QueueProtocol
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.queue import NamedQueueConfig, QueueConfig, QueueModule
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.bus_events import HOOKS, RunGroupEndedHook, StepFailedHook
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet

pytestmark = pytest.mark.anyio


async def work(ctx, workflow_run):
    if workflow_run.doc_id == "bad" or ctx.attempt == 1:
        raise OSError("no")


def plan():
    steps = [
        StepPlan(name="a", step_type="parse", handler="work", retries=2),
        StepPlan(name="b", step_type="store", handler="work", retries=2),
    ]
    return RunPlan(workflow_id="w", steps=steps)


def app_of(url, *modules, **durable):
    settings = DurableConfig(run_worker=True, poll_interval=0.1, **durable)
    workflow = WorkflowModule.stub(WorkflowConfig(durable=settings), step_handlers={"work": work})
    sql = SqlModule.configure(SqlConfig(url=url))
    return Application("events", modules=[sql, *modules, workflow])


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(request.param).config.url


async def test_hooks_hear_all_eight_events(url):
    app = app_of(url)
    heard = []
    for payload in HOOKS.values():
        app.hooks.on(payload, heard.append)
    async with app:
        engine = app.container.get(DurableFleet).engine
        group = await engine.submit(plan(), [NewRun(doc_id="good"), NewRun(doc_id="bad")])

        def ended():
            return any(isinstance(one, RunGroupEndedHook) for one in heard)

        await wait_until(ended)
    counts = {name: sum(type(one) is kind for one in heard) for name, kind in HOOKS.items()}
    assert counts == {
        "group_start": 1,
        "group_end": 1,
        "item_start": 2,
        "item_end": 1,
        "item_failed": 1,
        # every attempt starts; an error that is tried again is no end
        "step_start": 2 + 2 + 2,
        "step_end": 2,
        "step_failed": 1,
    }
    [failed] = [one for one in heard if isinstance(one, StepFailedHook)]
    assert (failed.doc_id, failed.step, failed.group_id) == ("bad", "a", group.group_id)
    assert "no" in failed.message
    [end] = [one for one in heard if isinstance(one, RunGroupEndedHook)]
    assert (end.group_id, end.status, end.number) == (group.group_id, RunStatus.FAILED, 1)


async def test_the_end_of_a_group_is_a_message_on_the_bus(url):
    backend = NamedQueueConfig(name="main", driver="memory")
    app = app_of(url, QueueModule.configure(QueueConfig(backends=[backend])))
    async with app:
        queue = app.container.get(QueueProtocol)
        got = []

        async def take(message):
            got.append(message)

        await queue.subscribe("durable.group_end", take)
        engine = app.container.get(DurableFleet).engine
        group = await engine.submit(plan(), [NewRun(doc_id="good")])
        await wait_until(lambda: got)
    [message] = got
    assert message.id == f"durable-group_end-{group.group_id}-1"
    assert message.payload == {
        "group_id": group.group_id,
        "status": "COMPLETED",
        "number": 1,
    }


async def test_a_bus_without_a_backend_is_no_bus():
    async with app_of("sqlite://", QueueModule.configure(QueueConfig())) as app:
        assert app.container.get(DurableFleet).worker.is_alive


async def test_nothing_is_built_when_nobody_listens(url, monkeypatch):
    made = []
    for name, payload in list(HOOKS.items()):
        monkeypatch.setitem(HOOKS, name, type(payload.__name__, (payload,), {}))
        monkeypatch.setattr(HOOKS[name], "__init__", lambda self, **facts: made.append(facts))
    async with app_of(url) as app:
        engine = app.container.get(DurableFleet).engine
        group = await engine.submit(plan(), [NewRun(doc_id="good")])

        async def told():
            query = engine.database.execute_query
            rows = (await query("SELECT delivered_at FROM lexigram_durable_events")).rows
            done = (await engine.stats(group.group_id)).group_status is RunStatus.COMPLETED
            return done and len(rows) == 2 and all(row["delivered_at"] for row in rows)

        await wait_until(told)
    assert made == []
