"""A relay is killed between the broker's confirm and the delete: duplicates, never a loss."""

import dataclasses
import signal
from collections import Counter

import anyio
import pytest
from tests.e2e.queue.harness import Crowd, Place

from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.sql import SqlDriver
from lexigram.queue.outbox.store import SqlOutboxStore
from lexigram.sql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(300)]

MESSAGES = 500


@pytest.mark.promise
async def test_what_a_killed_relay_published_comes_again_with_the_same_id(
    sqlite_url, tmp_path, rng
):
    source, target = sqlite_url, f"sqlite:///{tmp_path}/broker.db"
    async with Database(source) as database:
        messages = [
            BusMessage(id=f"m{number}", topic="chaos", payload=b"1") for number in range(MESSAGES)
        ]
        await SqlOutboxStore(database, "chaos").append_batch(messages)
    driver = SqlDriver(target)
    await driver.connect()
    await driver.declare("chaos", "g")
    place = Place(driver="sql", url=target, folder=str(tmp_path), messages=MESSAGES, effects=source)
    for _ in range(3):
        dying = dataclasses.replace(place, dies_after=rng.randrange(1, 200))
        with Crowd(dying) as crowd:
            assert await ended(crowd.relay()) == -signal.SIGKILL, await crowd.story()
    with Crowd(place) as crowd:
        assert await ended(crowd.relay()) == 0, await crowd.story()
    got = Counter()
    while batch := await driver.receive("chaos", "g", limit=100, wait=0):
        got.update(one.message.id for one in batch)
        await driver.ack_many(batch)
    await driver.close()
    assert set(got) == {message.id for message in messages}
    assert max(got.values()) >= 2  # the kill came between publish and delete


async def ended(process):
    return await anyio.to_thread.run_sync(lambda: process.wait(timeout=60))
