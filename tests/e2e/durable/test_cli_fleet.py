"""``lexigram worker`` processes on one database, killed one after the other, with the same YAML."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from attrs import evolve
from tests.processes import Popen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import DurableEngine, NewRun, Terms
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.registry import DefinitionFolders, DefinitionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

LEXIGRAM = Path(sys.executable).with_name("lexigram")
HERE = Path(__file__).parent
# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
DOCUMENTS, EVERY, KILLS = (2000, 3.0, 1000) if FULL else (100, 1.0, 2)
GUARD = 800.0 if FULL else 240.0
LEASE = 6.0 if FULL else 1.5
STEPS = ("validate", "parse", "chunk", "embed", "store")

WORKFLOW = """
id: ingest
name: Five steps
meta: {}
item_steps:
"""
STEP = """
  %s:
    name: %s it
    retries: 3
    method: fleet_app.work
    parameters: {}
"""
EVENTS = """
lifecycle_events:
  group_end:
    - name: note the end
      method: fleet_app.note_end
      retries: 5
      parameters: {}
"""


@pytest.fixture(autouse=True)
def this_test_may_block(blocking_calls_fail):
    """It starts processes and reads their output; the library is watched elsewhere."""
    blocking_calls_fail.deactivate()


@pytest.fixture
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def engine(url):
    async with Database(url) as database:
        await database.execute("CREATE TABLE effects (what TEXT, id BIGINT)")
        yield DurableEngine(database, Terms(lease=LEASE))


@pytest.fixture
def folder(tmp_path):
    """The folder an operator works in: definitions, and nothing else."""
    place = tmp_path / "config" / "workflows"
    place.mkdir(parents=True)
    steps = "".join(STEP % (name, name) for name in STEPS)
    (place / "ingest.yaml").write_text(WORKFLOW + steps + EVENTS)
    return tmp_path


@pytest.fixture
def lexigram(url, folder):
    """Call the command line in that folder."""
    started = []
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "LEX_SQL__URL": url,
        "LEX_SQL__MIGRATE": "never",
        "LEX_QUIET": "true",
        # the seed's names
        "WORKER_CHECKIN_TIMEOUT": str(LEASE),
        "WORKER_CHECKIN_INTERVAL": str(LEASE / 5),
        "LEX_WORKFLOW__DURABLE__POLL_INTERVAL": "0.2",
    }

    def run(*arguments, stderr=None, **durable):
        settings = {f"LEX_WORKFLOW__DURABLE__{key.upper()}": v for key, v in durable.items()}
        process = Popen(
            [str(LEXIGRAM), *arguments],
            cwd=folder,
            env=env | settings,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


async def plan_of(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    folders = DefinitionFolders(workflow_dir=folder / "config" / "workflows")
    return await DefinitionRegistry(HandlerCatalog(), folders, packages=()).plan("ingest")


def slow(plan):
    """One step that takes longer than the test."""
    return evolve(plan, steps=[evolve(plan.steps[1], handler="fleet_app.slow")], lifecycle={})


async def line(process):
    return await anyio.to_thread.run_sync(process.stdout.readline)


async def killed(lexigram, fleet, ended):
    """Kill the oldest worker and start another, every so often until all is done; the pids.

    In the full run by the clock, whatever the new one does: the third worker of three is at work
    when the first is killed, if a start takes less than six seconds. The short run shares its
    machine with others and waits until the new one works.
    """
    victims, starting = set(), []
    begun = anyio.current_time()
    while len(victims) < KILLS and not await ended():
        due = begun + EVERY * (len(victims) + 1) if FULL else anyio.current_time() + EVERY
        await anyio.sleep_until(due)
        victim = fleet.pop(0)
        victim.send_signal(signal.SIGKILL)
        victims.add(victim.pid)
        fleet.append(lexigram("worker", "fleet_app:create"))
        starting.append(fleet[-1])
        if not FULL:
            assert "works on" in await line(starting.pop())
    for process in starting:
        if process in fleet:  # before it works, a signal ends it without draining
            assert "works on" in await line(process)
    return victims


async def test_all_documents_are_done_while_workers_are_killed(
    engine, lexigram, folder, monkeypatch
):
    plan = await plan_of(folder, monkeypatch)
    fleet = [lexigram("worker", "fleet_app:create") for _ in range(3)]
    for process in fleet:
        assert "works on" in await line(process)
    runs = [NewRun(doc_id=f"sha256-{number}") for number in range(DOCUMENTS)]
    group = await engine.submit(plan, runs)

    async def ended():
        return (await engine.stats(group.group_id)).group_status in (
            RunStatus.COMPLETED,
            RunStatus.FAILED,
        )

    with anyio.fail_after(GUARD):
        victims = await killed(lexigram, fleet, ended)
        await wait_until(ended, timeout=GUARD)
    assert (await engine.stats(group.group_id)).to_dict() | {"average_duration": 0} == {
        "total_runs": DOCUMENTS,
        "completed": DOCUMENTS,
        "running": 0,
        "pending": 0,
        "failed": 0,
        "average_duration": 0,
        "group_status": "COMPLETED",
    }
    repeated = await every_step_was_done_once(engine, victims)
    await the_end_was_told_once(engine)
    for process in fleet:
        process.send_signal(signal.SIGTERM)
    for process in fleet:
        assert await anyio.to_thread.run_sync(process.wait) == 0
    print(f"{len(victims)} kills, {repeated} of {DOCUMENTS * len(STEPS)} steps begun again")


async def every_step_was_done_once(engine, victims):
    """A step completed once, and is done again only where a kill hit it; how often that was.

    An attempt that a kill cut off is in the history, given back by the reaper. What it did outside
    before the kill cannot be undone: a step has one effect, and one more for each of these at most.
    """
    query = engine.database.execute_query
    attempts = await query(
        "SELECT run_id * 10000 + step_no AS id, status, worker_id FROM lexigram_durable_history"
    )
    completed = Counter(row["id"] for row in attempts.rows if row["status"] == "COMPLETED")
    assert len(completed) == DOCUMENTS * len(STEPS), "a step was left out"
    assert set(completed.values()) == {1}, "a step was completed twice"
    others = [row for row in attempts.rows if row["status"] != "COMPLETED"]
    assert {row["status"] for row in others} <= {"PENDING"}, "a step failed"
    if FULL:  # a machine with nothing else to do: nobody who lives loses a lease
        owners = {int(row["worker_id"].split(":")[1]) for row in others}
        assert owners <= victims, "a worker that lived lost a step"
    cut_off = Counter(row["id"] for row in others)
    effects = await query("SELECT id FROM effects WHERE what <> 'group_end'")
    for step, number in Counter(row["id"] for row in effects.rows).items():
        assert 1 <= number <= 1 + cut_off[step], f"step {step} was done {number} times"
    assert len(effects.rows) <= len(completed) + len(others)
    return len(others)


async def the_end_was_told_once(engine):
    """The handler of GROUP_END succeeded once; it began again only where a kill hit it."""
    query = engine.database.execute_query

    async def told():
        rows = (await query("SELECT status FROM lexigram_durable_lifecycle")).rows
        return [row["status"] for row in rows] == ["COMPLETED"]

    await wait_until(told, timeout=GUARD)
    [handled] = (await query("SELECT attempts FROM lexigram_durable_lifecycle")).rows
    assert handled["attempts"] == 1, "it failed, or was called again after it had succeeded"
    [event] = (
        await query(
            "SELECT tries FROM lexigram_durable_events"
            " WHERE kind = 'group_end' AND audience = 'handler'"
        )
    ).rows
    ends = (await query("SELECT id FROM effects WHERE what = 'group_end'")).rows
    # Each further try is a worker that was killed with the event in its hands.
    assert 1 <= len(ends) <= event["tries"]


@pytest.mark.promise
async def test_a_worker_drains_on_sigterm_and_gives_back_what_runs(
    engine, lexigram, folder, monkeypatch
):
    plan = await plan_of(folder, monkeypatch)
    group = await engine.submit(slow(plan), [NewRun()])
    options = ("--pools", "parse=2", "--json", "--name", "a")
    process = lexigram("worker", "fleet_app:create", *options, stop_timeout="0.1")
    assert '"state": "started"' in await line(process)

    async def running():
        [step] = await engine.steps(group.runs[0])
        return step.status is RunStatus.RUNNING and (step.worker_id or "").startswith("a-")

    await wait_until(running, timeout=GUARD)
    process.send_signal(signal.SIGTERM)
    assert '"busy": 1' in await line(process)
    assert '"state": "stopped"' in await line(process)
    assert await anyio.to_thread.run_sync(process.wait) == 0
    [step] = await engine.steps(group.runs[0])
    assert (step.status, step.retry, step.worker_id) == (RunStatus.PENDING, 0, None)
    query = engine.database.execute_query
    assert (await query("SELECT * FROM workercheckin")).rows == []


async def test_a_second_signal_ends_a_worker_at_once(engine, lexigram, folder, monkeypatch):
    plan = await plan_of(folder, monkeypatch)
    group = await engine.submit(slow(plan), [NewRun()])
    process = lexigram("worker", "fleet_app:create")
    assert "works on" in await line(process)

    async def running():
        return (await engine.steps(group.runs[0]))[0].status is RunStatus.RUNNING

    await wait_until(running, timeout=GUARD)
    process.send_signal(signal.SIGTERM)
    assert "draining: 1 steps" in await line(process)
    process.send_signal(signal.SIGTERM)
    assert await anyio.to_thread.run_sync(process.wait) == 143


@pytest.mark.promise
async def test_a_worker_whose_task_fails_again_and_again_ends_by_itself_with_an_error(
    engine, lexigram
):
    process = lexigram("worker", "broken_worker_app:create_always", stderr=subprocess.PIPE)
    output, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 1
    assert "the worker stopped" not in output
    assert "task claim * of worker" in errors
    assert "failed and is restarted" in errors
    assert "claims no more" in errors
    assert "Traceback" in errors
    assert "SystemExit: a defect of the worker" in errors


@pytest.mark.promise
async def test_a_worker_whose_task_failed_and_was_restarted_works_and_exits_with_an_error(
    engine, lexigram, folder, monkeypatch
):
    plan = await plan_of(folder, monkeypatch)
    process = lexigram("worker", "broken_worker_app:create_once", stderr=subprocess.PIPE)
    assert "works on" in await line(process)
    group = await engine.submit(plan, [NewRun()])

    async def is_completed():
        return (await engine.stats(group.group_id)).completed == 1

    await wait_until(is_completed, timeout=GUARD)
    process.send_signal(signal.SIGTERM)
    _, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 1
    assert "failed and is restarted" in errors
    assert "SystemExit: a defect of the worker" in errors
