"""Nobody is starved, and nobody is flooded."""

import resource

import anyio
import pytest

from lexigram.contracts.queue import BusMessage, QueueFullError
from lexigram.queue import ConsumerOptions
from lexigram.queue.backends.memory import MemoryBroker
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


async def test_a_flood_of_one_tenant_makes_another_wait_for_a_few_rounds_only(open_queue):
    """With concurrency 4, ten messages take 3 rounds alone; here they may take 9."""
    queue = await open_queue(MemoryBroker(max_backlog=20_000), drain_timeout=0.0)
    rounds, done, waiting = 0, {}, []

    async def handle(message):
        # Four handlers run at a time; a round ends when all of them may go on.
        gate = anyio.Event()
        waiting.append(gate)
        await gate.wait()
        done.setdefault(message.headers["fairness-key"], []).append(rounds)

    flood = [BusMessage(payload=0, headers={"fairness-key": "a"}) for _ in range(10_000)]
    await queue.publish_many("t", flood)
    await queue.subscribe("t", handle)
    await wait_until(lambda: len(waiting) == 4)
    for _ in range(10):
        await queue.publish("t", BusMessage(payload=1), fairness_key="b")
    while len(done.get("b", ())) < 10:
        rounds += 1
        for gate in waiting[:]:
            waiting.remove(gate)
            gate.set()
        await wait_until(lambda: len(waiting) == 4)
    assert max(done["b"]) <= 9


async def test_a_key_never_has_more_than_its_share_of_the_workers(queue):
    running, most = {"a": 0, "b": 0}, {"a": 0, "b": 0}

    async def handle(message):
        key = message.headers["fairness-key"]
        running[key] += 1
        most[key] = max(most[key], running[key])
        await anyio.sleep(0.002)
        running[key] -= 1

    options = ConsumerOptions(topics=("t",), max_in_flight_per_key=2, concurrency=4)
    subscription = await queue.consume(options, handle)
    for number in range(30):
        await queue.publish("t", BusMessage(payload=number), fairness_key="a")
        await queue.publish("t", BusMessage(payload=number), fairness_key="b")
    await wait_until(lambda: subscription.handled == 60)
    assert most == {"a": 2, "b": 2}


async def test_a_slow_consumer_makes_the_publisher_wait(open_queue):
    broker = MemoryBroker(max_backlog=10)
    queue, gate, published = await open_queue(broker), anyio.Event(), 0

    async def slow(message):
        await gate.wait()

    await queue.subscribe("t", slow)

    async def publish():
        nonlocal published
        for number in range(50):
            await queue.publish("t", BusMessage(payload=number))
            published += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish)
        await wait_until(lambda: published == 10)
        await anyio.wait_all_tasks_blocked()
        assert (published, broker.groups["t", "default"].count) == (10, 10)
        gate.set()
    await wait_until(lambda: broker.groups["t", "default"].count == 0)
    assert published == 50


async def test_a_consumer_that_stands_still_ends_in_queue_full(open_queue):
    queue = await open_queue(MemoryBroker(max_backlog=2), publish_timeout=0.01)
    await queue.driver.declare("t", "default")
    await queue.publish("t", BusMessage(payload=1))
    await queue.publish("t", BusMessage(payload=2))
    with pytest.raises(QueueFullError, match="holds 2 messages for group 'default'"):
        await queue.publish("t", BusMessage(payload=3))


async def test_a_topic_without_a_group_keeps_max_backlog_messages_then_refuses(open_queue):
    queue, got = await open_queue(MemoryBroker(max_backlog=3)), []
    for number in range(3):
        await queue.publish("t", BusMessage(payload=number))
    with pytest.raises(QueueFullError, match="no group"):
        await queue.publish("t", BusMessage(payload="too many"))

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("t", handle)
    await wait_until(lambda: got == [0, 1, 2])


async def test_many_messages_go_through_in_bounded_memory(open_queue):
    """A tenth of the million of the benchmark: what grows with the number would show here too."""
    queue, handled = await open_queue(MemoryBroker(max_backlog=1000), prefetch=100), 0

    async def handle(message):
        nonlocal handled
        handled += 1

    await queue.subscribe("t", handle)

    async def send(number):
        for _ in range(number):
            await queue.publish("t", BusMessage(payload="x" * 1000))

    await send(10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await send(90_000)
    await wait_until(lambda: handled == 100_000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} kB more"  # the payloads alone would be 90,000
