"""Workers are killed and frozen at random; what the engine promises holds all the same."""

import os
import random
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.doubles.proxy import proxy_to
from tests.processes import Popen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
)

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

PROCESS = Path(__file__).with_name("worker_process.py")
# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
RUNS, BLOWS, WORKERS = (400, 30, 4) if FULL else (40, 5, 3)
LEASE = 0.3
GUARD = 800.0 if FULL else 240.0

# Every arrival at the end of a step leaves a row in the history; its key lets one in only.
TABLES = [
    "CREATE TABLE effects (step_id BIGINT, what TEXT, fence BIGINT)",
    "CREATE TABLE resource (id INTEGER PRIMARY KEY, fence BIGINT)",
    "INSERT INTO resource VALUES (1, 0), (2, 0)",
]


@pytest.fixture
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def engine(url):
    async with Database(url) as database:
        for statement in TABLES:
            await database.execute(statement)
        yield DurableEngine(database, Terms(lease=LEASE))


@pytest.fixture
def start(url):
    started = []

    def skew():
        """Leases are by the server's clock; users of a file are on one machine with one clock."""
        return random.uniform(-3600, 3600) if url.startswith("postgresql") else 0.0

    def run(address=url):
        process = Popen(
            [sys.executable, str(PROCESS), address, str(LEASE), str(skew())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


async def ready(process):
    assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"


@pytest.mark.promise
async def test_every_step_completes_once_and_each_group_ends_once_while_workers_die(engine, start):
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    steps = [
        StepPlan(name="a", step_type="parse", handler="work", retries=1000, backoff=0.01),
        StepPlan(name="b", step_type="chunk", handler="work", retries=1000),
        StepPlan(name="c", step_type="store", handler="store", retries=1000, resource_key="K"),
        StepPlan(
            name="d",
            step_type="route",
            handler="save",
            retries=1000,
            resource_key="S",
            resource_shared=True,
        ),
    ]
    plan = RunPlan(workflow_id="w", steps=steps)
    groups = [await engine.submit(plan, [NewRun() for _ in range(RUNS // 4)]) for _ in range(4)]
    # Runs that make three runs each, of two steps, and gather them; its end has a handler.
    fan = RunPlan(
        workflow_id="fan",
        steps=[
            StepPlan(name="split", step_type="parse", handler="split", retries=1000),
            StepPlan(name="gather", step_type="store", handler="gather", retries=1000),
        ],
        lifecycle={
            kind: [
                LifecycleHandler(name=name, handler=name, retries=99)
                for name in ("ended", "called")
            ]
            for kind in (LifeCycleEvent.GROUP_END, LifeCycleEvent.ITEM_END)
        },
    )
    fans = [await engine.submit(fan, [NewRun() for _ in range(RUNS // 8)]) for _ in range(2)]

    async def ended(count):
        done = [
            group
            for group in (*groups, *fans)
            if (await engine.stats(group.group_id)).group_status is RunStatus.COMPLETED
        ]
        return len(done) >= count

    async def blows():
        processes = [start() for _ in range(WORKERS)]
        for process in processes:
            await ready(process)
        for _ in range(BLOWS):
            await anyio.sleep(0.1 + 0.3 * chance.random())
            victim = chance.randrange(WORKERS)
            if chance.random() < 0.5:
                processes[victim].send_signal(signal.SIGKILL)
                await anyio.to_thread.run_sync(processes[victim].wait)
                processes[victim] = start()
                await ready(processes[victim])
            else:
                # A zombie: it sleeps beyond its lease, wakes up and says what it had to say.
                processes[victim].send_signal(signal.SIGSTOP)
                await anyio.sleep(LEASE * 3)
                processes[victim].send_signal(signal.SIGCONT)

    with anyio.fail_after(GUARD):
        await blows()
        await wait_until(lambda: ended(6), timeout=GUARD)
    query = engine.database.execute_query

    async def all_told():
        found = await query("SELECT * FROM lexigram_durable_events WHERE delivered_at IS NULL")
        return [row for row in found.rows if row["kind"] in ("group_end", "item_end")] == []

    await wait_until(all_told, timeout=GUARD)

    runs, fanned = RUNS // 4 * 4, RUNS // 8 * 2
    completed = (
        await query(
            "SELECT run_id, step_no, count(*) AS n FROM lexigram_durable_history"
            " WHERE status = 'COMPLETED' GROUP BY run_id, step_no"
        )
    ).rows
    assert len(completed) == runs * 4 + fanned * (2 + 3 * 2), "a step was left out"
    assert {row["n"] for row in completed} == {1}, "a step was completed twice"
    for group in (*groups, *fans):
        events = await query(
            "SELECT * FROM lexigram_durable_events WHERE group_id = ? AND kind = 'group_end'"
            " AND audience = 'listener'",
            (group.group_id,),
        )
        assert [row["ending"] for row in events.rows] == [1]
        stats = await engine.stats(group.group_id)
        assert stats.completed == stats.total_runs == len(group.runs)
    for group in fans:
        rows = await engine.lifecycle_history(group.group_id)
        # two handlers of the end of the group, and of the end of each run
        assert [row.status for row in rows] == [RunStatus.COMPLETED] * 2 * (1 + len(group.runs))
    ends = (
        await query(
            "SELECT what, count(*) AS n FROM effects"
            " WHERE what LIKE 'once %' OR what LIKE 'called %' GROUP BY what"
        )
    ).rows
    once = [row for row in ends if row["what"].startswith("once ")]
    assert {row["n"] for row in once} == {1}, "what is in our transaction happened twice"
    assert len(once) == len(ends) - len(once) == len(fans) + fanned, "one key for each event"
    made = await query(
        "SELECT parent_id, count(*) AS n FROM lexigram_durable_runs"
        " WHERE parent_id IS NOT NULL GROUP BY parent_id"
    )
    assert len(made.rows) == fanned
    assert {row["n"] for row in made.rows} == {3}, "runs were made twice"
    assert await engine.store.reconcile() == 0
    # Two holders of a resource: none of those that came later was let in by a lower fence.
    fences = (
        await query(
            "SELECT e.step_id, e.fence FROM effects e WHERE e.what = 'stored' ORDER BY e.fence"
        )
    ).rows
    assert len({row["fence"] for row in fences}) == len(fences), "two steps had one fence"
    shared = await query(
        "SELECT fence, count(DISTINCT what) AS n, count(*) AS steps FROM effects"
        " WHERE what LIKE 'saved %' GROUP BY fence"
    )
    assert {row["n"] for row in shared.rows} == {1}, "two claims shared a resource"
    assert max(row["steps"] for row in shared.rows) > 1, "no claim shared it"
    done = {row["step_id"] for row in (await query("SELECT step_id FROM effects")).rows}
    assert {row["run_id"] * 10_000 + row["step_no"] for row in completed} <= done

    async def no_lock():
        await engine.sweep_expired_resource_locks()
        return (await query("SELECT * FROM resourcelock")).rows == []

    await wait_until(no_lock, timeout=GUARD)


# --- nobody is killed, everybody is late ----------------------------------------------------------


def stalling(*, blocks=False):
    kinds = (LifeCycleEvent.GROUP_END, LifeCycleEvent.ITEM_END)
    handler = LifecycleHandler(name="ended", handler="ended", retries=99)
    step = StepPlan(name="a", step_type="a", handler="stall", params={"blocks": blocks})
    return RunPlan(workflow_id="stall", steps=[step], lifecycle={kind: [handler] for kind in kinds})


async def check_stalled(engine, submitted):
    """When the group has ended: nothing was lost and nothing counts twice."""
    query = engine.database.execute_query

    async def handled():
        rows = await engine.lifecycle_history(submitted.group_id)
        done = [row for row in rows if row.status is RunStatus.COMPLETED]
        return len(done) == len(submitted.runs) + 1

    await wait_until(handled, timeout=GUARD)
    attempts = (await query("SELECT run_id, status FROM lexigram_durable_history")).rows
    completed = [row["run_id"] for row in attempts if row["status"] == "COMPLETED"]
    assert sorted(completed) == sorted(submitted.runs)
    effects = [row["what"] for row in (await query("SELECT what FROM effects")).rows]
    once = [what for what in effects if what.startswith("once ")]
    assert len(once) == len(set(once)) == len(submitted.runs) + 1
    # A step began again only where its lease was taken away.
    assert effects.count("begun") <= len(attempts)


async def lapsed(engine):
    """Whether leases are over."""
    now = "extract(epoch FROM clock_timestamp())"
    if engine.database.dialect == "sqlite":
        now = "(julianday('now') - 2440587.5) * 86400"
    found = await engine.database.execute_query(
        f"SELECT id FROM lexigram_durable_runs WHERE lease_until < {now}"
    )
    return found.rows != []


async def lapsed_or_done(engine, submitted):
    stats = await engine.stats(submitted.group_id)
    return await lapsed(engine) or stats.completed == stats.total_runs


async def begun(engine, count):
    found = await engine.database.execute_query(
        "SELECT count(*) AS n FROM effects WHERE what = 'begun'"
    )
    return found.rows[0]["n"] >= count


async def test_steps_that_block_the_loop_longer_than_a_lease_count_once(engine, start):
    for process in [start(), start()]:
        await ready(process)
    submitted = await engine.submit(stalling(blocks=True), [NewRun() for _ in range(4)])
    await check_stalled(engine, submitted)


@pytest.mark.parametrize("suspended", [1, 2])
async def test_processes_that_are_suspended_longer_than_a_lease_lose_nothing(
    engine, start, suspended
):
    processes = [start(), start()]
    for process in processes:
        await ready(process)
    submitted = await engine.submit(stalling(), [NewRun() for _ in range(12)])
    await wait_until(lambda: begun(engine, 1), timeout=GUARD)
    for process in processes[:suspended]:
        process.send_signal(signal.SIGSTOP)
    # What it held; the other one may take it over before it wakes up.
    await wait_until(lambda: lapsed_or_done(engine, submitted), timeout=GUARD)
    for process in processes[:suspended]:
        process.send_signal(signal.SIGCONT)
    await check_stalled(engine, submitted)
    for process in processes:
        await anyio.to_thread.run_sync(process.communicate, "stop\n")
        assert process.returncode == 0
    await check_stalled(engine, submitted)


@pytest.mark.promise
async def test_a_database_that_hangs_longer_than_a_lease_loses_nothing(request, engine, start, url):
    async with AsyncExitStack() as stack:
        if engine.database.dialect == "sqlite":
            address, proxy = url, None
        else:
            server = request.getfixturevalue("services")["postgresql"].address
            proxy = await stack.enter_async_context(proxy_to(server))
            address = url.replace(server, proxy.address)
        for process in [start(address), start(address)]:
            await ready(process)
        submitted = await engine.submit(stalling(), [NewRun() for _ in range(12)])
        await wait_until(lambda: begun(engine, 4), timeout=GUARD)
        if proxy is None:
            async with engine.database.transaction():  # the writer of all processes
                await wait_until(lambda: lapsed_or_done(engine, submitted), timeout=GUARD)
        else:
            proxy.hold()
            await wait_until(lambda: lapsed_or_done(engine, submitted), timeout=GUARD)
            proxy.release()
        await check_stalled(engine, submitted)
