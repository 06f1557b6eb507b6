"""The driver suite on a running Redis, under a prefix of its own."""

import pytest
from redis.asyncio import Redis
from tests.names import unique_name

from lexigram.queue.backends.redis import CAPABILITIES, RedisDriver
from lexigram.testing.conformance.queue import DriverConformance

pytestmark = pytest.mark.service("redis")

BACKLOG = 250


class TestRedisDriver(DriverConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    def make(self, services):
        prefix = unique_name()
        url = f"redis://{services['redis'].address}/0"
        return lambda: RedisDriver(
            url, prefix=prefix, visibility_timeout=2.5, max_backlog=BACKLOG, dedup_window=60.0
        )

    @pytest.fixture
    async def subject(self, make, services):
        driver = make()
        await driver.connect()
        yield driver
        await driver.close()
        client = Redis.from_url(f"redis://{services['redis'].address}/0")
        async for key in client.scan_iter(f"{driver.prefix}:*", count=1000):
            await client.delete(key)
        await client.aclose()

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG
