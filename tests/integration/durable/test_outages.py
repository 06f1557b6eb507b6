"""A worker whose PostgreSQL goes away while it works, before it starts and while it leaves."""

import threading

import anyio
import pytest
from tests.doubles.proxy import proxy_to

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database, SqlConfig
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    Audience,
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

    async def start(handler, note=None, listeners=None):
        worker = Worker(
            WorkerConfig(consumers={"*": 1}, poll_interval=0.1),
            engine,
            {"work": handler, "note": note},
            listeners=listeners,
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


async def test_an_end_is_written_after_an_outage_longer_than_the_lease_and_nothing_runs_again(
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
    # Every duty of the worker reports the outage, and the lease runs out; only then is it over.
    for text in (
        "cannot renew leases",
        "cannot look for due runs",
        "a duty failed",
    ):
        await wait_until(lambda text=text: text in caplog.text)

    async def lease_is_over():
        found = await postgres.execute_query(
            "SELECT 1 FROM lexigram_durable_runs"
            " WHERE lease_until < extract(epoch FROM clock_timestamp())"
        )
        return found.rows != []

    await wait_until(lease_is_over)
    assert await status(direct, submitted) is RunStatus.RUNNING
    proxy.accept()

    async def completed():
        return await status(direct, submitted) is RunStatus.COMPLETED

    await wait_until(completed)
    assert len(attempts) == 1


async def test_an_end_that_the_store_refuses_for_a_whole_lease_lets_the_step_run_again(
    postgres, engine, running, caplog
):
    attempts = []

    async def work():
        attempts.append(None)
        if len(attempts) == 1:
            await postgres.execute(f"{table} ADD CONSTRAINT never CHECK (run_id < 0) NOT VALID")

    table = "ALTER TABLE lexigram_durable_history"
    submitted = await DurableEngine(postgres, Terms(lease=LEASE)).submit(PLAN, [NewRun()])
    await running(work)
    try:
        await wait_until(lambda: "the end of a step could not be written" in caplog.text)
    finally:
        await postgres.execute(f"{table} DROP CONSTRAINT never")

    async def completed():
        return await status(engine, submitted) is RunStatus.COMPLETED

    await wait_until(completed)
    assert len(attempts) == 2


@pytest.mark.parametrize("audience", list(Audience))
async def test_what_handled_an_event_before_an_outage_is_not_called_again_after_it(
    postgres, engine, running, proxy, audience
):
    direct, calls = DurableEngine(postgres, Terms(lease=LEASE)), []
    kind = LifeCycleEvent.GROUP_END

    async def note(event):
        calls.append(event.idempotency_key)
        proxy.refuse()

    is_listener = audience is Audience.LISTENER
    handlers = [] if is_listener else [LifecycleHandler(name="note", handler="note", retries=2)]
    plan = RunPlan(workflow_id="w", steps=PLAN.steps, lifecycle={kind: handlers})
    submitted = await direct.submit(plan, [NewRun()])
    await running(lambda: None, note=note, listeners={kind: note} if is_listener else None)
    await wait_until(lambda: calls)

    async def lease_is_over():
        found = await postgres.execute_query(
            "SELECT 1 FROM lexigram_durable_events WHERE delivered_at IS NULL"
            " AND lease_until < extract(epoch FROM clock_timestamp())"
        )
        return found.rows != []

    await wait_until(lease_is_over)
    proxy.accept()

    async def delivered():
        found = await postgres.execute_query(
            "SELECT 1 FROM lexigram_durable_events WHERE kind = 'group_end'"
            " AND audience = ? AND delivered_at IS NULL",
            (str(audience),),
        )
        return found.rows == []

    await wait_until(delivered)
    assert calls == [f"durable-group_end-{submitted.group_id}-1"]


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
        lambda: not [one for one in threading.enumerate() if one.name == f"heartbeat-{worker.id}"]
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
    assert "worker did not deregister" in caplog.text
    other = Worker(WorkerConfig(consumers={"*": 1}, poll_interval=0.1), direct, {"work": lambda: 1})
    await other.start()

    async def completed():
        return await status(direct, submitted) is RunStatus.COMPLETED

    await wait_until(completed)
    await other.stop(0.0)
