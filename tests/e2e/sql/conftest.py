"""Workers in processes of their own, and databases and servers for them."""

import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from tests.processes import Popen
from tests.servers import PostgresServer, postgres_binaries

from lexigram.testing.services import do_without

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture
def start():
    """Starts workers; those still running at the end of the test are killed."""
    started = []

    def run(work, url, number, count, *more):
        command = [sys.executable, str(WORKER), work, url, *map(str, (number, count, *more))]
        process = Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
    binaries = postgres_binaries()
    if binaries is None:
        do_without("PostgreSQL is not installed here, so the test cannot start its own server")
    made = []

    def start(password=None):
        made.append(PostgresServer(binaries, password=password))
        return made[-1].start()

    yield start
    for server in made:
        server.remove()
