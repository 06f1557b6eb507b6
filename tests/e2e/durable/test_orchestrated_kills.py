"""Graphs and sagas across processes: killed, beside each other, and without any for a while."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.e2e.durable.orchestrated_process import NODES, registered
from tests.processes import Popen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import DurableEngine, Terms

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PROCESS = Path(__file__).with_name("orchestrated_process.py")
LEASE = 0.6
# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
RUNS, BLOWS = (200, 20) if FULL else (12, 2)
GUARD = 200.0  # against a hang only


@pytest.fixture(autouse=True)
def this_test_may_block(blocking_calls_fail):
    """It starts processes and reads files; the library is watched elsewhere."""
    blocking_calls_fail.deactivate()


@pytest.fixture
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def engine(url):
    async with Database(url) as database:
        yield DurableEngine(database, Terms(lease=LEASE))


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def runs(engine, log):
    return registered(engine, log)


@pytest.fixture
def start(url, log):
    """Start a worker process; it is there when this returns."""
    started = []

    async def run(slots=4):
        process = Popen(
            [sys.executable, str(PROCESS), url, str(LEASE), str(log), str(slots)],
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


def close(log, *names):
    for name in names:
        log.with_name(f"gate-{name}.closed").touch()


def open_(log, *names):
    for name in names:
        log.with_name(f"gate-{name}.closed").unlink()


def noted(log, what):
    """Names with this word, in order."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [name for word, name, _ in lines if word == what]


async def over(runs, run_id, expected):
    final = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)

    async def there():
        return (await runs.status(run_id)).status in final

    await wait_until(there, timeout=GUARD)
    run = await runs.status(run_id)
    assert run.status is expected, run
    return run


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.promise
async def test_no_node_that_finished_runs_again_after_its_worker_was_killed(
    engine, runs, start, log
):
    close(log, "node-4", "node-8")
    first = await start()
    run_id = await runs.submit("chain")
    await wait_until(lambda: "node-4" in noted(log, "begin"), timeout=GUARD)
    kill(first)
    assert noted(log, "end") == NODES[:3]
    second = await start()
    open_(log, "node-4")
    await wait_until(lambda: "node-8" in noted(log, "begin"), timeout=GUARD)
    kill(second)
    await start()
    open_(log, "node-8")
    run = await over(runs, run_id, RunStatus.COMPLETED)
    assert noted(log, "end") == NODES
    assert run.state["ran"] == run.done == NODES
    # Only those that were cut off began twice.
    assert Counter(noted(log, "begin")) == Counter([*NODES, "node-4", "node-8"])


async def test_two_processes_run_two_branches_at_once_and_a_pause_outlives_all_of_them(
    engine, runs, start, log
):
    close(log, "left", "right")
    fleet = [await start(slots=1), await start(slots=1)]
    run_id = await runs.submit("branches")

    async def running():
        found = await engine.database.execute_query(
            "SELECT worker_id FROM lexigram_durable_runs WHERE parent_id = ? AND status = 'running'",
            (run_id,),
        )
        return len({row["worker_id"] for row in found.rows}) == 2

    await wait_until(running, timeout=GUARD)
    await wait_until(lambda: {"left", "right"} <= set(noted(log, "begin")), timeout=GUARD)
    assert noted(log, "end") == ["start"]
    pids = {line.split()[2] for line in log.read_text().splitlines() if "begin" in line}
    assert {str(process.pid) for process in fleet} <= pids
    open_(log, "left", "right")

    async def asked():
        return bool((await runs.status(run_id)).questions)

    await wait_until(asked, timeout=GUARD)
    for process in fleet:
        kill(process)
    # Nobody works, nothing is leased, and it still waits.
    row = await engine.store.run(run_id)
    assert (row["status"], row["lease"], row["worker_id"]) == ("parked", None, None)
    await start(slots=1)
    # The only slot is free for others while it waits.
    await over(runs, await runs.submit("chain"), RunStatus.COMPLETED)
    assert (await runs.status(run_id)).questions[0].prompt == "go on?"
    await runs.answer(run_id, "yes")
    run = await over(runs, run_id, RunStatus.COMPLETED)
    assert run.state["said"] == "yes"
    assert run.done == ["start", "left", "right", "ask", "end"]
    assert Counter(noted(log, "end"))["left"] == Counter(noted(log, "end"))["right"] == 1


@pytest.mark.chaos
async def test_graphs_end_with_the_right_state_while_workers_are_killed(engine, runs, start):
    fleet = [await start(), await start()]
    ids = [await runs.submit("wide", {"run": number}) for number in range(RUNS)]

    async def ended():
        return sum([(await engine.run(one)).status is RunStatus.COMPLETED for one in ids])

    for blow in range(BLOWS):
        goal = len(ids) * blow // BLOWS

        async def far(goal=goal):
            return await ended() >= goal

        await wait_until(far, timeout=GUARD)
        kill(fleet.pop(0))
        fleet.append(await start())
    for number, run_id in enumerate(ids):
        run = await over(runs, run_id, RunStatus.COMPLETED)
        assert run.state["squares"] == [n**2 for n in range(8)]
        assert (run.state["n"], run.state["run"]) == (3, number)
        assert Counter(run.done) == {"begin": 1, "square": 8, "count": 3, "end": 1}
    # Every step of every run completed once.
    twice = await engine.database.execute_query(
        "SELECT run_id, step_no FROM lexigram_durable_history WHERE status = 'COMPLETED'"
        " GROUP BY run_id, step_no HAVING count(*) > 1"
    )
    assert twice.rows == []


async def test_a_saga_is_undone_to_the_end_though_workers_are_killed_while_undoing(
    engine, runs, start, log
):
    close(log, "undo-sleep", "undo-fly")
    first = await start()
    run_id = await runs.submit("trip")
    await wait_until(lambda: "undo-sleep" in noted(log, "begin"), timeout=GUARD)
    kill(first)
    second = await start()
    open_(log, "undo-sleep")
    await wait_until(lambda: "undo-fly" in noted(log, "begin"), timeout=GUARD)
    kill(second)
    await start()
    open_(log, "undo-fly")
    run = await over(runs, run_id, RunStatus.FAILED)
    assert noted(log, "end") == ["fly", "sleep", "undo-sleep", "undo-fly"]
    assert "failed at step 'eat': OSError: no food" in run.error
