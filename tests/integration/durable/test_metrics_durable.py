"""Every measurement of the seed reaches the metrics of the application, on both databases."""

import anyio
import pytest

from lexigram.app import Application
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeMetrics
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import ANYTHING, DurableEngine, NewRun, RunPlan, StepPlan, Terms
from lexigram.workflow.durable._metrics import COUNTERS, HISTOGRAMS, PREFIX
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet

pytestmark = pytest.mark.anyio

# Not told by a run in which nothing goes wrong with the database or between two workers.
ELSEWHERE = {"claim_error", "claim_lost_race", "lease_lost", "resource_lock_swept"}


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


async def fine():
    return None


async def broken(ctx):
    raise OSError("no")


async def slow():
    await anyio.sleep(600)


def one(handler, **options):
    step = StepPlan(name=handler, step_type="parse", handler=handler, **options)
    return RunPlan(workflow_id=handler, steps=[step])


async def test_every_counter_and_histogram_has_its_name_and_labels(database):
    metrics = FakeMetrics()
    durable = DurableConfig(
        run_worker=True,
        checkin_timeout=1.0,
        checkin_interval=0.2,
        poll_interval=0.1,
        stop_timeout=0.0,
    )
    handlers = {"fine": fine, "broken": broken, "slow": slow}
    modules = [
        SqlModule.configure(SqlConfig(url=database.config.url)),
        WorkflowModule.stub(WorkflowConfig(durable=durable), step_handlers=handlers),
    ]
    # A worker that died: it checked in, took a step, and is heard of no more.
    gone = DurableEngine(database, Terms(lease=0.01))
    await gone.submit(one("fine"), [NewRun()])
    await gone.store.heartbeat("gone")
    # Claimed and not begun: one that was begun and lost would wait for the slow one, to run alone.
    assert (await gone.store.claim("gone", "lease-1", ANYTHING, 1)).claims
    # And one that ended while it ran a step that had ended others before.
    await gone.submit(one("poison"), [NewRun()])
    assert await gone.claim_next_step("gone", "lease-2") is not None
    await database.execute("UPDATE lexigram_durable_runs SET begun = 99 WHERE lease = 'lease-2'")
    app = Application("figures", modules=modules, overrides={MetricsProtocol: metrics})
    async with app:
        engine = app.container.get(DurableFleet).engine
        await engine.submit(one("broken", retries=2), [NewRun()])
        await engine.submit(one("slow"), [NewRun()])
        wanted = {PREFIX + name for name in {*COUNTERS} - ELSEWHERE - {"step_released"}}

        def told():
            return wanted <= {measurement.name for measurement in metrics.measurements}

        await wait_until(told)
    assert metrics.counted(PREFIX + "step_released", pool="parse") == 1  # given back by the stop
    assert metrics.counted(PREFIX + "step_error", pool="parse") == 1
    assert metrics.counted(PREFIX + "step_failed", pool="parse") == 1
    assert metrics.counted(PREFIX + "worker_reaped") == 1
    assert metrics.counted(PREFIX + "step_reset_by_reaper") == 1
    assert metrics.counted(PREFIX + "step_poisoned") == 1
    assert metrics.misuses == []
    labels = {**COUNTERS, **HISTOGRAMS}
    for measurement in metrics.measurements:
        if measurement.name.startswith(PREFIX):
            assert set(measurement.tags) == set(labels[measurement.name.removeprefix(PREFIX)])
    for name in HISTOGRAMS:
        assert metrics.observed(PREFIX + name, pool="parse")
