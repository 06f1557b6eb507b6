"""After the event loop was blocked past a lease, what others have by now is not begun."""

import logging
from time import monotonic

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.queue import BusMessage, QueueError
from lexigram.queue import ConsumerOptions, RateLimit
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.queue.runtime.leases import LeaseKeeper
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeMetrics

pytestmark = pytest.mark.anyio

LEASE = 0.1
MESSAGES = 10


@pytest.fixture
def blocked(open_queue, time):
    """A consumer whose first handler blocks the loop for three leases; others take the rest."""

    async def make(take_over, driver=MemoryDriver, **consumer):
        broker, handled, metrics = MemoryBroker(), [], FakeMetrics()
        queue = await open_queue(driver=driver(broker, visibility_timeout=LEASE))
        queue.set_metrics(metrics)
        other = MemoryDriver(broker, visibility_timeout=1000.0)
        await other.connect()
        batched = consumer.get("batch_size", 1) > 1

        async def handle(message):
            handled.append([one.id for one in message] if batched else message.id)
            if len(handled) == 1:
                block(3 * LEASE)
                time.advance(3 * LEASE)
                take_over(broker.groups["t", "default"], other)

        await queue.driver.declare("t", "default")
        await queue.publish_many("t", [BusMessage(id=str(n), payload=n) for n in range(MESSAGES)])
        subscription = await queue.consume(
            ConsumerOptions(topics=("t",), concurrency=1, prefetch=MESSAGES, **consumer), handle
        )
        return subscription, broker.groups["t", "default"], handled, metrics

    return make


def block(seconds):
    until = monotonic() + seconds
    while monotonic() < until:
        pass


def take_all(group, other):
    assert len(group.take(MESSAGES, other)) == MESSAGES


def take_none(group, other):
    """Its leases are over, and nobody came."""


CONSUMERS = {
    "single": {},
    "batches": {"batch_size": 2},
    "limited": {"rate_limit": RateLimit(rate=1e6)},
    "by key": {"max_in_flight_per_key": 1},
}


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
async def test_buffered_messages_that_others_have_are_given_up(blocked, caplog, consumer):
    with caplog.at_level(logging.WARNING, "lexigram.queue"):
        subscription, group, handled, metrics = await blocked(take_all, **consumer)
        await wait_until(lambda: handled and subscription.in_flight == 0)
    first = ["0", "1"] if "batch_size" in consumer else "0"
    assert handled == [first]
    assert len(group.leased) == MESSAGES  # nothing of what others have was settled
    size = 2 if "batch_size" in consumer else 1
    assert metrics.counted("queue.lease_lost") == MESSAGES - size
    lost = [record for record in caplog.records if "leases lost" in record.getMessage()]
    assert len(lost) == 1


async def test_buffered_messages_that_nobody_took_are_handled_once(blocked):
    _, group, handled, metrics = await blocked(take_none)
    await wait_until(lambda: group.count == 0)
    assert handled == [str(number) for number in range(MESSAGES)]
    assert metrics.counted("queue.lease_lost") == 0


class Silent(MemoryDriver):
    """A broker that answers no question about leases."""

    async def extend_many(self, deliveries, seconds):
        raise QueueError("no answer", backend="memory")


async def test_without_an_answer_all_that_is_buffered_is_given_up(blocked):
    subscription, _, handled, _ = await blocked(take_all, driver=Silent)
    await wait_until(lambda: handled and subscription.in_flight == 0)
    assert handled == ["0"]


async def test_workers_that_find_leases_uncertain_at_once_ask_the_broker_once():
    """Eight workers that each asked for all leases kept a busy broker from extending any."""
    asked = []

    class Driver(MemoryDriver):
        async def extend_many(self, deliveries, seconds):
            asked.append(len(deliveries))
            await anyio.lowlevel.checkpoint()
            return []

    held = [object()]
    keeper = LeaseKeeper(Driver(MemoryBroker()), None, lambda: held, list)
    keeper.safe_until = monotonic() - 1
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(keeper.renew)
    assert asked == [1]
