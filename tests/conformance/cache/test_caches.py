"""One suite for every cache we ship: memory, SQLite, PostgreSQL, Redis."""

import pytest

from lexigram import clock
from lexigram.cache import Cache, MemoryCache, RedisCache, Shared, SqlCache
from lexigram.testing.conformance.cache import CacheCapability, CacheConformance
from lexigram.testing.fakes import FakeClock

ALL = set(CacheCapability)
OF_SEVERAL_PROCESSES = {CacheCapability.SHARING, CacheCapability.SHARED_LOADING}


class InMemory(CacheConformance):
    @pytest.fixture
    def time(self):
        with clock.use(FakeClock()) as fake:
            yield fake

    @pytest.fixture
    def advance(self, time):
        return time.advance


class TestMemory(InMemory):
    # It cannot fail, and nobody else uses it.
    capabilities = ALL - OF_SEVERAL_PROCESSES - {CacheCapability.OUTAGE}

    @pytest.fixture
    def subject(self, time):
        return Cache(MemoryCache())


class TestMemoryWithoutCopies(InMemory):
    capabilities = TestMemory.capabilities - {
        CacheCapability.COPIES,
        CacheCapability.REFUSAL,
        CacheCapability.LOADING,  # every caller has the same value
    }

    @pytest.fixture
    def subject(self, time):
        return Cache(MemoryCache(values=Shared()))


class TestMemoryBehindMetrics(InMemory):
    capabilities = TestMemory.capabilities

    @pytest.fixture
    def subject(self, time, fake_metrics):
        return Cache(MemoryCache(max_bytes=1_000_000), metrics=fake_metrics)


class InDatabase(CacheConformance):
    @pytest.fixture
    def subject(self, database):
        return Cache(SqlCache(database, namespace="mine"))

    @pytest.fixture
    def neighbour(self, database):
        return Cache(SqlCache(database, namespace="theirs"))

    @pytest.fixture
    def peer(self, database):
        return Cache(SqlCache(database, namespace="mine"))

    @pytest.fixture
    def outage(self, database, closed):
        return closed(database)


class TestSqlite(InDatabase):
    capabilities = ALL

    @pytest.fixture
    def database(self, sqlite):
        return sqlite


@pytest.mark.service("postgresql")
class TestPostgres(InDatabase):
    capabilities = ALL

    @pytest.fixture
    def database(self, postgres):
        return postgres


@pytest.mark.service("redis")
class TestRedis(CacheConformance):
    capabilities = ALL

    @pytest.fixture
    def subject(self, redis, prefix):
        return Cache(RedisCache(redis, prefix=f"{prefix}:mine"))

    @pytest.fixture
    def neighbour(self, redis, prefix):
        return Cache(RedisCache(redis, prefix=f"{prefix}:theirs"))

    @pytest.fixture
    def peer(self, redis, prefix):
        return Cache(RedisCache(redis, prefix=f"{prefix}:mine"))

    @pytest.fixture
    def outage(self, redis, unreachable):
        return unreachable(redis)
