"""A schema of its own for every test, and servers a test may stop."""

import pytest
from tests.e2e.queue.redis_server import RedisServer, need_redis_server

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


@pytest.fixture
def sql_url(empty_url):
    return empty_url


@pytest.fixture
async def database(sql_url):
    async with Database(sql_url) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
def redis_server(tmp_path):
    """A Redis of this test alone, which it may stop and start."""
    need_redis_server()
    server = RedisServer(tmp_path, "--appendonly", "no")
    server.start()
    yield server
    server.kill()
