"""The queue suite on a running Redis, under a prefix of its own."""

import pytest
from redis.asyncio import Redis
from tests.names import unique_name

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.redis import RedisQueue
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

pytestmark = pytest.mark.service("redis")

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


class TestRedisQueue(QueueConformance):
    capabilities = frozenset(QueueCapability)

    @pytest.fixture
    def make(self, services):
        prefix = unique_name()
        url = f"redis://{services['redis'].address}/0"
        return lambda: RedisQueue(url, prefix=prefix, visibility_timeout=2.5, options=QUICK)

    @pytest.fixture
    async def subject(self, make, services):
        queue = make()
        await queue.connect()
        yield queue
        await queue.close()
        client = Redis.from_url(f"redis://{services['redis'].address}/0")
        async for key in client.scan_iter(f"{queue.driver.prefix}:*", count=1000):
            await client.delete(key)
        await client.aclose()

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()
