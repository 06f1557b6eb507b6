"""Databases for the suites: a file of its own for each test, and one schema emptied before each."""

import pytest

from lexigram.sql import Database

PARTS = (
    "plans",
    "plan_steps",
    "groups",
    "runs",
    "history",
    "events",
    "checkins",
    "lifecycle",
    "duties",
)
TABLES = ", ".join([*(f"lexigram_durable_{part}" for part in PARTS), "lexigram_locks"])


@pytest.fixture
async def sqlite(sqlite_url):
    async with Database(sqlite_url) as database:
        yield database


@pytest.fixture
async def postgres(postgres_url):
    async with Database(postgres_url) as database:
        await database.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
        yield database
