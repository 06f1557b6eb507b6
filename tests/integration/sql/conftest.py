"""A schema of its own for every test, on the PostgreSQL server of this machine."""

import os
import secrets

import asyncpg
import pytest

from lexigram.sql import Database, SqlConfig


@pytest.fixture
async def make(services):
    """Makes SqlConfig objects whose tables live in a schema of this test."""
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    admin = await asyncpg.connect(server)
    await admin.execute(f"CREATE SCHEMA {schema}")
    await admin.execute(f"CREATE TABLE {schema}.t (id bigint PRIMARY KEY, name text)")
    options = f"{server}?search_path={schema}"
    yield lambda **settings: SqlConfig(url=settings.pop("url", options), **settings)
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


@pytest.fixture
async def db(make):
    async with Database(make()) as database:
        yield database
