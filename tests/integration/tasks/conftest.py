"""Databases: a file of its own for each test, and one schema emptied before each."""

import pytest

from lexigram.sql import Database
from lexigram.tasks import SqlTaskQueue

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


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def db(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def queue(db):
    return SqlTaskQueue(db, poll=0.1)
