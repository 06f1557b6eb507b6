"""A schema of its own for every test, and servers a test may stop."""

import pytest
from tests.e2e.queue.redis_server import RedisServer, need_redis_server

from lexigram.sql import Database


@pytest.fixture
async def database(migrated_url):
    async with Database(migrated_url) as opened:
        yield opened


@pytest.fixture
def redis_server(tmp_path):
    """A Redis of this test alone, which it may stop and start."""
    need_redis_server()
    server = RedisServer(tmp_path, "--appendonly", "no")
    server.start()
    yield server
    server.kill()
