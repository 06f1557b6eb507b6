"""The driver suite on SQLite and PostgreSQL."""

import pytest

from lexigram.queue.backends.sql import CAPABILITIES, SqlDriver
from lexigram.testing.conformance.queue import DriverConformance

BACKLOG = 250


def member(url):
    return SqlDriver(url, visibility_timeout=2.5, max_backlog=BACKLOG, dedup_window=60.0)


async def connected(url):
    driver = member(url)
    await driver.connect()
    yield driver
    await driver.close()


class SqlSuite(DriverConformance):
    """What both databases share: the second member is another process's."""

    capabilities = CAPABILITIES

    @pytest.fixture
    def neighbour(self, url):
        return member(url)

    @pytest.fixture
    def max_backlog(self):
        return BACKLOG


class TestSqliteDriver(SqlSuite):
    @pytest.fixture
    def url(self, sqlite_url):
        return sqlite_url

    @pytest.fixture
    async def subject(self, url):
        async for driver in connected(url):
            yield driver


@pytest.mark.service("postgresql")
class TestPostgresDriver(SqlSuite):
    @pytest.fixture
    def url(self, postgres_url):
        return postgres_url

    @pytest.fixture
    async def subject(self, url):
        async for driver in connected(url):
            yield driver
