"""A schema of its own for every test, on the PostgreSQL server of this machine."""

import pytest

from lexigram.sql import Database, SqlConfig


@pytest.fixture
async def make(empty_schema):
    """Makes SqlConfig objects whose tables live in a schema of this test."""
    async with Database(empty_schema) as database:
        await database.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    return lambda **settings: SqlConfig(url=settings.pop("url", empty_schema), **settings)


@pytest.fixture
async def db(make):
    async with Database(make()) as database:
        yield database
