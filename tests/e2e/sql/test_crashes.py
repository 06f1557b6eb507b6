"""Several processes on one database, and the sudden death of some of them."""

import json
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
GUARD = 60.0  # seconds; against a hang only
ONE_LOOK = """SELECT (SELECT n FROM accounts WHERE id = 1) AS taken,
    (SELECT n FROM accounts WHERE id = 2) AS given, (SELECT count(*) FROM log) AS moved"""
SLACK = 0.005  # seconds; the database goes by the time of day, the diaries by a steady clock


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    return request.getfixturevalue("postgres_url")


async def finished(processes):
    """All have ended well. Side by side: one that prints must not wait for the one before."""

    async def finish(process):
        _, errors = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0, errors

    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(finish, process)


async def rows(db, sql):
    return (await db.execute_query(sql)).rows


async def test_many_processes_write_one_database_without_a_loss_or_a_torn_read(url, start):
    workers, turns = (4, 25) if not FULL else (8, 200)
    # On SQLite the file does not exist yet: all of them make it. Each looks after each write.
    await finished([start("transfer", url, number, turns) for number in range(workers)])
    async with Database(url) as db:
        await consistent(db, {(worker, turn) for worker in range(workers) for turn in range(turns)})
        moved = await rows(db, "SELECT n FROM accounts WHERE id = 2")
        print(f"{db.dialect}: {workers} processes x {turns} transactions, {moved[0]['n']} rows")
        assert moved == [{"n": workers * turns}]


@pytest.mark.promise
async def test_a_killed_writer_leaves_what_it_reported_and_nothing_by_halves(url, start, seed):
    kills = 5 if not FULL else 50
    reported, within = set(), 0
    number = 0
    while number < kills or not within:  # where a kill falls is up to the scheduler
        process = start("transfer", url, number, 100_000)
        lines, wanted = [], seed.randint(1, 40)
        while len(lines) < wanted:
            lines.append(await anyio.to_thread.run_sync(process.stdout.readline))
        if lines[-1] != "begun\n":  # else it is killed right there, between two statements
            await anyio.sleep(seed.random() * 0.005)
        process.send_signal(signal.SIGKILL)
        rest, _ = await anyio.to_thread.run_sync(process.communicate)
        lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        within += lines[-1] == "begun\n"
        reported |= {(number, int(line)) for line in lines if line != "begun\n"}
        async with Database(url) as db:
            await consistent(db, reported)
        number += 1
    print(f"{number} kills, {within} of them between the first statement and the report")


async def consistent(db, reported):
    """What was reported is there, and the three tables agree."""
    # One statement, one snapshot: a server may still commit for a client that was killed.
    (seen,) = await rows(db, ONE_LOOK)
    assert (-seen["taken"], seen["given"]) == (seen["moved"], seen["moved"])
    found = await rows(db, "SELECT worker, turn FROM log")
    assert reported <= {(row["worker"], row["turn"]) for row in found}
    if db.dialect == "sqlite":
        assert await rows(db, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


@pytest.mark.promise
async def test_fences_grow_with_the_grants_however_holders_die_or_pause(
    migrated_url, start, seed, tmp_path
):
    workers, each, faults = (4, 15, 4) if not FULL else (8, 250, 60)
    killed = stopped = 0
    async with Database(migrated_url) as db:
        locks = await prepared(db)
        processes = [start("fight", migrated_url, n, each, tmp_path) for n in range(workers)]
        started = workers
        for _ in range(faults):
            process, fence = await wait_until(lambda: held(locks, processes), timeout=GUARD)
            if process is None:
                break  # all have done their turns
            if seed.random() < 0.5:
                process.send_signal(signal.SIGKILL)
                await anyio.to_thread.run_sync(process.communicate)
                processes.remove(process)
                processes.append(start("fight", migrated_url, started, each, tmp_path))
                started += 1
                killed += 1
            else:
                process.send_signal(signal.SIGSTOP)
                # Until its lock is somebody else's, or (it had just given it back) anybody's.
                await wait_until(lambda f=fence: passed_on(locks, f), timeout=GUARD)
                process.send_signal(signal.SIGCONT)
                stopped += 1
        await finished(processes)
        history = diaries(tmp_path)
        table = {row["fence"] for row in await rows(db, "SELECT fence FROM grants")}
        assert table <= set(history)
        assert len(table) >= workers * each
        late = check_history(history)
        last = await wait_until(lambda: locks.acquire("k", "test"), timeout=GUARD)
        assert last.fence > max(history)
    print(
        f"{db.dialect}: {len(history)} grants, {killed} holders killed, {stopped} stopped,"
        f" {late} found themselves expired and were refused"
    )


@pytest.mark.promise
async def test_a_holder_stopped_beyond_its_ttl_is_refused_even_if_nobody_came(
    migrated_url, start, tmp_path
):
    async with Database(migrated_url) as db:
        locks = await prepared(db)
        process = start("fight", migrated_url, 0, 100_000, tmp_path)
        grant = {"refreshed": True}
        while grant["refreshed"]:  # else it was stopped just after its refresh
            _, fence = await wait_until(lambda: held(locks, [process]), timeout=GUARD)
            process.send_signal(signal.SIGSTOP)
            await wait_until(lambda: expired(locks), timeout=GUARD)
            process.send_signal(signal.SIGCONT)
            grant = await wait_until(lambda f=fence: noted(tmp_path, f), timeout=GUARD)
            check_history({fence: grant})
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        assert check_history(diaries(tmp_path)) >= 1


async def test_hold_keeps_the_lock_beyond_its_ttl_while_others_fight_for_it(
    migrated_url, start, tmp_path
):
    workers, each, ttl = 3 if not FULL else 7, 5, 4.0
    async with Database(migrated_url) as db:
        locks = await prepared(db)
        async with locks.hold("k", ttl=ttl) as lock:
            processes = [start("fight", migrated_url, n, each, tmp_path) for n in range(workers)]
            late = lock.expires_at.timestamp() + 1.5 * ttl
            now = await wait_until(lambda: kept(locks, late), timeout=GUARD)
            assert now.fence == lock.fence
            assert await rows(db, "SELECT fence FROM grants") == []
            assert all(process.poll() is None for process in processes)
        await finished(processes)
        fences = [row["fence"] for row in await rows(db, "SELECT fence FROM grants")]
        assert len(fences) == workers * each
        assert min(fences) > lock.fence


async def prepared(db):
    locks = SqlResourceLocks(db)
    await db.execute("CREATE TABLE grants (fence BIGINT PRIMARY KEY, worker INTEGER)")
    return locks


async def held(locks, processes):
    """The process that holds the lock now, and its fence; None and 0 when all have ended."""
    running = {process.pid: process for process in processes if process.poll() is None}
    if not running:
        return None, 0
    lock = await locks.get("k")
    process = lock and running.get(lock.holder_meta["pid"])
    return process and (process, lock.fence)


async def passed_on(locks, fence):
    lock = await locks.get("k")
    return lock is None or lock.fence != fence


async def expired(locks):
    return await locks.get("k") is None


async def noted(folder, fence):
    """What the holder was told, once it was."""
    grant = (await anyio.to_thread.run_sync(diaries, folder)).get(fence, {})
    return grant if grant.get("refreshed") is False or "released" in grant else None


async def kept(locks, until):
    lock = await locks.get("k")
    return lock if lock and lock.expires_at.timestamp() > until else None


def diaries(folder):
    """What each grant went through, by fence; two grants of one fence are refused here."""
    grants = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_bytes().split(b"\n")[:-1]:  # the last one may be by halves
            facts = json.loads(line)
            fence = facts.pop("fence")
            assert "asked" not in facts or fence not in grants, f"fence {fence} was granted twice"
            grants.setdefault(fence, {}).update(facts)
    return grants


def check_history(grants):
    """By a clock that all processes share: the order of grants, one holder, refusals in time.

    A grant came about somewhere between `asked` and `got`. Returns how many found theirs over.
    """
    late, free = 0, 0.0
    for fence in sorted(grants):
        grant = grants[fence]
        asked, got, ttl = grant["asked"], grant["got"], grant["ttl"]
        assert got > free - SLACK, f"fence {fence} was granted while a smaller one was held"
        free = max(free, held_until(grant))
        if "refreshed" not in grant:
            continue  # killed before
        if grant["refreshing"] > got + ttl + SLACK:
            assert not grant["refreshed"], f"fence {fence} had expired and was refreshed"
        if not grant["refreshed"]:
            assert grant["answered"] > asked + ttl - SLACK, f"fence {fence} was lost too early"
            late += 1
    return late


def held_until(grant):
    """The earliest moment at which another may have been granted the lock."""
    if not grant.get("refreshed"):  # too late, or killed before it was known
        return grant["asked"] + grant["ttl"]
    if "released" not in grant:  # killed since; it may have given it back just before
        return grant["answered"]
    return grant["releasing"] if grant["released"] else grant["refreshing"] + grant["ttl"]
