"""Tables change while workers run; tests/integration/sql/test_upgrade_of_main.py has the upgrade."""

import anyio
import pytest
import sqlalchemy as sa

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
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

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only
PLAN = RunPlan(
    workflow_id="w",
    steps=[StepPlan(name=name, step_type="x", handler="work", retries=3) for name in "ab"],
)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request) -> Database:
    return request.getfixturevalue(request.param)


async def completed(engine, group_id):
    async def done():
        return (await engine.stats(group_id)).group_status is RunStatus.COMPLETED

    await wait_until(done, timeout=GUARD)


async def test_workers_go_on_while_a_migration_changes_their_tables(database):
    engine = DurableEngine(database, Terms(lease=30.0))
    done = []

    async def work(run_step):
        done.append(run_step.id)
        await anyio.sleep(0.001)

    def change(connection):
        connection.execute(sa.text("ALTER TABLE lexigram_durable_runs ADD COLUMN later INTEGER"))
        connection.execute(sa.text("CREATE INDEX ix_later ON lexigram_durable_runs (later)"))

    def change_back(connection):
        connection.execute(sa.text("DROP INDEX ix_later"))
        connection.execute(sa.text("ALTER TABLE lexigram_durable_runs DROP COLUMN later"))

    config = WorkerConfig(consumers={"*": 4}, poll_interval=0.1)
    workers = [Worker(config, engine, {"work": work}) for _ in range(2)]
    for worker in workers:
        await worker.start()
    groups = []
    try:
        for migration in (change, change_back, None):
            groups.append(await engine.submit(PLAN, [NewRun() for _ in range(40)]))
            if migration is not None:
                await database.restructure(migration)
        for group in groups:
            await completed(engine, group.group_id)
    finally:
        for worker in workers:
            await worker.stop(5.0)
    runs = [run for group in groups for run in group.runs]
    assert sorted(done) == sorted(run * 10_000 + number for run in runs for number in (1, 2))
