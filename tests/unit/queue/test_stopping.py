"""A stop finishes or hands back; nothing is acknowledged that was not handled."""

import anyio
import pytest

from lexigram.contracts.queue import BusMessage
from lexigram.hooks import HookRegistry
from lexigram.queue import ConsumerOptions, MessageConsumer, QueueDrainedHook
from lexigram.queue.backends.memory import MemoryBroker
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


async def test_a_stop_under_load_loses_nothing_and_acknowledges_only_what_was_handled(open_queue):
    broker, handled = MemoryBroker(), []
    queue = await open_queue(broker, drain_timeout=5.0)

    async def handle(message):
        await anyio.sleep(0.001)
        handled.append(message.payload)

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    for number in range(200):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: len(handled) > 20)
    await subscription.stop()
    before = list(handled)
    group = broker.groups["t", "default"]
    assert group.count == 200 - len(before)
    assert not group.leased
    await anyio.sleep(0.02)
    assert handled == before
    await queue.subscribe("t", handle)
    await wait_until(lambda: group.count == 0)
    assert sorted(handled) == list(range(200))


async def test_handlers_that_do_not_finish_in_time_are_cancelled_and_handed_back(open_queue):
    broker, started, cancelled = MemoryBroker(), [], []
    queue = await open_queue(broker, drain_timeout=0.02)

    async def hang(message):
        started.append(message.payload)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(message.payload)
            raise

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), hang)
    for number in range(20):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: len(started) == 4)
    await subscription.stop()
    assert sorted(cancelled) == [0, 1, 2, 3]
    group = broker.groups["t", "default"]
    assert (group.count, len(group.leased)) == (20, 0)


async def test_closing_the_queue_drains_it_and_says_so(open_queue):
    queue, hooks, told, handled = await open_queue(), HookRegistry(), [], []
    queue.set_hook_registry(hooks)
    hooks.on(QueueDrainedHook, told.append)
    started = anyio.Event()

    async def handle(message):
        started.set()
        await anyio.sleep(0.02)
        handled.append(message.payload)

    await queue.subscribe("t", handle)
    await queue.publish("t", BusMessage(payload=1))
    await started.wait()
    await queue.close()
    assert handled == [1]
    assert told == [QueueDrainedHook(queue_name="memory")]
    assert queue.driver.broker.groups["t", "default"].count == 0


async def test_a_stop_that_is_cancelled_still_hands_everything_back(open_queue):
    broker = MemoryBroker()
    queue = await open_queue(broker, drain_timeout=0.05)

    async def hang(message):
        await anyio.sleep_forever()

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), hang)
    for number in range(8):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: subscription.in_flight == 8)
    with anyio.move_on_after(0.001):
        await subscription.stop()
    group = broker.groups["t", "default"]
    assert (group.count, len(group.leased)) == (8, 0)


async def test_a_paused_consumer_receives_nothing_until_it_goes_on(queue):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    await queue.publish("t", BusMessage(payload=0))
    await wait_until(lambda: handled == [0])
    subscription.pause()
    for number in range(30):
        await queue.publish("t", BusMessage(payload=number))
    await anyio.wait_all_tasks_blocked()
    # What was asked for before the pause may still come; more is not asked for.
    got = len(handled)
    await anyio.sleep(0.01)
    assert len(handled) == got <= 11
    assert subscription.is_paused
    subscription.resume()
    await wait_until(lambda: len(handled) == 31)


async def test_a_group_paused_at_the_broker_waits_in_every_process(queue):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("t", handle)
    await queue.driver.set_paused("t", "default", True)
    await queue.publish("t", BusMessage(payload=1))
    await anyio.wait_all_tasks_blocked()
    assert handled == []
    await queue.driver.set_paused("t", "default", False)
    await wait_until(lambda: handled == [1])


async def test_no_more_handlers_run_than_allowed_and_no_more_is_held(open_queue):
    queue = await open_queue(concurrency=3, prefetch=7)
    running, most, held = 0, 0, 0

    async def handle(message):
        nonlocal running, most, held
        running += 1
        most = max(most, running)
        held = max(held, subscription.in_flight)
        await anyio.sleep(0.001)
        running -= 1

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    for number in range(100):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: subscription.handled == 100)
    assert most == 3
    assert held <= 7


async def test_a_consumer_that_stopped_can_start_again(queue):
    handled = []

    class Again(MessageConsumer):
        topic = "t"

        async def handle(self, message):
            handled.append(message.payload)

    consumer = Again(queue)
    for number in range(3):
        await consumer.start()
        await queue.publish("t", BusMessage(payload=number))
        await wait_until(lambda number=number: handled == list(range(number + 1)))
        await consumer.stop()
