"""The queue suite on SQLite and PostgreSQL."""

import pytest

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.sql import SqlQueue
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


class SqlSuite(QueueConformance):
    """Two queue objects on one database are as good as two processes."""

    capabilities = frozenset(QueueCapability)

    @pytest.fixture
    async def subject(self, url):
        queue = SqlQueue(url, options=QUICK)
        await queue.connect()
        yield queue
        await queue.close()

    @pytest.fixture
    def neighbour(self, url):
        return SqlQueue(url, options=QUICK)


class TestSqliteQueue(SqlSuite):
    @pytest.fixture
    def url(self, sqlite_url):
        return sqlite_url


@pytest.mark.service("postgresql")
class TestPostgresQueue(SqlSuite):
    @pytest.fixture
    def url(self, postgres_url):
        return postgres_url
