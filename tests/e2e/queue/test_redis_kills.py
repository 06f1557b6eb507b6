"""Consumers of the redis driver are killed, and its server is restarted; nothing is lost."""

import os

import pytest
from tests.e2e.queue.harness import Place, kill_consumers, restart_broker
from tests.e2e.queue.redis_server import RedisServer, need_redis_server
from tests.names import unique_name
from tests.redis_keys import delete_keys

from lexigram.queue.backends.redis import RedisDriver

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.service("redis"),
]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 2_000)


@pytest.fixture
async def place(services, tmp_path):
    url, prefix = (
        f"redis://{services['redis'].address}/0",
        unique_name(),
    )
    yield Place(
        driver="redis",
        url=url,
        folder=str(tmp_path),
        messages=MESSAGES,
        options={"prefix": prefix},
    )
    await delete_keys(url, f"{prefix}:*")


async def test_every_message_is_handled_although_consumers_are_killed(place, rng):
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    driver = RedisDriver(place.url, prefix=place.options["prefix"])
    await driver.connect()
    assert list(await driver.list_dead("chaos", "chaos")) == []  # crashes used up no retries
    await driver.close()


async def test_no_confirmed_message_is_lost_when_redis_is_killed_under_load(tmp_path):
    """With appendfsync always; with everysec Redis itself may lose the last second."""
    need_redis_server()
    server = RedisServer(tmp_path / "data")
    server.start()
    try:
        place = Place(driver="redis", url=server.url, folder=str(tmp_path), messages=MESSAGES)
        handled = await restart_broker(place, server.kill, server.start, times=3 if FULL else 1)
    finally:
        server.kill()
    assert set(handled) == set(range(MESSAGES))
