"""Writer processes on one folder, and a seed that is printed."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import Popen

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
def folder(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def start(folder, seed):
    """Start a writer; its first line says that it is ready. All are killed at the end."""
    processes = []

    def start(rounds, *url):
        own = str(seed.random())
        command = [sys.executable, str(PROCESS), str(folder), own, str(rounds), *url]
        process = Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
