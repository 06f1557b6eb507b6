"""What the kill tests share: databases, and workers that are gone at the end of a test."""

import subprocess
import sys

import pytest
from tests.processes import Popen

from lexigram.sql import Database


@pytest.fixture
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def database(url):
    async with Database(url) as opened:
        number = "BIGSERIAL" if opened.dialect == "postgresql" else "INTEGER"
        await opened.execute(
            f"CREATE TABLE effects (number {number} PRIMARY KEY, run TEXT, node TEXT)"
        )
        yield opened


@pytest.fixture
def start(request):
    """Starts ``WORKER`` of the test's module."""
    started = []

    def run(*arguments):
        process = Popen(
            [sys.executable, str(request.module.WORKER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
