"""Both databases, worker processes on them, and a seed that is printed."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade

PROCESS = Path(__file__).with_name("process.py")


@pytest.fixture(autouse=True)
def this_test_may_block(blocking_calls_fail):
    """It starts processes and reads their output; the library is watched elsewhere."""
    blocking_calls_fail.deactivate()


@pytest.fixture
def seed():
    number = int(os.environ.get("LEX_CHAOS_SEED", random.randrange(2**32)))
    print(f"LEX_CHAOS_SEED={number}")
    return random.Random(number)


@pytest.fixture
def url(empty_url):
    return empty_url


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        await upgrade(database)
        yield database


@pytest.fixture
def start(url):
    """Start a worker process; all are killed at the end."""
    processes = []

    def started():
        process = subprocess.Popen(
            [sys.executable, PROCESS, url], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
