"""Delete what a test wrote into Redis, also what a killed process had still under way."""

import anyio
from redis.asyncio import Redis


async def delete_keys(url, pattern):
    """Delete keys until none is found twice: the server may run a command of a dead client late."""
    async with Redis.from_url(url) as client:
        empty = 0
        while empty < 2:
            keys = [key async for key in client.scan_iter(match=pattern, count=10_000)]
            empty = 0 if keys else empty + 1
            if keys:
                await client.delete(*keys)
            else:
                await anyio.sleep(0.02)
