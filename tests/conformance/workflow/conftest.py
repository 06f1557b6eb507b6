"""Caches for the suites: in memory, in both databases and in Redis."""

import pytest
from redis.asyncio import Redis
from tests.names import unique_name

from lexigram.cache import Cache, MemoryCache, RedisCache, RedisConnection, SqlCache


@pytest.fixture
async def redis(services):
    """A cache in Redis, under a prefix of its own."""
    url = f"redis://{services['redis'].address}/0"
    prefix = unique_name()
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
