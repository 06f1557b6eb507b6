"""Queues for tests: in memory, with a clock the test moves, closed afterwards."""

from contextlib import AsyncExitStack

import pytest

from lexigram import clock
from lexigram.queue import BusOptions, BusQueue
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.testing.fakes import FakeClock


@pytest.fixture
def time():
    """The time of the process; ``time.advance(seconds)`` lets it pass."""
    with clock.use(FakeClock()) as fake:
        yield fake


@pytest.fixture
async def open_queue():
    """Makes connected queues; several may share a broker, as several processes do."""
    async with AsyncExitStack() as stack:

        async def make(
            broker=None, *, visibility_timeout=30.0, publish_timeout=30.0, driver=None, **options
        ):
            driver = driver or MemoryDriver(
                broker or MemoryBroker(),
                visibility_timeout=visibility_timeout,
                publish_timeout=publish_timeout,
            )
            queue = BusQueue(driver, options=BusOptions(**options))
            stack.push_async_callback(queue.close)
            await queue.connect()
            return queue

        yield make


@pytest.fixture
async def queue(open_queue):
    return await open_queue()
