"""A process that lost a lease may receive the message again while its own handler still runs."""

import anyio
import pytest

from lexigram.contracts.queue import BusMessage
from lexigram.queue import ConsumerOptions, RetryPolicy
from lexigram.queue.backends.memory import MemoryBroker
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

LEASE = 0.05


class Slow:
    """A handler that waits for ``gate``; counts how many run at once."""

    def __init__(self, error=None):
        self.gate, self.error = anyio.Event(), error
        self.begun = self.running = self.most = 0

    async def __call__(self, message):
        self.begun, self.running = self.begun + 1, self.running + 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            if self.error is not None and self.begun == 1:
                raise self.error
        finally:
            self.running -= 1


@pytest.fixture
def late(open_queue, time, monkeypatch):
    """Makes a consumer whose message was received again; ``lost`` is set once that is known."""

    async def make(handler, **consumer):
        broker, renewing, lost = MemoryBroker(), anyio.Event(), anyio.Event()
        queue = await open_queue(
            broker,
            visibility_timeout=LEASE,
            drain_timeout=0.02,
            retry=RetryPolicy(base=0.01, cap=0.01),
        )
        extend = queue.driver.extend_many

        async def extend_late(deliveries, seconds):
            await renewing.wait()
            found = await extend(deliveries, seconds)
            if found:
                lost.set()
            return found

        monkeypatch.setattr(queue.driver, "extend_many", extend_late)
        subscription = await queue.consume(ConsumerOptions(topics=("t",), **consumer), handler)
        await queue.publish("t", BusMessage(payload=1))
        await wait_until(lambda: handler.begun == 1)
        time.advance(LEASE)
        await wait_until(lambda: subscription.in_flight == 2)
        renewing.set()
        with anyio.fail_after(60):
            await lost.wait()
        return subscription, broker.groups["t", "default"]

    return make


@pytest.mark.parametrize("consumer", [{}, {"batch_size": 5}, {"max_in_flight_per_key": 2}])
async def test_a_message_received_again_is_acknowledged_by_the_handler_that_runs(late, consumer):
    handler = Slow()
    subscription, group = await late(handler, **consumer)
    handler.gate.set()
    await wait_until(lambda: group.count == 0)
    await wait_until(lambda: subscription.in_flight == 0)
    assert (handler.begun, handler.most) == (1, 1)


async def test_after_a_failure_the_message_received_again_is_handled(late):
    handler = Slow(ValueError("boom"))
    _, group = await late(handler)
    handler.gate.set()
    await wait_until(lambda: group.count == 0)
    assert (handler.begun, handler.most) == (2, 1)


async def test_a_stop_hands_back_the_message_received_again(late):
    handler = Slow()
    subscription, group = await late(handler)
    await subscription.stop()
    assert (handler.begun, handler.running) == (1, 0)
    assert (group.count, len(group.leased)) == (1, 0)


async def test_two_messages_of_one_id_are_both_handled(queue):
    handler = Slow()
    handler.gate.set()
    await queue.subscribe("t", handler)
    await queue.publish_many("t", [BusMessage(id="same", payload=number) for number in (1, 2)])
    await wait_until(lambda: handler.begun == 2)
    await wait_until(lambda: queue.driver.broker.groups["t", "default"].count == 0)
