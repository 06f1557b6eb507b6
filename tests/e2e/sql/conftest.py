"""Workers in processes of their own, and databases and servers for them."""

import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest

from lexigram.testing.services import do_without, free_port

WORKER = Path(__file__).with_name("worker.py")
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture
def start():
    """Starts workers; those still running at the end of the test are killed."""
    started = []

    def run(work, url, number, count, *more):
        command = [sys.executable, str(WORKER), work, url, *map(str, (number, count, *more))]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def seed():
    """Of what is random in a test; printed, so that a red run can be repeated."""
    number = int(os.environ.get("LEX_CHAOS_SEED", secrets.randbits(32)))
    print("LEX_CHAOS_SEED", number)
    return random.Random(number)


@pytest.fixture
async def postgres_url(empty_schema):
    """A schema of this test with the tables of the workers."""
    admin = await asyncpg.connect(empty_schema)
    await admin.execute(
        "CREATE TABLE accounts (id int PRIMARY KEY, n bigint);"
        "INSERT INTO accounts VALUES (1, 0), (2, 0);"
        "CREATE TABLE log (worker int, turn int, PRIMARY KEY (worker, turn))"
    )
    await admin.close()
    return empty_schema


@pytest.fixture
def start_postgres():
    """Starts servers of this test alone, which it may stop; they are gone at its end."""
    if not BINARIES:
        do_without("PostgreSQL is not installed here, so the test cannot start its own server")
    made = []

    def start(password=None):
        # Not under tmp_path: the server may run as another user, who cannot enter that.
        folder = Path(tempfile.mkdtemp(prefix="lexpg"))
        server = Server(folder, password)
        made.append((server, folder))
        server.start()
        return server

    yield start
    for server, folder in made:
        if (server.folder / "postmaster.pid").exists():
            server.stop("immediate")
        shutil.rmtree(folder)


class Server:
    """A PostgreSQL of one test; with a password it asks everybody for it."""

    def __init__(self, folder, password=None):
        self.folder = folder / "data"
        self.port = free_port()
        folder.chmod(0o755)
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        options = ["-U", "postgres", "-D", str(self.folder), "--no-sync"]
        if password is None:
            self._run("initdb", "-A", "trust", *options)
        else:
            secret = folder / "password"
            secret.write_text(password)
            secret.chmod(0o644)
            self._run("initdb", "-A", "scram-sha-256", f"--pwfile={secret}", *options)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"postgresql://postgres@{self.address}/postgres"

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
            command, check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr, cwd="/", timeout=150
        )
