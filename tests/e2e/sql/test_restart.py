"""PostgreSQL goes away under load and comes back; the server is this test's own."""

import time

import anyio
import pytest

from lexigram.sql import CommitUncertainError, Database, DatabaseUnavailableError, SqlConfig
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

RECOVERY_GUARD = 30.0  # six times the five seconds it should take at most


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_the_pool_and_the_listener_recover_from_a_restart_under_load(start_postgres, mode):
    server = start_postgres()
    committed, uncertain, failed, reads = set(), set(), [], 0
    stop = anyio.Event()

    async def in_a_run(key):
        await db.run(lambda connection: connection.execute("INSERT INTO t VALUES (?)", (key,)))

    async def in_a_block(key):
        async with db.transaction():
            await db.execute_insert("t", {"id": key})

    async def alone(key):
        await db.execute_insert("t", {"id": key})

    async def write(worker, way):
        turn = 0
        while not stop.is_set():
            turn += 1
            key = worker * 1_000_000 + turn
            try:
                await way(key)
                committed.add(key)
            except CommitUncertainError:
                uncertain.add(key)
            except DatabaseUnavailableError as error:
                failed.append(error)
                await anyio.sleep(0.01)

    async def read():
        nonlocal reads
        while not stop.is_set():
            try:
                await db.execute_query("SELECT count(*) FROM t")
                reads += 1
            except DatabaseUnavailableError as error:
                failed.append(error)
                await anyio.sleep(0.01)

    def progress():
        return {worker: sum(key // 1_000_000 == worker for key in committed) for worker in range(6)}

    async def all_go_on(before, reads_before):
        now = progress()
        return reads > reads_before + 10 and all(now[w] > before[w] + 10 for w in before)

    config = SqlConfig(url=server.url, pool_size=4, connect_timeout=5)
    async with Database(config) as db, db.listen("news") as news:
        await db.execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        # The hang guard of all tasks: none may still be in a call of before the restart.
        with anyio.fail_after(3 * RECOVERY_GUARD):
            async with anyio.create_task_group() as tasks:
                for worker, way in enumerate([in_a_run, in_a_block, alone] * 2):
                    tasks.start_soon(write, worker, way)
                tasks.start_soon(read)
                await wait_until(lambda: all_go_on(dict.fromkeys(range(6), 0), 0))
                await news.wait(timeout=0)
                await anyio.to_thread.run_sync(server.stop, mode)
                await anyio.to_thread.run_sync(server.start)
                before, reads_before, back = progress(), reads, time.monotonic()
                # Every one of them, not just some: a task that hangs would not be among them.
                await wait_until(lambda: all_go_on(before, reads_before), timeout=RECOVERY_GUARD)
                assert await news.wait(timeout=RECOVERY_GUARD) == ""  # look again
                await db.notify("news", "back")
                assert await news.wait(timeout=RECOVERY_GUARD) == "back"
                print(f"{mode}: all went on {time.monotonic() - back:.2f} s after the server")
                stop.set()
        found = {row["id"] for row in (await db.execute_query("SELECT id FROM t")).rows}
        assert committed <= found
        assert found <= committed | uncertain
        assert all(error.hint for error in failed)
