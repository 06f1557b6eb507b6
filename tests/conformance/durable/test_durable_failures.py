"""Whatever code of a user raises is a failure of that one call; the worker goes on.

The places that a worker calls: handlers of steps, of lifecycle events, listeners, and on a fleet
nodes of graphs, steps of pipelines and steps of sagas.
"""

import asyncio
import logging

import anyio
import pytest
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, block_the_loop
from tests.retries import HOPELESS

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    OrchestratedRuns,
    RunPlan,
    StepPlan,
    StepTerms,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.worker import worker as worker_module
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, SagaStep

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only
OPEN_EVENTS = (
    "SELECT id FROM lexigram_durable_events WHERE delivered_at IS NULL AND kind = 'group_end'"
)
LEASE = 0.5  # of a worker whose loop is blocked for three of them
TERMS = StepTerms(retries=2, timeout=TIME_LIMIT)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0))


@pytest.fixture
async def running():
    """Start workers that are stopped at the end."""
    workers = []

    async def start(engine, handlers, **options):
        config = WorkerConfig(
            consumers={"*": 2}, poll_interval=0.1, listener_timeout=options.pop("limit", None)
        )
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch):
    backoff = worker_module.Backoff(first=0.01, cap=0.01)
    monkeypatch.setattr(worker_module, "RESTART", backoff)


async def fine():
    """Does nothing, well."""


def plan(handler, **more):
    step = StepPlan(
        name="one", step_type="one", handler=handler, retries=2, backoff=0.01, timeout=TIME_LIMIT
    )
    return RunPlan(workflow_id="w", steps=[step], **more)


async def end_of(engine, run_id):
    async def is_final():
        found = (await engine.run(run_id)).status
        return found in (RunStatus.COMPLETED, RunStatus.FAILED)

    await wait_until(is_final, timeout=GUARD)
    return (await engine.run(run_id)).status


async def goes_on(engine, worker):
    """The worker lives, has no defect to show, and does the work of others."""
    good = await engine.submit(plan("fine"), [NewRun()])
    assert await end_of(engine, good.runs[0]) is RunStatus.COMPLETED
    return worker.is_alive and worker.failure is None and not worker.failed_tasks


def tracebacks(caplog, message):
    return [r for r in caplog.records if message in r.getMessage() and r.exc_info and r.exc_info[1]]


# --- handlers of steps ---------------------------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_step_is_retried_then_failed_and_others_are_done(
    engine, running, fail, caplog
):
    caplog.set_level(logging.INFO)
    worker = await running(engine, {"bad": fail, "fine": fine})
    bad = await engine.submit(plan("bad"), [NewRun()])
    assert await end_of(engine, bad.runs[0]) is RunStatus.FAILED
    attempts = await engine.attempts(bad.runs[0])
    assert [row["status"] for row in attempts] == ["ERROR", "FAILED"]
    assert len(tracebacks(caplog, "a step raised")) == 2
    assert await goes_on(engine, worker)


async def test_a_step_that_cancels_its_own_task_fails_alone(engine, running, caplog):
    caplog.set_level(logging.INFO)

    async def bad():
        asyncio.current_task().cancel()
        await anyio.sleep_forever()

    worker = await running(engine, {"bad": bad, "fine": fine})
    submitted = await engine.submit(plan("bad"), [NewRun()])
    assert await end_of(engine, submitted.runs[0]) is RunStatus.FAILED
    assert len(tracebacks(caplog, "a step raised")) == 2
    assert await goes_on(engine, worker)


# --- handlers of events, and listeners -----------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_lifecycle_handler_is_retried_then_failed_and_others_are_called(
    engine, running, fail, caplog
):
    handlers = [
        LifecycleHandler(name="bad", handler="bad", retries=2, timeout=TIME_LIMIT),
        LifecycleHandler(name="good", handler="fine"),
    ]
    worker = await running(engine, {"bad": fail, "fine": fine})
    given = plan("fine", lifecycle={LifeCycleEvent.ITEM_END: handlers})
    submitted = await engine.submit(given, [NewRun()])

    async def outcomes():
        rows = await engine.lifecycle_history(submitted.group_id)
        return {row.handler_name: (row.status, row.attempts) for row in rows}

    wanted = {"bad": (RunStatus.FAILED, 2), "good": (RunStatus.COMPLETED, 1)}

    async def are_there():
        return await outcomes() == wanted

    await wait_until(are_there, timeout=GUARD)
    assert len(tracebacks(caplog, "a lifecycle handler failed")) == 2
    assert await goes_on(engine, worker)


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_listener_is_called_again_and_others_are_called(
    engine, running, fail, caplog
):
    ends, starts = [], []

    async def listen(event):
        ends.append(event)
        if len(ends) < 2:
            await fail()

    async def listen_to_starts(event):
        starts.append(event)

    listeners = {LifeCycleEvent.GROUP_END: listen, LifeCycleEvent.GROUP_START: listen_to_starts}
    worker = await running(engine, {"fine": fine}, listeners=listeners, limit=TIME_LIMIT)
    await engine.submit(plan("fine"), [NewRun()])
    await wait_until(lambda: len(ends) == 2 and starts, timeout=GUARD)
    assert len(tracebacks(caplog, "a listener failed")) == 1
    assert await goes_on(engine, worker)


# --- graphs, pipelines and sagas on a fleet ------------------------------------------------------


def graph(work):
    async def node(state):
        await work()

    return WorkflowBuilder("g").add_node("a", node).set_entry("a").set_terminal("a").build()


def pipeline(work):
    async def step(context):
        await work()

    return Pipeline("p", [FunctionStep("a", step)])


def saga(work):
    class Trip(AbstractSaga):
        def __init__(self):
            super().__init__()
            self.add_step(SagaStep("a", work, max_retries=1, retry_delay=0.0))

        def get_id(self):
            return "trip"

    return Trip


@pytest.mark.parametrize("make", [graph, pipeline, saga])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_node_or_step_on_a_fleet_is_retried_then_failed_and_others_are_done(
    engine, running, fail, make
):
    calls = []

    async def work():
        calls.append(1)
        await fail()

    runs = OrchestratedRuns(engine)
    runs.register("bad", make(work), terms=TERMS)
    worker = await running(engine, {**runs.handlers, "fine": fine})
    run_id = await runs.submit("bad")
    assert await end_of(engine, run_id) is RunStatus.FAILED
    assert len(calls) == 2
    assert await goes_on(engine, worker)


# --- a loop that is blocked ----------------------------------------------------------------------


class Blocking:
    """Blocks the loop for three leases at its first call, and never again."""

    def __init__(self):
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        if self.calls == 1:
            block_the_loop(3 * LEASE)


@pytest.fixture
def short(engine):
    return DurableEngine(engine.database, Terms(lease=LEASE))


async def saw_it(worker, caplog):
    await wait_until(lambda: worker.blocked is not None, timeout=GUARD)
    assert worker.blocked > LEASE
    return "the event loop of a worker" in caplog.text


async def test_a_step_that_blocks_the_loop_for_three_leases_is_done_and_reported(
    short, running, caplog
):
    handler = Blocking()
    worker = await running(short, {"slow": handler, "fine": fine})
    submitted = await short.submit(plan("slow"), [NewRun()])
    assert await end_of(short, submitted.runs[0]) is RunStatus.COMPLETED
    attempts = await short.attempts(submitted.runs[0])
    assert [row["status"] for row in attempts].count("COMPLETED") == 1
    assert await saw_it(worker, caplog)
    assert await goes_on(short, worker)


@pytest.mark.parametrize("make", [graph, pipeline, saga])
async def test_a_node_or_step_on_a_fleet_that_blocks_the_loop_is_done_and_reported(
    short, running, make, caplog
):
    runs = OrchestratedRuns(short)
    runs.register("slow", make(Blocking()))
    worker = await running(short, {**runs.handlers, "fine": fine})
    run_id = await runs.submit("slow")
    assert await end_of(short, run_id) is RunStatus.COMPLETED
    assert await saw_it(worker, caplog)
    assert await goes_on(short, worker)


async def test_handlers_of_events_and_listeners_that_block_the_loop_are_done_and_reported(
    short, running, caplog
):
    handler, listener = Blocking(), Blocking()

    async def listen(event):
        await listener()

    worker = await running(
        short,
        {"slow": handler, "fine": fine},
        listeners={LifeCycleEvent.GROUP_END: listen},
    )
    item_end = {LifeCycleEvent.ITEM_END: [LifecycleHandler(name="slow", handler="slow")]}
    submitted = await short.submit(plan("fine", lifecycle=item_end), [NewRun()])

    async def are_done():
        rows = await short.lifecycle_history(submitted.group_id)
        return [row.status for row in rows] == [RunStatus.COMPLETED] and listener.calls

    await wait_until(are_done, timeout=GUARD)
    assert await saw_it(worker, caplog)
    assert await goes_on(short, worker)


# --- defects of the worker itself ----------------------------------------------------------------

each_defect = pytest.mark.parametrize(
    "defect", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError]
)


def fails(monkeypatch, owner, name, times, defect):
    """Let a method of the worker or its parts raise so many times; tells whether it has."""
    if not hasattr(owner, name):
        owner = owner._pools if hasattr(owner._pools, name) else owner._duties
    work, raised = getattr(owner, name), []

    async def with_defect(*args):
        if len(raised) < times:
            raised.append(1)
            raise defect("defect")
        return await work(*args)

    monkeypatch.setattr(owner, name, with_defect)
    return lambda: len(raised) == times


@pytest.mark.parametrize(
    "task",
    ["_claim_on", "_consume", "_tend_on", "_reap", "_hear_wishes", "_spread", "_keep_beating"],
)
async def test_a_task_of_the_worker_that_fails_is_logged_and_restarted(
    engine, monkeypatch, task, caplog
):
    worker = Worker(WorkerConfig(consumers={"*": 2}, poll_interval=0.1), engine, {"fine": fine})
    has_failed = fails(monkeypatch, worker, task, 2, ValueError)
    await worker.start()
    try:
        await wait_until(has_failed, timeout=GUARD)
        submitted = await engine.submit(plan("fine"), [NewRun()])
        assert await end_of(engine, submitted.runs[0]) is RunStatus.COMPLETED
        assert list(worker.failed_tasks.values()) == ["ValueError: defect"]
        logged = tracebacks(caplog, "failed and is restarted")
        assert {record.levelno for record in logged} == {logging.ERROR}
        assert worker.is_alive
    finally:
        await worker.stop(0.0)


@each_defect
async def test_a_step_whose_worker_has_a_defect_goes_back_and_is_done(
    engine, running, monkeypatch, defect, caplog
):
    worker = await running(engine, {"fine": fine})
    has_failed = fails(monkeypatch, worker._runner, "attempt", 2, defect)
    submitted = await engine.submit(plan("fine"), [NewRun()])
    assert await end_of(engine, submitted.runs[0]) is RunStatus.COMPLETED
    assert has_failed()
    assert len(tracebacks(caplog, "failed and is restarted")) == 2
    assert worker.is_alive


@each_defect
async def test_a_worker_whose_task_fails_again_and_again_gives_up_with_a_failure(
    engine, running, monkeypatch, defect, caplog
):
    worker = await running(engine, {"fine": fine})
    fails(monkeypatch, worker, "_claim", 100, defect)
    await engine.submit(plan("fine"), [NewRun()])
    with anyio.fail_after(GUARD):
        await worker.ended()
    assert not worker.is_alive
    assert worker.failure is not None
    assert tracebacks(caplog, "claims no more")


async def test_figures_that_cannot_be_taken_lose_no_step(engine, running):
    class Broken:
        def incr(self, name, value=1, **labels):
            if name == "claim_success":
                raise ValueError("no figures")

        def observe(self, name, value, **labels):
            pass

    worker = await running(engine, {"fine": fine}, metrics=Broken())
    submitted = await engine.submit(plan("fine"), [NewRun()])
    assert await end_of(engine, submitted.runs[0]) is RunStatus.COMPLETED
    await wait_until(lambda: "claim *" in worker.failed_tasks, timeout=GUARD)


@each_defect
async def test_a_heartbeat_that_fails_is_logged_and_started_anew(
    engine, running, monkeypatch, defect, caplog
):
    worker = await running(engine, {"fine": fine})
    heartbeat = worker._heartbeat
    has_failed = fails(monkeypatch, heartbeat, "_beat_once", 1, defect)
    heartbeat.wake()
    await wait_until(has_failed, timeout=GUARD)
    before = heartbeat.beats
    await wait_until(lambda: heartbeat.is_beating and heartbeat.beats > before, timeout=GUARD)
    assert tracebacks(caplog, "the heartbeat of a worker failed")
    assert "heartbeat" in worker.failed_tasks
    submitted = await engine.submit(plan("fine"), [NewRun()])
    assert await end_of(engine, submitted.runs[0]) is RunStatus.COMPLETED


@pytest.mark.parametrize("make", HOPELESS)
async def test_a_step_whose_error_is_not_retryable_fails_after_one_attempt(engine, running, make):
    calls = []

    async def bad():
        calls.append(1)
        raise make()

    await running(engine, {"bad": bad})
    steps = [StepPlan(name="bad", step_type="a", handler="bad", retries=3)]
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    (run_id,) = submitted.runs

    async def failed():
        return (await engine.run(run_id)).status is RunStatus.FAILED

    await wait_until(failed, timeout=GUARD)
    assert calls == [1]
    assert type(make()).__name__ in (await engine.run(run_id)).status_message


@pytest.mark.parametrize("make", HOPELESS)
async def test_a_lifecycle_handler_and_a_listener_with_such_an_error_are_called_once(
    engine, running, make
):
    calls = []

    async def handle():
        calls.append("handler")
        raise make()

    async def listen(_):
        calls.append("listener")
        raise make()

    event = LifeCycleEvent.GROUP_END
    await running(engine, {"fine": fine, "handle": handle}, listeners={event: listen})
    handler = LifecycleHandler(name="h", handler="handle", retries=3)
    steps = [StepPlan(name="a", step_type="a", handler="fine")]
    plan = RunPlan(workflow_id="w", steps=steps, lifecycle={event: [handler]})
    submitted = await engine.submit(plan, [NewRun()])

    async def settled():
        found = await engine.database.execute_query(OPEN_EVENTS)
        return not found.rows and calls

    await wait_until(settled, timeout=GUARD)
    (row,) = await engine.lifecycle_history(submitted.group_id)
    assert row.status is RunStatus.FAILED
    assert sorted(calls) == ["handler", "listener"]
