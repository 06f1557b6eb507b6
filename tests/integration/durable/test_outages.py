"""A worker whose PostgreSQL goes away while it works, before it starts and while it leaves."""

import threading

import anyio
import pytest
from tests.doubles.proxy import proxy_to

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database, SqlConfig
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)

pytestmark = [pytest.mark.anyio, pytest.mark.service("postgresql")]

PLAN = RunPlan(workflow_id="w", steps=[StepPlan(name="a", step_type="parse", handler="work")])
LEASE = 1.0


@pytest.fixture
async def proxy(services):
    async with proxy_to(services["postgresql"].address) as opened:
        yield opened


@pytest.fixture
async def engine(postgres, postgres_url, proxy, services):
    """An engine that reaches its emptied database through the proxy."""
    url = postgres_url.replace(services["postgresql"].address, proxy.address)
    config = SqlConfig(url=url, retry_attempts=1, connect_timeout=2.0)
    async with Database(config) as database:
        yield DurableEngine(database, Terms(lease=LEASE))


@pytest.fixture
async def running(engine, proxy):
    """Start workers that are stopped at the end, with the database within reach."""
    workers = []

    async def start(handler):
        worker = Worker(
            WorkerConfig(consumers={"*": 1}, poll_interval=0.1), engine, {"work": handler}
        )
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    proxy.accept()
    for worker in workers:
        await worker.stop(0.0)


async def status(engine, submitted):
    return (await engine.stats(submitted.group_id)).group_status


async def test_an_end_that_could_not_be_written_within_the_lease_lets_the_step_run_again(
    postgres, engine, running, proxy, caplog
):
    direct = DurableEngine(postgres, Terms(lease=LEASE))
    attempts = []

    async def work():
        attempts.append(None)
        if len(attempts) == 1:
            proxy.refuse()

    submitted = await direct.submit(PLAN, [NewRun()])
    await running(work)
    # Every duty of the worker reports the outage; only then is it over.
    for text in (
        "the end of a step could not be written",
        "cannot renew leases",
        "cannot look for due runs",
        "cannot look after runs",
    ):
        await wait_until(lambda text=text: text in caplog.text)
    assert await status(direct, submitted) is RunStatus.RUNNING
    proxy.accept()

    async def completed():
        return await status(direct, submitted) is RunStatus.COMPLETED

    await wait_until(completed)
    assert len(attempts) == 2


async def test_a_worker_that_cannot_reach_its_database_does_not_start(engine, proxy):
    proxy.refuse()
    worker = Worker(WorkerConfig(consumers={"*": 1}), engine, {"work": lambda: None})
    with pytest.raises(Exception, match="PostgreSQL") as caught:
        await worker.start()
    assert not isinstance(caught.value, ExceptionGroup)
    assert not worker.is_alive


async def test_a_start_that_is_cancelled_leaves_no_heartbeat_behind(engine, proxy):
    worker = Worker(WorkerConfig(consumers={"*": 1}), engine, {"work": lambda: None})
    proxy.hold()
    with anyio.move_on_after(0.2) as scope:
        await worker.start()
    assert scope.cancelled_caught
    proxy.release()
    await wait_until(
        lambda: not [one for one in threading.enumerate() if one.name == f"heart-{worker.id}"]
    )


async def test_a_worker_that_stops_during_an_outage_ends_and_its_step_runs_elsewhere(
    postgres, engine, running, proxy, caplog
):
    direct = DurableEngine(postgres, Terms(lease=LEASE))
    begun = anyio.Event()

    async def hang():
        begun.set()
        await anyio.sleep_forever()

    submitted = await direct.submit(PLAN, [NewRun()])
    worker = await running(hang)
    await begun.wait()
    proxy.refuse()
    await worker.stop(0.0)
    assert "not checked out" in caplog.text
    other = Worker(WorkerConfig(consumers={"*": 1}, poll_interval=0.1), direct, {"work": lambda: 1})
    await other.start()

    async def completed():
        return await status(direct, submitted) is RunStatus.COMPLETED

    await wait_until(completed)
    await other.stop(0.0)
