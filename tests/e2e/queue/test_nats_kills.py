"""Consumers of the nats driver are killed, and its server too; nothing is lost."""

import json
import os
import signal

import anyio
import nats
import pytest
from tests.e2e.queue.harness import Place, kill_consumers, restart_broker
from tests.e2e.queue.nats_server import nats_server  # noqa: F401 - a fixture
from tests.names import unique_name

from lexigram.queue.backends.nats import NATSDriver

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.chaos,
    pytest.mark.service("nats"),
    pytest.mark.timeout(900),
]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 2_000)


@pytest.fixture
async def shared(services):
    """The running server, and a stream prefix on it that is gone afterwards."""
    url, stream = f"nats://{services['nats'].address}", unique_name()
    yield url, stream
    client = await nats.connect(url)
    for name in (stream, f"{stream}-records", f"{stream}-dead"):
        answer = await client.request(f"$JS.API.STREAM.DELETE.{name}")
        assert json.loads(answer.data)["success"]
    await client.close()


async def dead_letters(url, stream):
    """What was set aside."""
    driver = NATSDriver(url, stream=stream)
    await driver.connect()
    try:
        return await driver.list_dead("chaos", "chaos")
    finally:
        await driver.close()


async def test_every_message_is_handled_although_consumers_are_killed(shared, tmp_path, rng):
    url, stream = shared
    place = Place(
        driver="nats",
        url=url,
        folder=str(tmp_path),
        messages=MESSAGES,
        options={"stream": stream},
    )
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    assert list(await dead_letters(url, stream)) == []  # crashes used up no retries


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
async def test_no_confirmed_message_is_lost_when_the_server_is_restarted_under_load(
    how,
    nats_server,  # noqa: F811 - the fixture
    tmp_path,
):
    server = await anyio.to_thread.run_sync(nats_server)
    place = Place(driver="nats", url=server.url, folder=str(tmp_path), messages=MESSAGES)
    handled = await restart_broker(
        place, lambda: server.stop(how), server.start, times=3 if FULL else 1
    )
    assert set(handled) == set(range(MESSAGES))
