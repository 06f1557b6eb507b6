"""Backends for the suites: each test has its own table space, schema or key prefix."""

from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite3
from sqlalchemy.schema import CreateIndex, CreateTable
from tests.names import unique_name

from lexigram.cache import RedisConnection
from lexigram.cache import tables as caches
from lexigram.sql import Database
from lexigram.sql.locks import tables as locks


async def create_tables(database):
    """As the migrations make them, which another test proves, in a hundredth of their time."""
    dialect = sqlite3.dialect() if database.dialect == "sqlite" else postgresql.dialect()

    def steps():
        for metadata in (locks.metadata, caches.metadata):
            for table in metadata.sorted_tables:
                yield str(CreateTable(table).compile(dialect=dialect)), ()
                for index in table.indexes:
                    yield str(CreateIndex(index).compile(dialect=dialect)), ()
        yield "INSERT INTO lexigram_lock_fence (id, last) VALUES (1, 0)", ()

    await database.run_steps(steps)


@pytest.fixture
async def sqlite(tmp_path):
    async with Database(f"sqlite:///{tmp_path}/cache.db") as database:
        await create_tables(database)
        yield database


@pytest.fixture
async def postgres(empty_schema):
    async with Database(empty_schema) as database:
        await create_tables(database)
        yield database


@pytest.fixture
def prefix():
    return unique_name()


@pytest.fixture
async def redis(services, prefix):
    url = f"redis://{services['redis'].address}/0"
    made = RedisConnection(url, timeout=10.0)
    yield made
    await made.aclose()
    async with Redis.from_url(url) as client:
        keys = [key async for key in client.scan_iter(match=f"{prefix}*", count=10_000)]
        if keys:
            await client.delete(*keys)


@pytest.fixture
def closed():
    """Makes outages of a database: it is closed, and opened again."""

    def of(database):
        @asynccontextmanager
        async def outage():
            await database.close()
            yield
            await database.connect()

        return outage

    return of


@pytest.fixture
def unreachable():
    """Makes outages of a Redis: its connections are cut, and lead to a closed port."""

    def of(connection):
        @asynccontextmanager
        async def outage():
            pool = connection.client.connection_pool
            port = pool.connection_kwargs["port"]
            await pool.disconnect()
            _lead_to(pool, 1)
            yield
            _lead_to(pool, port)

        return outage

    return of


def _lead_to(pool, port):
    pool.connection_kwargs["port"] = port
    for connection in [*pool._available_connections, *pool._in_use_connections]:
        connection.port = port
