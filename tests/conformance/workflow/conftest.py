"""Databases for the suites: each test has its own file or schema."""

import os
import secrets

import pytest
from redis.asyncio import Redis

from lexigram.cache import Cache, MemoryCache, RedisCache, RedisConnection, SqlCache
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


@pytest.fixture
async def sqlite(tmp_path):
    async with Database(f"sqlite:///{tmp_path}/workflow.db") as database:
        await upgrade(database)
        yield database


@pytest.fixture
async def postgres(empty_schema):
    async with Database(empty_schema) as database:
        await upgrade(database)
        yield database


@pytest.fixture
async def redis(services):
    """A cache in Redis, under a prefix of its own."""
    url = f"redis://{services['redis'].address}/0"
    prefix = f"lexigram-test:{os.getpid()}:{secrets.token_hex(4)}"
    connection = RedisConnection(url)
    yield Cache(RedisCache(connection, prefix=prefix))
    await connection.aclose()
    async with Redis.from_url(url) as client:
        keys = [key async for key in client.scan_iter(match=f"{prefix}*", count=10_000)]
        if keys:
            await client.delete(*keys)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.service("postgresql")),
        pytest.param("redis", marks=pytest.mark.service("redis")),
    ]
)
def cache(request):
    """Every cache we ship."""
    if request.param == "memory":
        return MemoryCache()
    made = request.getfixturevalue(request.param)
    return made if request.param == "redis" else Cache(SqlCache(made))
