"""The relay of an outbox whose store cannot be read."""

import anyio
import pytest

from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.queue.outbox import outbox
from lexigram.queue.outbox.outbox import OutboxRelay
from lexigram.sql import Database
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


class Unreadable:
    """A store of an outbox on a database that answers, without the tables."""

    queue, channel = "events", "outbox"

    def __init__(self, database):
        self.database = database

    async def claim(self, *_, **__):
        raise DatabaseError("no such table")


async def test_a_store_that_cannot_be_read_is_asked_less_and_less(monkeypatch):
    tries = []

    class Recorded:
        def delay(self, failures):
            tries.append(failures)
            return 0.0

    monkeypatch.setattr(outbox, "BROKER_BACKOFF", Recorded())
    async with Database("sqlite://") as database:
        relay = OutboxRelay(Unreadable(database), None)
        await relay.start()
        await wait_until(lambda: len(tries) >= 4)
        with anyio.fail_after(5):  # of the 10 that a batch under way gets
            await relay.stop()
    assert tries[:4] == [1, 2, 3, 4]
