"""Consumers of the sql driver are killed, and its server is restarted; nothing is lost."""

import os

import pytest
from tests.e2e.queue.harness import Place, kill_consumers, restart_broker

from lexigram.queue.backends.sql import SqlDriver
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 2_000)
ONCE = 20_000 if FULL else 1_000  # a transaction for each


@pytest.fixture
async def url(migrated_url):
    async with Database(migrated_url) as database:
        await database.execute("CREATE TABLE effects (number integer NOT NULL)")
    return migrated_url


async def left_over(url):
    """What the bus still holds for the group, and its dead letters."""
    driver = SqlDriver(url)
    await driver.connect()
    try:
        return await driver.depth("chaos", "chaos"), await driver.list_dead("chaos", "chaos")
    finally:
        await driver.close()


async def test_every_message_is_handled_although_consumers_are_killed(url, tmp_path, rng):
    place = Place(driver="sql", url=url, folder=str(tmp_path), messages=MESSAGES)
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    _, dead = await left_over(url)
    assert list(dead) == []  # crashes used up no retries


@pytest.mark.promise
async def test_effects_happen_exactly_once_although_consumers_are_killed(url, tmp_path, rng):
    place = Place(driver="sql", url=url, folder=str(tmp_path), messages=ONCE, effects=url)
    await kill_consumers(place, kills=KILLS, rng=rng)
    async with Database(url) as database:
        found = await database.execute_query(
            "SELECT count(*) AS n, count(DISTINCT number) AS different FROM effects"
        )
    assert found.rows == [{"n": ONCE, "different": ONCE}]


async def test_no_confirmed_message_is_lost_when_postgres_is_restarted_under_load(
    start_postgres, tmp_path
):
    server = start_postgres()
    async with Database(server.url) as database:
        await upgrade(database)
    place = Place(driver="sql", url=server.url, folder=str(tmp_path), messages=MESSAGES)
    handled = await restart_broker(
        place, lambda: server.stop("immediate"), server.start, times=3 if FULL else 1
    )
    assert set(handled) == set(range(MESSAGES))
