"""Two processes with different handlers on one database: a rolling deploy loses nothing."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.e2e.durable.test_durable_kills import engine, url
from tests.processes import Popen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

__all__ = ["engine", "url"]  # fixtures

PROCESS = Path(__file__).with_name("rolling_process.py")
LEASE = 2.0
GUARD = 120.0
RUNS = 40


@pytest.fixture
def start(url):
    started = []

    async def run(*handlers):
        process = Popen(
            [sys.executable, str(PROCESS), url, str(LEASE), *handlers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def plan(name, *handlers):
    steps = [
        StepPlan(name=f"{number} {one}", step_type="parse" if number == 1 else "other", handler=one)
        for number, one in enumerate(handlers, 1)
    ]
    return RunPlan(workflow_id=name, steps=steps)


async def stop(process):
    process.stdin.write("\n")
    process.stdin.flush()
    assert await anyio.to_thread.run_sync(process.wait) == 0


@pytest.mark.promise
async def test_old_and_new_workers_side_by_side_do_what_each_can_and_lose_nothing(engine, start):
    old = await start("v1.parse", "store")
    runs = [NewRun() for _ in range(RUNS)]
    before = await engine.submit(plan("v1", "v1.parse", "store"), runs)
    # The new version submits before its first worker is up: nobody has these handlers yet.
    after = await engine.submit(plan("v2", "v2.parse", "store", "v2.tell"), runs)

    async def is_shown():
        problems = (await engine.stats(after.group_id)).problems
        return problems == ("no worker for handler v2.parse (pool parse)",)

    await wait_until(is_shown, timeout=GUARD)
    new = await start("v2.parse", "store", "v2.tell")
    more = await engine.submit(plan("v1", "v1.parse", "store"), runs)

    async def are_completed(*groups):
        stats = [await engine.stats(group.group_id) for group in groups]
        return all(one.group_status is RunStatus.COMPLETED for one in stats)

    await wait_until(lambda: are_completed(before, after, more), timeout=GUARD)
    await stop(old)
    last = await engine.submit(plan("v2", "v2.parse", "store", "v2.tell"), runs)
    await wait_until(lambda: are_completed(last), timeout=GUARD)
    left = await engine.submit(plan("v1", "v1.parse", "store"), runs)

    async def waits():
        return (await engine.stats(left.group_id)).problems

    await wait_until(waits, timeout=GUARD)
    assert (await engine.stats(left.group_id)).pending == RUNS, "it waits, and nothing fails"
    await stop(new)
    rows = await engine.database.execute_query(
        "SELECT DISTINCT status FROM lexigram_durable_history"
    )
    # A busy machine may lose a lease; then the attempt is given back, and none is used up.
    assert {row["status"] for row in rows.rows} <= {"COMPLETED", "PENDING"}
