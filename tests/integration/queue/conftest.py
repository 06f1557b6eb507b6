"""Databases for the tests: a file of its own for each test, and one schema emptied before each."""

import shutil

import pytest

from lexigram.sql import Database


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def database_url(request, tmp_path):
    """A file of its own for each test, or the schema of this run."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "bus.db")
    return f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture
async def database(database_url):
    """Open, with empty tables of the bus and one of an application."""
    async with Database(database_url) as opened:
        await opened.execute("CREATE TABLE IF NOT EXISTS effects (number integer NOT NULL)")
        yield opened
