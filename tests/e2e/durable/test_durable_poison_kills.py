"""One step whose handler kills its process, fifty beside it: they are done, it fails as poison."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.e2e.durable.test_durable_kills import engine, url
from tests.processes import Popen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

__all__ = ["engine", "url"]  # fixtures

PROCESS = Path(__file__).with_name("poison_process.py")
INNOCENTS, LEASE = 50, 0.5
LIMIT = 5  # begins that may end the worker, besides the first, which is not counted
GUARD = 240.0


@pytest.fixture
def workers(url):
    """Keep one worker running: another one begins when it has ended."""
    started = []

    async def keep():
        while True:
            started.append(
                Popen(
                    [sys.executable, str(PROCESS), url, str(LEASE), str(LIMIT)],
                    stdin=subprocess.DEVNULL,
                )
            )
            await anyio.to_thread.run_sync(started[-1].wait, abandon_on_cancel=True)

    yield keep
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.promise
async def test_a_step_that_kills_its_worker_fails_as_poison_and_fifty_others_are_done(
    engine, workers
):
    plan = RunPlan(workflow_id="w", steps=[StepPlan(name="one", step_type="one", handler="work")])
    poison = await engine.submit(plan, [NewRun(params={"is_poison": True})])
    innocents = await engine.submit(plan, [NewRun() for _ in range(INNOCENTS)])

    async def are_final():
        stats = [await engine.stats(group.group_id) for group in (poison, innocents)]
        return all(one.completed + one.failed == one.total_runs for one in stats)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers)
        await wait_until(are_final, timeout=GUARD)
        tasks.cancel_scope.cancel()
    stats = await engine.stats(innocents.group_id)
    assert (stats.completed, stats.failed) == (INNOCENTS, 0)
    [step] = await engine.steps(poison.runs[0])
    assert step.status is RunStatus.FAILED
    assert step.status_message == f"poison: its worker ended {LIMIT} times while the handler ran"
    assert step.status_meta["reason"] == "poison"
    rows = (await engine.database.execute_query("SELECT step_id, what FROM effects")).rows
    done = Counter(row["step_id"] for row in rows if row["what"] == "done")
    assert len(done) == INNOCENTS
    begun = Counter(row["step_id"] for row in rows if row["what"] == "begun")
    assert begun[step.id] == LIMIT + 1, "the first begin is not counted, all others are"
