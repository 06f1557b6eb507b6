"""Databases for the suites: a file of its own for each test, and one schema emptied before each."""

import pytest

from lexigram.sql import Database

TABLES = "groups messages deliveries seen outbox inbox"


@pytest.fixture
async def empty_postgres_url(postgres_url):
    async with Database(postgres_url) as database:
        names = ", ".join(f"lexigram_bus_{name}" for name in TABLES.split())
        await database.execute(f"TRUNCATE {names}")
    return postgres_url
