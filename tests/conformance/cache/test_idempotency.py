"""One suite for the idempotency stores of every backend."""

import pytest

from lexigram import clock
from lexigram.cache import MemoryIdempotencyStore, RedisIdempotencyStore, SqlIdempotencyStore
from lexigram.testing.conformance.idempotency import IdempotencyCapability, IdempotencyConformance
from lexigram.testing.fakes import FakeClock

ALL = set(IdempotencyCapability)


class TestMemory(IdempotencyConformance):
    capabilities = ALL - {IdempotencyCapability.OUTAGE}  # it cannot fail

    @pytest.fixture
    def time(self):
        with clock.use(FakeClock()) as fake:
            yield fake

    @pytest.fixture
    def advance(self, time):
        return time.advance

    @pytest.fixture
    def subject(self, time):
        return MemoryIdempotencyStore()


class InDatabase(IdempotencyConformance):
    @pytest.fixture
    def subject(self, database):
        return SqlIdempotencyStore(database, namespace="mine")

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
class TestRedis(IdempotencyConformance):
    capabilities = ALL

    @pytest.fixture
    def subject(self, redis, prefix):
        return RedisIdempotencyStore(redis, prefix=prefix)

    @pytest.fixture
    def outage(self, redis, unreachable):
        return unreachable(redis)
