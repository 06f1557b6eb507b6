"""A process of the crash tests: ``worker.py <work> <url> <number> <count> [folder]``."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from sqlalchemy import text

from lexigram.leasing import lease_token
from lexigram.sql import Database, SqlConfig
from lexigram.sql.locks import SqlResourceLocks

TTL = 0.4  # seconds; short, so that a stopped holder is soon an expired one


async def transfer(db, number, count, _):
    """Move one from a to b and note it: two rows and a log line, or nothing."""
    for turn in range(count):

        def steps(turn=turn):
            yield "UPDATE accounts SET n = n - 1 WHERE id = 1", ()
            print("begun", flush=True)  # a place to be killed in the middle of a transaction
            yield "UPDATE accounts SET n = n + 1 WHERE id = 2", ()
            yield "INSERT INTO log (worker, turn) VALUES (?, ?)", (number, turn)

        await db.run_steps(steps)
        print(turn, flush=True)
        await look(db)


async def look(db):
    """Three reads in one snapshot that must agree, while other processes write."""
    queries = [
        "SELECT n FROM accounts WHERE id = 1",
        "SELECT count(*) AS n FROM log",
        "SELECT n FROM accounts WHERE id = 2",
    ]
    if db.dialect == "sqlite":
        read = lambda c: [c.exec_driver_sql(sql).scalar() for sql in queries]  # noqa: E731
    else:

        async def read(c):
            return [(await c.execute(sql)).rows[0]["n"] for sql in queries]

    taken, moved, given = await db.read(read)
    assert (-taken, given) == (moved, moved), f"torn read: {taken} {moved} {given}"


async def fight(db, number, count, folder):
    """Take the lock as often as told; what happened, and when, goes line by line to a file."""
    locks = SqlResourceLocks(db)
    granted = 0
    with (Path(folder) / f"{number}.jsonl").open("ab", buffering=0) as diary:

        def note(**facts):
            diary.write(json.dumps(facts).encode() + b"\n")

        while granted < count:
            holder, asked = lease_token(), time.monotonic()  # one clock for all processes
            lock = await locks.acquire("k", holder, ttl=TTL, meta={"pid": os.getpid()})
            if lock is None:
                await asyncio.sleep(0.002)
                continue
            got = time.monotonic()
            note(fence=lock.fence, asked=asked, got=got, ttl=TTL)
            granted += 1
            # Refused by the primary key if two were ever granted the same fence.
            await db.execute_insert("grants", {"fence": lock.fence, "worker": number})
            time.sleep(0.005)  # noqa: ASYNC251 - a place to be stopped while holding
            refreshing = time.monotonic()
            refreshed = await locks.refresh("k", holder, TTL)
            answered = time.monotonic()
            note(fence=lock.fence, refreshing=refreshing, refreshed=refreshed, answered=answered)
            if refreshed:
                releasing = time.monotonic()
                released = await locks.release("k", holder)
                note(fence=lock.fence, releasing=releasing, released=released)


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
    work, url, number, count, *folder = sys.argv[1:]
    # No second try: a "database is locked" or a lost connection ends the process.
    async with Database(SqlConfig(url=url, retry_attempts=1, busy_timeout=30)) as db:
        await prepare(db)
        works = {"transfer": transfer, "fight": fight}
        await works[work](db, int(number), int(count), *(folder or [None]))


asyncio.run(main())
