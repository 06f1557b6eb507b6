"""Drivers and states for the suites of jobs over a broker, each test under names of its own."""

import pytest
from redis.asyncio import Redis
from tests.integration.queue.rabbitmq_place import own_vhost
from tests.names import unique_name

from lexigram.queue.tasks import RedisJobs


@pytest.fixture
def prefix():
    return unique_name()


@pytest.fixture
def redis_url(services):
    return f"redis://{services['redis'].address}/0"


@pytest.fixture
async def clean_redis(redis_url, prefix):
    """Removes what a test leaves under its prefix."""
    yield
    async with Redis.from_url(redis_url) as client:
        async for key in client.scan_iter(f"{prefix}*", count=1000):
            await client.delete(key)


@pytest.fixture
async def make_redis_jobs(redis_url, prefix, clean_redis):
    made = []

    def make():
        made.append(RedisJobs(redis_url, prefix=prefix + ":{jobs}", poll=0.2))
        return made[-1]

    yield make
    for jobs in made:
        await jobs.aclose()


@pytest.fixture(scope="session")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url
