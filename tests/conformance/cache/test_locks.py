"""One suite for the locks of every backend."""

import pytest

from lexigram import clock
from lexigram.cache import MemoryLocks, RedisLocks, SqlLocks
from lexigram.sql.locks import SqlResourceLocks
from lexigram.testing.conformance.locks import LockCapability, LockConformance
from lexigram.testing.fakes import FakeClock

ALL = set(LockCapability)


class TestMemory(LockConformance):
    capabilities = ALL - {LockCapability.OUTAGE}  # it cannot fail

    @pytest.fixture
    def time(self):
        with clock.use(FakeClock()) as fake:
            yield fake

    @pytest.fixture
    def advance(self, time):
        return time.advance

    @pytest.fixture
    def subject(self, time):
        return MemoryLocks()


class InDatabase(LockConformance):
    @pytest.fixture
    def subject(self, database):
        return SqlLocks(SqlResourceLocks(database), namespace="mine")

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
class TestRedis(LockConformance):
    capabilities = ALL

    @pytest.fixture
    def subject(self, redis, prefix):
        return RedisLocks(redis, prefix=prefix)

    @pytest.fixture
    def outage(self, redis, unreachable):
        return unreachable(redis)
