"""A process of the crash tests: ``worker.py <work> <url> <number> <count>``."""

import asyncio
import sys
import time

from sqlalchemy import text

from lexigram.sql import Database, SqlConfig
from lexigram.sql.leasing import lease_token
from lexigram.sql.locks import SqlResourceLocks


async def transfer(db, number, count):
    """Move one from a to b and note it: two rows and a log line, or nothing."""
    for turn in range(count):

        def steps(turn=turn):
            yield "UPDATE accounts SET n = n - 1 WHERE id = 1", ()
            yield "UPDATE accounts SET n = n + 1 WHERE id = 2", ()
            yield "INSERT INTO log (worker, turn) VALUES (?, ?)", (number, turn)

        await db.run_steps(steps)
        found = await db.execute_query("SELECT sum(n) AS n FROM accounts")
        assert found.rows[0]["n"] == 0, "torn read"
        print(turn, flush=True)


async def fight(db, number, count):
    """Take the lock as often as told; each grant is noted with its fence."""
    locks = SqlResourceLocks(db)
    granted = 0
    while granted < count:
        holder = lease_token()
        lock = await locks.acquire("k", holder, ttl=0.3)
        if lock is None:
            await asyncio.sleep(0.002)
            continue
        granted += 1
        # Refused by the primary key if two were ever granted the same fence.
        await db.execute_insert("grants", {"fence": lock.fence, "worker": number})
        print(lock.fence, flush=True)
        time.sleep(0.001)  # noqa: ASYNC251 - a place to be stopped while holding
        if not await locks.refresh("k", holder, 0.3):
            continue  # expired, and told so
        await locks.release("k", holder)


async def prepare(db):
    """What all of them do first, at once, on a database that is still empty."""
    if db.dialect == "postgresql":
        return

    def create(connection):
        connection.execute(text("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, n)"))
        connection.execute(text("INSERT OR IGNORE INTO accounts VALUES (1, 0), (2, 0)"))
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS log (worker, turn, PRIMARY KEY (worker, turn))")
        )

    await db.run(create)


async def main():
    work, url, number, count = sys.argv[1:]
    async with Database(SqlConfig(url=url, busy_timeout=30, retry_attempts=10)) as db:
        await prepare(db)
        await {"transfer": transfer, "fight": fight}[work](db, int(number), int(count))


asyncio.run(main())
