"""What the kill tests share: databases, and workers that are gone at the end of a test."""

import subprocess
import sys

import pytest

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


@pytest.fixture
def url(empty_url):
    return empty_url


@pytest.fixture
async def database(url):
    async with Database(url) as opened:
        await upgrade(opened)
        await opened.execute("CREATE TABLE effects (run TEXT, node TEXT)")
        yield opened


@pytest.fixture
def start(request):
    """Starts ``WORKER`` of the test's module."""
    started = []

    def run(*arguments):
        process = subprocess.Popen(
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
