from lexigram.contracts.core.result import Ok
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.cache import CacheCapability, CacheConformance
from lexigram.testing.fakes import FakeCache

# Backends do not load; ``Cache`` does, for any of them: tests/conformance/cache.
LOADING = {CacheCapability.LOADING, CacheCapability.SHARED_LOADING}

TestFakeCache = conformance_suite(
    CacheConformance,
    FakeCache,
    capabilities=set(CacheCapability) - {CacheCapability.SHARING} - LOADING,
    advance=lambda cache: cache.clock.advance,
    outage=lambda cache: cache.outage,
)


class PrefixedCache:
    """A part of another cache: what an adapter on a shared server does."""

    def __init__(self, backend: FakeCache, prefix: str) -> None:
        self.backend = backend
        self.prefix = prefix

    async def get(self, key):
        return await self.backend.get(self.prefix + key)

    async def set(self, key, value, ttl=None):
        return await self.backend.set(self.prefix + key, value, ttl)

    async def delete(self, key):
        return await self.backend.delete(self.prefix + key)

    async def delete_many(self, keys):
        return await self.backend.delete_many(self.prefix + key for key in keys)

    async def delete_pattern(self, pattern):
        return await self.backend.delete_pattern(self.prefix + pattern)

    async def exists(self, key):
        return await self.backend.exists(self.prefix + key)

    async def clear(self):
        return (await self.delete_pattern("*")).map_sync(lambda _: None)

    async def get_many(self, keys):
        found = await self.backend.get_many([self.prefix + key for key in keys])
        return found.map_sync(
            lambda items: {key.removeprefix(self.prefix): value for key, value in items.items()}
        )

    async def set_many(self, items, ttl=None):
        for key, value in items.items():
            stored = await self.set(key, value, ttl)
            if stored.is_err():
                return stored
        return Ok(None)

    async def health_check(self, timeout=5.0):
        return await self.backend.health_check(timeout)


TestPrefixedCache = conformance_suite(
    CacheConformance,
    lambda: PrefixedCache(FakeCache(), "mine:"),
    # The cache behind it sees, and names, other keys.
    capabilities=set(CacheCapability) - {CacheCapability.REFUSAL, CacheCapability.KEYS} - LOADING,
    advance=lambda cache: cache.backend.clock.advance,
    neighbour=lambda cache: PrefixedCache(cache.backend, "theirs:"),
    outage=lambda cache: cache.backend.outage,
)
