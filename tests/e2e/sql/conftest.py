"""Workers in processes of their own, and databases for them."""

import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(autouse=True)
def drivers_may_read_their_files(blocking_calls_fail):
    """asyncpg looks for ~/.pgpass and certificates when it makes a connection, not later."""
    for call in blocking_calls_fail.functions.values():
        call.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_arguments"})


@pytest.fixture
def start():
    """Starts workers; those still running at the end of the test are killed."""
    started = []

    def run(work, url, number, count):
        command = [sys.executable, str(WORKER), work, url, str(number), str(count)]
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
async def postgres_url(services):
    """A schema of this test with the tables of the workers."""
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    admin = await asyncpg.connect(server)
    await admin.execute(
        f"CREATE SCHEMA {schema}; SET search_path = {schema};"
        "CREATE TABLE accounts (id int PRIMARY KEY, n bigint);"
        "INSERT INTO accounts VALUES (1, 0), (2, 0);"
        "CREATE TABLE log (worker int, turn int, PRIMARY KEY (worker, turn))"
    )
    yield f"{server}?search_path={schema}"
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()
