"""Several processes on one database, and the sudden death of some of them."""

import os
import signal

import anyio
import pytest

from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    return request.getfixturevalue("postgres_url")


async def finished(processes):
    for process in processes:
        _, errors = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0, errors


async def rows(db, sql):
    return (await db.execute_query(sql)).rows


async def test_many_processes_write_one_database_without_a_loss(url, start):
    workers, turns = (4, 25) if not FULL else (8, 200)
    # On SQLite the file does not exist yet: all of them make it.
    await finished([start("transfer", url, number, turns) for number in range(workers)])
    async with Database(url) as db:
        assert await rows(db, "SELECT count(*) AS n FROM log") == [{"n": workers * turns}]
        moved = workers * turns
        accounts = await rows(db, "SELECT id, n FROM accounts ORDER BY id")
        assert accounts == [{"id": 1, "n": -moved}, {"id": 2, "n": moved}]


async def test_a_killed_writer_leaves_what_it_reported_and_nothing_by_halves(url, start, seed):
    kills = 5 if not FULL else 50
    reported = set()
    for number in range(kills):
        process = start("transfer", url, number, 100_000)
        for _ in range(seed.randint(1, 30)):
            line = await anyio.to_thread.run_sync(process.stdout.readline)
            reported.add((number, int(line)))
        await anyio.sleep(seed.random() * 0.005)
        process.send_signal(signal.SIGKILL)
        rest, _ = await anyio.to_thread.run_sync(process.communicate)
        reported |= {(number, int(line)) for line in rest.splitlines(keepends=True) if "\n" in line}
    async with Database(url) as db:
        found = await rows(db, "SELECT worker, turn FROM log")
        assert reported <= {(row["worker"], row["turn"]) for row in found}
        accounts = await rows(db, "SELECT id, n FROM accounts ORDER BY id")
        assert accounts == [{"id": 1, "n": -len(found)}, {"id": 2, "n": len(found)}]
        if db.dialect == "sqlite":
            assert await rows(db, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


async def test_a_lock_survives_the_death_and_the_pauses_of_its_holders(url, start, seed):
    workers, grants, faults = (4, 15, 4) if not FULL else (8, 250, 60)
    async with Database(url) as db:
        await SqlResourceLocks(db).create_tables()
        await db.execute("CREATE TABLE grants (fence BIGINT PRIMARY KEY, worker INTEGER)")
        processes = [start("fight", url, number, grants) for number in range(workers)]
        number = workers
        for _ in range(faults):
            before = (await rows(db, "SELECT count(*) AS n FROM grants"))[0]["n"]
            victim = seed.choice(processes)
            if seed.random() < 0.5:
                victim.send_signal(signal.SIGKILL)
                await anyio.to_thread.run_sync(victim.communicate)
                processes.remove(victim)
                processes.append(start("fight", url, number, grants))
                number += 1
            else:
                victim.send_signal(signal.SIGSTOP)
                await anyio.sleep(seed.random() * 0.5)
                victim.send_signal(signal.SIGCONT)
            if any(process.poll() is None for process in processes):
                await wait_until(lambda n=before: _more(db, processes, n), timeout=30)
        await finished(processes)
        granted = [row["fence"] for row in await rows(db, "SELECT fence FROM grants")]
        assert len(granted) == len(set(granted)) >= workers * grants
        locks = SqlResourceLocks(db)
        last = await wait_until(lambda: locks.acquire("k", "test"), timeout=30)
        assert last.fence > max(granted)


async def _more(db, processes, before):
    done = all(process.poll() is not None for process in processes)
    return done or (await rows(db, "SELECT count(*) AS n FROM grants"))[0]["n"] > before
