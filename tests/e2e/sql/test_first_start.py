"""Processes that start at once on an empty database: one migrates, the others wait."""

import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import asyncpg
import pytest
from tests.names import unique_identifier
from tests.processes import Popen

from lexigram.sql import Database
from lexigram.sql.migrate import installed_migrations, snapshot, upgrade

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # of processes on a busy machine

UP_TO_DATE = [f"{item.distribution} {item.head} up to date" for item in installed_migrations()]
SCRIPT = Path(__file__).with_name("first_start.py")


@pytest.fixture
async def empty_postgres(services):
    """A database without a single table."""
    name = unique_identifier()
    server = f"postgresql://postgres@{services['postgresql'].address}"
    admin = await asyncpg.connect(f"{server}/test")
    await admin.execute(f"CREATE DATABASE {name}")
    yield f"{server}/{name}"
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"  # not there yet
    return request.getfixturevalue("empty_postgres")


@pytest.fixture
def launch():
    """Starts processes; those still running at the end are killed."""
    started = []

    def run(work, url):
        pipe = subprocess.PIPE
        command = [sys.executable, SCRIPT, work, url]
        process = Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


async def ready(*processes):
    for process in processes:
        line = await anyio.to_thread.run_sync(process.stdout.readline)
        assert line == "ready\n", process.stderr.read()


async def finished(process):
    """Let it go on to its end: code, lines, errors."""
    out, err = await anyio.to_thread.run_sync(process.communicate, "go\n")
    return process.returncode, out.splitlines(), err


@pytest.mark.parametrize("processes", [2, 8])
async def test_processes_that_start_at_once_all_end_up_to_date(url, launch, processes, tmp_path):
    outcomes = []

    async def finish(process):
        outcomes.append(await finished(process))

    running = [launch("start", url) for _ in range(processes)]
    await ready(*running)
    async with anyio.create_task_group() as tasks:
        for process in running:
            tasks.start_soon(finish, process)
    assert outcomes == [(0, UP_TO_DATE, "")] * processes
    async with Database(url) as database:
        assert await upgrade(database) == []
        fence = await database.execute_query("SELECT * FROM lexigram_lock_fence")
        assert fence.rows == [{"id": 1, "last": 0}]
        if database.dialect == "sqlite":
            async with Database(f"sqlite:///{tmp_path}/alone.db") as alone:
                await upgrade(alone)
                assert await snapshot(database) == await snapshot(alone)


@pytest.mark.promise
async def test_who_waits_goes_on_when_the_one_that_migrates_is_killed(url, launch):
    holder, waiter = launch("hold", url), launch("start", url)
    await ready(holder, waiter)
    outcome = []

    async def wait():
        outcome.append(await finished(waiter))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.5)  # not a promise: whenever the holder dies, the end is the same
        assert outcome == []
        holder.kill()
    assert outcome == [(0, UP_TO_DATE, "")]
    async with Database(url) as database:
        assert "half_done" not in (await snapshot(database))["tables"]
