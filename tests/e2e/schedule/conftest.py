"""Processes that fire schedules, and databases for them."""

import os
import random
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import Popen

from lexigram.sql import Database

PROCESS = Path(__file__).with_name("process.py")
TABLES = ("CREATE TABLE made (tick TEXT)", "CREATE TABLE called (process INTEGER)")


@pytest.fixture
def start(url, tmp_path):
    """Starts processes; those still running at the end of the test are killed."""
    started = []

    def run(work):
        # Files, not pipes: nobody reads while they run, and a full pipe would stop them.
        log = (tmp_path / f"{len(started)}.log").open("wb")
        process = Popen(
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
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        for statement in TABLES:
            await database.execute(statement)
        yield database
