"""Consumers of the rabbitmq driver are killed, and its server too; nothing is lost."""

import os
import signal

import pytest
from tests.e2e.queue.harness import Place, kill_consumers, restart_broker
from tests.e2e.queue.rabbitmq_server import rabbitmq_server  # noqa: F401 - a fixture
from tests.integration.queue.rabbitmq_place import clear
from tests.names import unique_name

from lexigram.queue.backends.rabbitmq import RabbitMQDriver

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.chaos,
    pytest.mark.service("rabbitmq"),
    pytest.mark.timeout(900),
]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 2_000)


@pytest.fixture
async def place(services, tmp_path):
    place = Place(
        driver="rabbitmq",
        url=f"amqp://guest:guest@{services['rabbitmq'].address}/",
        folder=str(tmp_path),
        messages=MESSAGES,
        options={"exchange": unique_name()},
    )
    yield place
    await clear(RabbitMQDriver(place.url, exchange=place.options["exchange"]))


async def dead_letters(place):
    driver = RabbitMQDriver(place.url, exchange=place.options["exchange"])
    await driver.connect()
    try:
        return await driver.list_dead(place.topic, "chaos")
    finally:
        await driver.close()


async def test_every_message_is_handled_although_consumers_are_killed(place, rng):
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    assert list(await dead_letters(place)) == []  # crashes used up no retries


@pytest.mark.parametrize(
    ("queue_type", "how"),
    [("classic", signal.SIGKILL), ("classic", signal.SIGTERM), ("quorum", signal.SIGKILL)],
)
async def test_no_confirmed_message_is_lost_when_the_server_is_restarted_under_load(
    queue_type,
    how,
    rabbitmq_server,  # noqa: F811 - the fixture
    tmp_path,
):
    place = Place(
        driver="rabbitmq",
        url=rabbitmq_server.url,
        folder=str(tmp_path),
        messages=MESSAGES,
        options={"exchange": f"{queue_type}-{how.name}", "queue_type": queue_type},
    )
    handled = await restart_broker(
        place,
        lambda: rabbitmq_server.stop(how),
        rabbitmq_server.start,
        evidence=rabbitmq_server.evidence,
        times=3 if FULL else 1,
        # RabbitMQ 3.10 writes the list of its quorum queues now and then only: killed half a second
        # after one was made, it comes back without it.
        settle=2.0 if queue_type == "quorum" else 0.0,
    )
    assert set(handled) == set(range(MESSAGES))
