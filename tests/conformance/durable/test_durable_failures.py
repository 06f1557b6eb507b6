"""Whatever a handler raises is a failure of that one call; the worker goes on."""

import logging

import pytest
from tests.failures import FAILURES

from lexigram.contracts.workflow.durable import RunStatus
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

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0))


@pytest.fixture
async def running(engine):
    """Start workers that are stopped at the end."""
    workers = []

    async def start(handlers, **options):
        config = WorkerConfig(consumers={"*": 2}, poll_interval=0.1)
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


async def fine():
    """Does nothing, well."""


def plan(handler, **more):
    step = StepPlan(name="one", step_type="one", handler=handler, retries=2, backoff=0.01)
    return RunPlan(workflow_id="w", steps=[step], **more)


async def end_of(engine, submitted):
    async def status():
        found = (await engine.run(submitted.runs[0])).status
        return found in (RunStatus.COMPLETED, RunStatus.FAILED)

    await wait_until(status, timeout=GUARD)
    return (await engine.run(submitted.runs[0])).status


@pytest.mark.parametrize("way", FAILURES)
async def test_a_step_that_fails_in_any_way_is_retried_then_failed(engine, running, way, caplog):
    caplog.set_level(logging.INFO)
    worker = await running({"bad": FAILURES[way], "fine": fine})
    bad = await engine.submit(plan("bad"), [NewRun()])
    assert await end_of(engine, bad) is RunStatus.FAILED
    assert len(await engine.attempts(bad.runs[0])) == 2
    good = await engine.submit(plan("fine"), [NewRun()])
    assert await end_of(engine, good) is RunStatus.COMPLETED
    assert worker.is_alive
    assert worker.failure is None
    raised = [one for one in caplog.records if one.message == "a step raised"]
    assert raised
    assert all(one.exc_info for one in raised)


@pytest.mark.parametrize("way", FAILURES)
async def test_a_lifecycle_handler_that_fails_in_any_way_is_retried_then_failed(
    engine, running, way
):
    handler = LifecycleHandler(name="told", handler="bad", retries=2)
    worker = await running({"bad": FAILURES[way], "fine": fine})
    given = plan("fine", lifecycle={LifeCycleEvent.ITEM_END: [handler]})
    submitted = await engine.submit(given, [NewRun()])

    async def failed():
        rows = await engine.lifecycle_history(submitted.group_id)
        return [(row.status, row.attempts) for row in rows] == [(RunStatus.FAILED, 2)]

    await wait_until(failed, timeout=GUARD)
    assert worker.is_alive


@pytest.mark.parametrize("way", FAILURES)
async def test_a_listener_that_fails_in_any_way_is_called_again(engine, running, way):
    calls = []

    async def listen(event):
        calls.append(event)
        if len(calls) < 2:
            await FAILURES[way]()

    worker = await running({"fine": fine}, listeners={LifeCycleEvent.GROUP_END: listen})
    await engine.submit(plan("fine"), [NewRun()])
    await wait_until(lambda: len(calls) == 2, timeout=GUARD)
    assert worker.is_alive


class BrokenMetrics:
    """Breaks a loop of the worker itself."""

    def __init__(self, error):
        self.error = error

    def incr(self, name, value=1, **labels):
        if name == "claim_success":
            raise self.error

    def observe(self, name, value, **labels):
        pass


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
async def test_a_worker_whose_own_task_fails_has_a_failure(engine, running, error, caplog):
    worker = await running({"fine": fine}, metrics=BrokenMetrics(error))
    await engine.submit(plan("fine"), [NewRun()])
    await worker.ended()
    assert not worker.is_alive
    assert worker.failure is not None
    logged = [one for one in caplog.records if "claims no more" in one.message]
    assert logged
    assert all(one.exc_info for one in logged)
