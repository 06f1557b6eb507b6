"""A schema of its own for every test, and servers a test may stop."""

import os
import secrets

import asyncpg
import pytest
from tests.e2e.queue.redis_server import RedisServer, need_redis_server

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def sql_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/cache.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def postgres_url(services):
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    admin = await asyncpg.connect(server)
    await admin.execute(f"CREATE SCHEMA {schema}")
    yield f"{server}?search_path={schema}"
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


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
