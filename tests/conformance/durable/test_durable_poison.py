"""A step or event whose handler ends its worker takes no other along: suspects run alone."""

from collections import Counter

import anyio
import pytest

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    Audience,
    DurableEngine,
    DurableError,
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
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0, max_lost=3))


@pytest.fixture
async def running(engine):
    """Start workers that are stopped at the end."""
    workers = []

    async def start(handlers, **options):
        config = WorkerConfig(consumers={"other": 2, "*": 4}, poll_interval=0.1)
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


def plan(handler="work", kind="one", **more):
    return RunPlan(
        workflow_id="w", steps=[StepPlan(name="one", step_type=kind, handler=handler)], **more
    )


async def suspect(engine, submitted, *, begun=1):
    """As if workers had ended while they ran these."""
    for run_id in submitted.runs:
        await engine.database.execute(
            "UPDATE lexigram_durable_runs SET lost = ?, begun = ? WHERE id = ?",
            (begun + 1, begun, run_id),
        )


async def are_completed(engine, *groups):
    async def done():
        stats = [await engine.stats(group.group_id) for group in groups]
        return all(one.group_status is RunStatus.COMPLETED for one in stats)

    await wait_until(done, timeout=GUARD)


class Watching:
    """A handler that sees who runs beside it."""

    def __init__(self):
        self.now = Counter()
        self.beside = {}

    async def __call__(self, workflow_run):
        name = workflow_run.run_params["name"]
        self.now[name] += 1
        seen = self.beside.setdefault(name, set())
        for _ in range(5):
            seen |= {other for other in +self.now if other != name}
            await anyio.sleep(0.005)
        self.now[name] -= 1


async def test_a_suspect_runs_alone_and_the_others_before_and_after_it(engine, running):
    watching = Watching()
    suspects = await engine.submit(
        plan(), [NewRun(params={"name": name}) for name in ("suspect 1", "suspect 2")]
    )
    await suspect(engine, suspects)
    others = [
        await engine.submit(plan(kind=kind), [NewRun(params={"name": kind}) for _ in range(6)])
        for kind in ("one", "other")
    ]
    await running({"work": watching})
    await are_completed(engine, suspects, *others)
    assert watching.beside["suspect 1"] == set()
    assert watching.beside["suspect 2"] == set()
    assert watching.beside["one"] <= {"other"}
    assert watching.beside["other"] <= {"one"}


async def test_a_step_that_was_lost_once_is_counted_and_runs_beside_others(engine, running):
    lost = await engine.submit(plan(), [NewRun()])
    await suspect(engine, lost, begun=0)
    counted, all_are_here = [], anyio.Event()

    async def work(workflow_run):
        counted.append((await engine.store.run(workflow_run.id))["begun"])
        if len(counted) == 4:
            all_are_here.set()
        await all_are_here.wait()

    others = await engine.submit(plan(), [NewRun() for _ in range(3)])
    await running({"work": work})
    await are_completed(engine, lost, others)
    assert sorted(counted) == [0, 0, 0, 1]


async def test_while_a_suspect_runs_nothing_is_claimed_and_then_everything(engine, running):
    entered, go_on = anyio.Event(), anyio.Event()

    async def wait():
        entered.set()
        await go_on.wait()

    async def work():
        """Nothing."""

    first = await engine.submit(plan("wait"), [NewRun()])
    await suspect(engine, first)
    worker = await running({"wait": wait, "work": work})
    with anyio.fail_after(GUARD):
        await entered.wait()
    others = await engine.submit(plan(), [NewRun() for _ in range(3)])
    before = worker._heartbeat.beats
    await wait_until(lambda: worker._heartbeat.beats > before + 1, timeout=GUARD)
    assert (await engine.stats(others.group_id)).pending == 3
    go_on.set()
    await are_completed(engine, first, others)


async def test_a_suspect_that_waits_for_others_is_given_back_by_a_stop(engine, running):
    entered = anyio.Event()

    async def never():
        entered.set()
        await anyio.sleep_forever()

    await engine.submit(plan("never"), [NewRun()])
    worker = await running({"never": never, "work": never})
    with anyio.fail_after(GUARD):
        await entered.wait()
    waiting = await engine.submit(plan(), [NewRun()])
    await suspect(engine, waiting)
    await wait_until(lambda: worker._pools.isolation.is_wanted, timeout=GUARD)
    await worker.stop(0.0)
    row = await engine.store.run(waiting.runs[0])
    assert (row["status"], row["lost"], row["begun"]) == ("ready", 2, 0)
    assert not worker._pools.isolation.is_wanted


async def test_a_step_whose_begin_cannot_be_counted_is_not_begun(engine, running, monkeypatch):
    calls, tries = [], []

    async def work():
        calls.append(1)

    begin = engine.store.begin_step

    async def fail_first(run_id, lease):
        tries.append(run_id)
        if len(tries) == 1:
            raise DurableError("the database is away")
        return await begin(run_id, lease)

    monkeypatch.setattr(engine.store, "begin_step", fail_first)
    submitted = await engine.submit(plan(), [NewRun()])
    await suspect(engine, submitted)
    await running({"work": work})
    await are_completed(engine, submitted)
    assert (len(calls), len(tries)) == (1, 2)


async def test_a_lifecycle_handler_that_ended_its_workers_runs_alone_and_fails_as_poison(
    engine, running, caplog
):
    watching = Watching()

    async def handle(workflow_run):
        await watching(workflow_run)

    handlers = [LifecycleHandler(name="ended", handler="handle")]
    given = plan("nothing", lifecycle={LifeCycleEvent.ITEM_END: handlers})
    names = ("once", "often", "poison")
    submitted = await engine.submit(given, [NewRun(params={"name": name}) for name in names])
    for run in submitted.runs:
        step = await engine.claim_next_step("w", f"L{run}")
        await engine.complete_step(step.id, f"L{run}")
    # Workers took the events, began the handlers of some, and ended; so often each.
    events = await engine.store.take_events("dead", seconds=600, audience=Audience.HANDLER)
    begins = dict(zip(submitted.runs, (1, 3, 4), strict=True))
    for event in events:
        for _ in range(begins[event.run_id]):
            assert await engine.store.begin_handler(event, 1, "ended", "dead")
    await engine.database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    others = await engine.submit(plan(), [NewRun(params={"name": "step"}) for _ in range(4)])
    await running({"handle": handle, "work": watching, "nothing": watching})
    await are_completed(engine, others)

    async def outcomes():
        rows = await engine.lifecycle_history(submitted.group_id)
        return {row.run_id: row.status for row in rows}

    wanted = dict(
        zip(
            submitted.runs,
            (RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.FAILED),
            strict=True,
        )
    )

    async def are_there():
        return await outcomes() == wanted

    await wait_until(are_there, timeout=GUARD)
    assert watching.beside["often"] == set()
    assert "poison" not in watching.beside
    [row] = [r for r in await engine.lifecycle_history(submitted.group_id) if r.meta]
    assert row.meta["reason"] == "poison"
    assert "failed as poison" in caplog.text
