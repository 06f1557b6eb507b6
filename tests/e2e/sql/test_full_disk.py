"""A disk that is really full: a small file system of its own, where one may be mounted."""

import pytest
from tests.disks import run_on_small_disk

FILL = """
import asyncio, pathlib, sys
from sqlalchemy import text
from tests.disks import fill
from lexigram.sql import Database, DiskFullError

folder = pathlib.Path(sys.argv[1])

async def refused(work):
    try:
        await work
    except DiskFullError as error:
        return f"{error} {error.hint}"
    raise AssertionError("there was room")

async def committed(db):
    return (await db.execute_query("SELECT count(*) AS n, count(name) AS m FROM t")).rows[0]

async def main():
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    async with Database(f"sqlite:///{folder}/a.db") as db:
        await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        number = 0
        try:
            while True:
                await db.execute_insert("t", {"id": number, "name": "x" * 4000})
                number += 1
        except DiskFullError as error:
            print(error)
        assert number > 10
        assert await committed(db) == {"n": number, "m": number}, "a read, with no room left"

        def steps():
            for at in range(100):
                yield "INSERT INTO t VALUES (?, ?)", (1000 + at, "y" * 4000)

        async def block():
            async with db.transaction():
                for at in range(100):
                    await db.execute_insert("t", {"id": 2000 + at, "name": "y" * 4000})

        def run(connection):
            for at in range(100):
                connection.execute(
                    text("INSERT INTO t VALUES (:id, :name)"), {"id": at + 3000, "name": "y" * 4000}
                )

        for work in (db.run_steps(steps), block(), db.run(run)):
            assert "make room" in await refused(work)
            assert (await committed(db))["n"] == number
        ballast.unlink()
        await db.execute_insert("t", {"id": number, "name": "room again"})
    async with Database(f"sqlite:///{folder}/a.db") as db:
        assert await committed(db) == {"n": number + 1, "m": number + 1}
        found = await db.execute_query("PRAGMA integrity_check")
        assert found.rows == [{"integrity_check": "ok"}]
    fill(ballast)
    assert "make room" in await refused(Database(f"sqlite:///{folder}/a.db").connect())
    print("sound")

asyncio.run(main())
"""


@pytest.mark.promise
def test_a_full_disk_is_explained_loses_nothing_and_is_no_end(tmp_path):
    done = run_on_small_disk(FILL, tmp_path, size="1m")
    assert done.returncode == 0, done.stderr
    explained, end = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "there is no room left for" in explained
    assert end == "sound"
    assert list(tmp_path.iterdir()) == []
