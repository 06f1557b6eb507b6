"""Databases for the suites: a file of its own for each test, and one schema emptied before each."""

import pytest

from lexigram.sql import Database

TABLES = "lexigram_jobs, lexigram_job_edges, lexigram_job_progress, lexigram_job_submissions"


@pytest.fixture
async def sqlite(sqlite_url):
    async with Database(sqlite_url) as database:
        yield database


@pytest.fixture
async def postgres(postgres_url):
    async with Database(postgres_url) as database:
        await database.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
        yield database
