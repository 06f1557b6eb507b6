"""Consumers of the azure_servicebus driver are killed, on a double of Service Bus; nothing is lost."""

import os

import pytest
from tests.doubles.servicebus.places import driver_on
from tests.doubles.servicebus.server import ServiceBusDouble
from tests.e2e.queue.harness import Crowd, Place, kill_consumers

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(600)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 5_000) if FULL else (3, 300)


@pytest.fixture
def double():
    with ServiceBusDouble() as running:
        yield running


def place_on(double, folder, **more):
    return Place(
        driver="azure_servicebus",
        url=double.connection_str,
        folder=str(folder),
        options={"management_str": double.management_str},
        **more,
    )


async def dead_letters(double):
    settings = {"connection_str": double.connection_str, "management_str": double.management_str}
    driver = driver_on(settings, "lexigram")
    await driver.connect()
    try:
        return await driver.list_dead("chaos", "chaos")
    finally:
        await driver.close()


async def test_every_message_is_handled_although_consumers_are_killed(double, tmp_path, rng):
    place = place_on(double, tmp_path, messages=MESSAGES)
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    assert list(await dead_letters(double)) == []  # crashes used up no retries


async def test_a_handler_longer_than_the_lock_keeps_its_message_and_loses_it_when_killed(
    double, tmp_path
):
    # Handlers sleep up to twice this: three locks.
    place = place_on(double, tmp_path, messages=4, work_seconds=3.0, concurrency=4)
    with Crowd(place) as crowd:
        crowd.consume(2)
        await crowd.until(lambda: len(list(crowd.folder.glob("handled.*"))) == 2)
        crowd.publish()
        await crowd.until(lambda: len(crowd.handled()) == 4)
        assert set(crowd.handled().values()) == {1}  # no lock was lost

    again = tmp_path / "killed"
    again.mkdir()
    place = place_on(double, again, messages=1, topic="killed", work_seconds=0.5, deadly=1)
    with Crowd(place) as crowd:
        crowd.consume()
        await crowd.until(lambda: any(crowd.folder.glob("handled.*")))
        crowd.publish()
        await crowd.until(lambda: crowd.consumers[0].poll() is not None)  # died in the handler
        crowd.consume()
        await crowd.until(lambda: len(crowd.handled()) == 1)
        assert (again / "survived").read_text() == "0"  # redelivered, and no retry used
