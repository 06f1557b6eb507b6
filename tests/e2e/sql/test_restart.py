"""PostgreSQL goes away under load and comes back; the server is this test's own."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from lexigram.config import flag
from lexigram.sql import CommitUncertainError, Database, DatabaseUnavailableError, SqlConfig
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
RECOVERY_GUARD = 30.0  # six times the five seconds it should take at most


class Server:
    def __init__(self, folder):
        self.folder = folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder.chmod(0o755)
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "-A", "trust", "-U", "postgres", "-D", str(self.folder), "--no-sync")

    @property
    def url(self):
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self):
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1 -F"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-m", mode, "stop")

    def _run(self, program, *arguments):
        command = [str(BINARIES[-1] / program), *arguments]
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr, cwd="/", timeout=60
        )


@pytest.fixture
def server():
    if not BINARIES:
        missing = "PostgreSQL is not installed here, so the test cannot start its own server"
        if flag("LEX_REQUIRE_SERVICES"):
            pytest.fail(missing)
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="lexpg"))
    made = Server(folder)
    made.start()
    yield made
    if (made.folder / "postmaster.pid").exists():
        made.stop("immediate")
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_the_pool_and_the_listener_recover_from_a_restart_under_load(server, mode):
    committed, uncertain, refused = set(), set(), 0
    stop = anyio.Event()

    async def load(worker):
        nonlocal refused
        turn = 0
        while not stop.is_set():
            turn += 1
            key = worker * 1_000_000 + turn

            async def write(connection, key=key):
                await connection.execute("INSERT INTO t VALUES (?)", (key,))

            try:
                await db.run(write)
                committed.add(key)
            except CommitUncertainError:
                uncertain.add(key)
            except DatabaseUnavailableError:
                refused += 1

    config = SqlConfig(url=server.url, pool_size=4, connect_timeout=5)
    async with Database(config) as db, db.listen("news") as news:
        await db.execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        async with anyio.create_task_group() as tasks:
            for worker in range(4):
                tasks.start_soon(load, worker)
            await wait_until(lambda: len(committed) > 50)
            await news.wait(timeout=0)
            await anyio.to_thread.run_sync(server.stop, mode)
            await anyio.to_thread.run_sync(server.start)
            before = len(committed)
            await wait_until(lambda: len(committed) > before + 50, timeout=RECOVERY_GUARD)
            assert await news.wait(timeout=RECOVERY_GUARD) == ""  # look again
            await db.notify("news", "back")
            assert await news.wait(timeout=RECOVERY_GUARD) == "back"
            stop.set()
        found = {row["id"] for row in (await db.execute_query("SELECT id FROM t")).rows}
        assert committed <= found
        assert found <= committed | uncertain
