"""Both databases, worker processes on them, and a seed that is printed."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import Popen

from lexigram.sql import Database

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
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        yield database


@pytest.fixture
def start(url):
    """Start a worker process; all are killed at the end."""
    processes = []

    def started(lease=2.0):
        process = Popen(
            [sys.executable, PROCESS, url, str(lease)], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
