"""Several processes write one table, are killed and stopped: every id is there once."""

import os
import signal
import sqlite3

import anyio
import pytest
from anyio.to_thread import run_sync

from lexigram.ai.workers.vectors import LanceVectorStore, VectorConfig
from lexigram.ai.workers.vectors.errors import VectorWriterBusyError
from lexigram.contracts.data.vector import SearchQuery, VectorRecord
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
ROUNDS, KILLS, STOPS = (200, 8, 20) if FULL else (12, 2, 1)
GUARD = 300.0


async def unique(folder):
    """How many ids there are; fails when a row is there twice or cannot be read."""
    store = LanceVectorStore(folder)
    collection = await store.get_collection("c")
    rows = (await collection._table.query().select(["id"]).to_arrow())["id"].to_pylist()
    assert len(rows) == len(set(rows)) == await collection.count()
    found = await collection.search(SearchQuery(vector=[1.0] * 8, top_k=300))
    assert {hit.id for hit in found} == set(rows)
    await store.disconnect()
    return len(rows)


async def line(process):
    with anyio.fail_after(GUARD):
        return await run_sync(process.stdout.readline, abandon_on_cancel=True)


async def stopped(process):
    """SIGSTOP, and it has come: what is seen from now on stays so."""
    os.kill(process.pid, signal.SIGSTOP)
    await run_sync(os.waitpid, process.pid, os.WUNTRACED)


def may_write(file):
    """Nobody holds the SQLite file: one stopped in a write would stop everybody."""
    connection = sqlite3.connect(file, timeout=1.0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


async def test_two_processes_upserting_overlapping_ids_leave_one_row_each(folder, start):
    processes = [start(ROUNDS), start(ROUNDS)]
    for process in processes:
        with anyio.fail_after(GUARD):
            assert await run_sync(process.wait) == 0
    assert await unique(folder) <= 200


@pytest.mark.promise
async def test_a_writer_killed_at_any_moment_leaves_a_table_that_opens(folder, start, seed):
    survivor, *victims = [start(100_000) for _ in range(1 + KILLS)]
    for victim in victims:
        for _ in range(1 + seed.randrange(3)):
            await line(victim)
        await anyio.sleep(seed.random() * 0.02)
        victim.kill()
        await run_sync(victim.wait)
        # Its lock was freed by the kernel: the other goes on.
        await line(survivor)
    survivor.kill()
    await run_sync(survivor.wait)
    assert await unique(folder) > 0
    store = LanceVectorStore(folder)
    before = await (await store.get_collection("c")).count()
    await store.vacuum()
    assert await unique(folder) == before


async def test_a_stopped_writer_keeps_the_file_lock_and_is_named(folder, start, seed):
    other = VectorRecord(id="other", vector=[1.0] * 8)
    for _ in range(STOPS):
        writer = start(100_000)
        assert await line(writer) == "ready\n"
        store = LanceVectorStore(folder, VectorConfig(lock_wait=0.2))
        collection = await store.get_collection("c")
        named = None
        # Until it is stopped inside a commit; just after it took the lock, the note in the file
        # may still be ours.
        while named in {None, os.getpid()}:
            await anyio.sleep(seed.random() * 0.02)
            await stopped(writer)
            try:
                await collection.upsert([other])
            except VectorWriterBusyError as error:
                named = error.details["pid"]
            os.kill(writer.pid, signal.SIGCONT)
        assert named == writer.pid
        patient = LanceVectorStore(folder, VectorConfig(lock_wait=GUARD))
        await (await patient.get_collection("c")).upsert([other])
        writer.kill()
    await unique(folder)


async def test_a_writer_that_slept_through_its_sql_lock_leaves_no_row_twice(
    folder, start, seed, sqlite_url, tmp_path
):
    async with Database(sqlite_url) as database:
        config = VectorConfig(shared_storage=True, lock_ttl=1.0)
        for _ in range(STOPS):
            sleeper = start(100_000, sqlite_url)
            assert await line(sleeper) == "ready\n"
            await anyio.sleep(seed.random() * 0.02)
            await stopped(sleeper)
            while not await run_sync(may_write, tmp_path / "test.db"):
                os.kill(sleeper.pid, signal.SIGCONT)
                await anyio.sleep(seed.random() * 0.02)
                await stopped(sleeper)
            store = LanceVectorStore(folder, config, locks=SqlResourceLocks(database))
            collection = await store.get_collection("c")
            same = [VectorRecord(id=f"r{n}", vector=[n + 1.0] * 8) for n in range(200)]
            with anyio.fail_after(GUARD):
                await collection.upsert(same)  # once the lock of the sleeper is over
                await collection.delete([f"r{n}" for n in range(100)])
                await collection.upsert(same)
            os.kill(sleeper.pid, signal.SIGCONT)
            for _ in range(3):
                await line(sleeper)
            sleeper.kill()
            await run_sync(sleeper.wait)
            assert await unique(folder) == 200
