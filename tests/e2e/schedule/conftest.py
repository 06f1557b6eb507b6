"""Processes that fire schedules, and databases for them."""

import os
import random
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade

PROCESS = Path(__file__).with_name("process.py")
TABLES = ("CREATE TABLE made (tick TEXT)", "CREATE TABLE called (process INTEGER)")


@pytest.fixture
def start(url, tmp_path):
    """Starts processes; those still running at the end of the test are killed."""
    started = []

    def run(work):
        # Files, not pipes: nobody reads while they run, and a full pipe would stop them.
        log = (tmp_path / f"{len(started)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, str(PROCESS), url, work], stdout=log, stderr=subprocess.STDOUT
        )
        started.append((process, log))
        return process

    def died():
        """What a process that nobody killed left behind."""
        for process, log in started:
            if process.poll() not in {None, -signal.SIGKILL}:
                return Path(log.name).read_text()
        return None

    run.died = died
    yield run
    for process, log in started:
        process.kill()
        process.wait()
        log.close()


@pytest.fixture
def seed():
    """Of what is random in a test; printed, so that a red run can be repeated."""
    number = int(os.environ.get("LEX_CHAOS_SEED", secrets.randbits(32)))
    print("LEX_CHAOS_SEED", number)
    return random.Random(number)


@pytest.fixture
async def postgres_url(services):
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    admin = await asyncpg.connect(server)
    await admin.execute(f"CREATE SCHEMA {schema}")
    yield f"{server}?search_path={schema}"
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        await upgrade(database)
        for statement in TABLES:
            await database.execute(statement)
        yield database
