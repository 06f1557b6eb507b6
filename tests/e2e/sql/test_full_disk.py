"""A disk that is really full: a small file system of its own, where one may be mounted."""

import os
import shutil
import subprocess
import sys

import pytest

# Mounted in a name space of its own: it goes away with the process, however that ends.
MOUNTED = 'mount -t tmpfs -o size=1m lexigram "$0" && exec "$@"'

FILL = """
import asyncio, os, pathlib, sys
from sqlalchemy import text
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
    print("sound")

asyncio.run(main())
"""


def may_mount(folder):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--mount", "sh", "-c", MOUNTED, str(folder), "true"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@pytest.mark.promise
def test_a_full_disk_is_explained_loses_nothing_and_is_no_end(tmp_path):
    if not may_mount(tmp_path):
        pytest.skip("mounting a file system is not allowed here")
    command = ["unshare", "--mount", "sh", "-c", MOUNTED, str(tmp_path)]
    done = subprocess.run(
        [*command, sys.executable, "-c", FILL, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    explained, end = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "there is no room left for" in explained
    assert end == "sound"
    assert list(tmp_path.iterdir()) == []
