"""A message whose handler kills its process takes no innocent one along, and becomes a dead letter."""

from collections import Counter

import anyio
import pytest

from lexigram.contracts.queue import BusMessage, Capability, DeadLetterReason, QueueError
from lexigram.contracts.queue.headers import BEGUN
from lexigram.queue import ConsumerOptions
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

INNOCENTS, MAX_DELIVERIES, LEASE = 50, 5, 10.0


class MortalDriver(MemoryDriver):
    """The driver of a process that may be killed: then it says nothing more."""

    is_dead = False

    async def ack_many(self, deliveries):
        if not self.is_dead:
            await super().ack_many(deliveries)

    async def release_many(self, deliveries):
        if not self.is_dead:
            await super().release_many(deliveries)

    async def extend_many(self, deliveries, seconds):
        return [] if self.is_dead else await super().extend_many(deliveries, seconds)

    async def close(self):
        if not self.is_dead:
            await super().close()


class WithoutMarks(MortalDriver):
    """As a broker that has no place for a mark: the bus sends copies."""

    capabilities = MemoryDriver.capabilities - {Capability.BEGUN_MARK}


class CountingOn(WithoutMarks):
    """A driver whose copies are still counted with the message they replace."""

    async def nack(self, delivery, *, delay=0.0, message=None):
        group, counted = delivery.home, delivery.delivery_count
        again = group._again
        group._again = lambda slot, new, _: again(slot, new, counted)
        try:
            await super().nack(delivery, delay=delay, message=message)
        finally:
            del group._again


class Process:
    """A consumer that dies of the messages in ``deadly``; ``kill`` ends it without a word."""

    def __init__(self, queue, deadly, handled, begun):
        self.queue, self.deadly = queue, deadly
        self.handled, self.begun = handled, begun
        self.running, self.together = set(), Counter()
        self.died = anyio.Event()

    async def start(self, **consumer):
        self.subscription = await self.queue.consume(
            ConsumerOptions(topics=("t",), **consumer),
            self.handle_batch if consumer.get("batch_size", 1) > 1 else self.handle,
        )

    async def handle(self, message):
        await self.handle_batch([message])

    async def handle_batch(self, messages):
        ids = {message.id for message in messages}
        self.begun.update(ids)
        if ids & self.deadly:
            self.died.set()
        if self.died.is_set():
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        self.handled.update(ids)

    async def kill(self):
        self.queue.driver.is_dead = True
        await self.subscription._background.close()


@pytest.fixture
def fleet(open_queue, time):
    """Replaces consumers that died until ``until()``; returns how many died."""

    async def run(driver, broker, deadly, until, handled, begun, **consumer):
        deaths = 0
        while True:
            queue = await open_queue(
                driver=driver(broker, visibility_timeout=LEASE), max_deliveries=MAX_DELIVERIES
            )
            process = Process(queue, deadly, handled, begun)
            await process.start(**consumer)
            with anyio.fail_after(60):
                while not (process.died.is_set() or until()):
                    time.advance(0.1)
                    await anyio.sleep(0.001)
            if until():
                return deaths
            await process.kill()
            deaths += 1
            time.advance(LEASE)

    return run


CONSUMERS = {
    "one": {"concurrency": 1, "prefetch": 10},
    "three": {"concurrency": 3, "prefetch": 20},
    "batches": {"concurrency": 1, "prefetch": 20, "batch_size": 5},
    "batches of two workers": {"concurrency": 2, "prefetch": 20, "batch_size": 5},
    "by key": {"concurrency": 2, "max_in_flight_per_key": 1},
}


@pytest.mark.parametrize("driver", [MortalDriver, WithoutMarks, CountingOn])
@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
async def test_a_poison_message_dies_alone(fleet, driver, consumer):
    broker, handled, begun = MemoryBroker(), Counter(), Counter()
    setup = driver(broker)
    await setup.connect()
    await setup.declare("t", "default")
    ids = ["poison", *(f"m{number}" for number in range(INNOCENTS))]
    await setup.publish_many([BusMessage(id=one, topic="t", payload=b"1") for one in ids])
    group = broker.groups["t", "default"]
    deaths = await fleet(
        driver,
        broker,
        {"poison"},
        lambda: group.count == 0,
        handled,
        begun,
        **consumer,
    )
    assert set(handled) == set(ids) - {"poison"}
    (entry,) = group.dead.values()
    assert (entry.message.id, entry.reason) == ("poison", DeadLetterReason.POISON)
    assert "started 5 times and never finished" in entry.error
    assert (entry.attempts, entry.retry_count) == (MAX_DELIVERIES, 0)
    assert deaths == begun["poison"] == MAX_DELIVERIES + 1


@pytest.mark.parametrize("driver", [MortalDriver, WithoutMarks])
async def test_suspects_of_two_consumers_in_one_process_do_not_run_together(
    open_queue, time, driver
):
    """Otherwise the one that kills would be counted, and the other one too."""
    broker = MemoryBroker()
    queues = [
        await open_queue(driver=driver(broker, visibility_timeout=LEASE), max_deliveries=1)
        for _ in range(2)
    ]
    setup = driver(broker)
    await setup.connect()
    for topic in ("a", "b"):
        await setup.declare(topic, "default")
        await setup.publish_many(
            [BusMessage(id=f"{topic}{number}", topic=topic, payload=b"1") for number in range(5)]
        )
        assert len(await setup.receive(topic, "default", limit=5, wait=0)) == 5
    time.advance(60)  # whoever had them is gone
    running, together, handled = set(), [], []

    async def handle(message):
        running.add(message.id)
        together.append(len(running))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running.discard(message.id)
        handled.append(message.id)

    for topic, queue in zip("ab", queues, strict=True):
        await queue.consume(ConsumerOptions(topics=(topic,), concurrency=3), handle)
    with anyio.fail_after(60):
        while len(handled) < 10:
            time.advance(0.5)
            await anyio.sleep(0.001)
    assert set(together) == {1}
    assert all(not group.dead for group in broker.groups.values())


async def test_new_messages_are_handled_beside_a_suspect(open_queue, time):
    broker, gate, handled = MemoryBroker(), anyio.Event(), []
    gone = MemoryDriver(broker, visibility_timeout=LEASE)
    await gone.connect()
    await gone.declare("t", "default")
    suspects = [BusMessage(id=f"s{n}", topic="t", payload=b"1") for n in range(4)]
    await gone.publish_many(suspects)
    assert len(await gone.receive("t", "default", limit=4, wait=0)) == 4
    time.advance(LEASE)

    async def handle(message):
        if message.id.startswith("s"):
            await gate.wait()
        handled.append(message.id)

    queue = await open_queue(broker)
    subscription = await queue.consume(
        ConsumerOptions(topics=("t",), concurrency=2, prefetch=4), handle
    )
    await wait_until(lambda: subscription.in_flight >= 4)
    new = [BusMessage(id=f"n{n}", payload=1) for n in range(10)]
    await queue.publish_many("t", new)
    await wait_until(lambda: set(handled) == {one.id for one in new})
    gate.set()
    await wait_until(lambda: len(handled) == 14)
    assert not broker.groups["t", "default"].dead


async def test_failures_of_a_handler_are_not_begun_counts(open_queue, time):
    queue, tries = await open_queue(max_deliveries=1), []

    async def fail(message):
        tries.append(message.retry_count)
        raise ValueError

    await queue.subscribe("t", fail)
    await queue.publish("t", BusMessage(payload=1, max_retries=5))
    group = queue.driver.broker.groups["t", "default"]
    while not group.dead:
        time.advance(100)
        await anyio.sleep(0.001)
    (entry,) = group.dead.values()
    assert entry.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert tries == [0, 1, 2, 3, 4, 5]


async def test_what_is_handed_back_at_a_stop_is_no_suspect(open_queue):
    broker = MemoryBroker()
    queue = await open_queue(broker, drain_timeout=0.0, max_deliveries=1)
    began = anyio.Event()

    async def hang(message):
        began.set()
        await anyio.sleep_forever()

    subscription = await queue.consume(ConsumerOptions(topics=("t",), concurrency=1), hang)
    await queue.publish_many("t", [BusMessage(payload=1) for _ in range(3)])
    await began.wait()
    await subscription.stop()
    held = await queue.driver.receive("t", "default", limit=3, wait=1)
    assert [one.delivery_count for one in held] == [1, 1, 1]


async def test_a_suspect_that_others_got_before_it_began_is_not_counted(open_queue, time):
    """Its process stood still for longer than the lease, again and again."""
    broker = MemoryBroker()
    queue = await open_queue(
        driver=WithoutMarks(broker, visibility_timeout=LEASE), max_deliveries=2
    )
    other = WithoutMarks(broker, visibility_timeout=LEASE)
    await other.connect()
    handled = []

    async def handle(message):
        handled.append(message.id)

    consumer = await queue.prepare(ConsumerOptions(topics=("t",)), handle)
    await queue.publish("t", BusMessage(id="innocent", payload=1))
    suspects = consumer._suspects

    async def receive(driver):
        [delivery] = await driver.receive("t", "default", limit=1, wait=0)
        return delivery

    async def lose_by_other_processes(times):
        for _ in range(times):
            time.advance(LEASE)
            await receive(other)
        time.advance(LEASE)

    await lose_by_other_processes(1)
    for _ in range(5):
        [suspect] = await suspects.sort_out([await receive(queue.driver)])
        assert not await suspects.begin(suspect)  # its copy is sent
        assert not await suspects.sort_out([copy := await receive(queue.driver)])
        assert consumer._buffer.popleft() is copy
        await lose_by_other_processes(3)
        assert not await suspects.begin(copy)
    assert not broker.groups["t", "default"].dead
    await consumer.start()
    await wait_until(lambda: handled == ["innocent"])


class Shared(WithoutMarks):
    """Every second copy comes to another process, which handles it."""

    copies, theirs = 0, ()

    async def receive(self, topic, group, *, limit, wait):
        kept = []
        for one in await super().receive(topic, group, limit=limit, wait=wait):
            is_copy = BEGUN in one.message.headers
            self.copies += is_copy
            if is_copy and self.copies % 2:
                await self.ack_many([one])
                self.theirs += (one.message.id,)
            else:
                kept.append(one)
        return kept


async def test_copies_that_others_handle_hold_up_no_other_suspect(open_queue, time):
    """The consumer is not told of them: it must not wait seconds for each."""
    broker, handled, ids = MemoryBroker(), [], {f"m{number}" for number in range(30)}
    gone = MemoryDriver(broker, visibility_timeout=LEASE)
    await gone.connect()
    await gone.declare("t", "default")
    await gone.publish_many([BusMessage(id=one, topic="t", payload=b"1") for one in ids])
    assert len(await gone.receive("t", "default", limit=30, wait=0)) == 30
    time.advance(LEASE)

    async def handle(message):
        handled.append(message.id)

    queue = await open_queue(driver=Shared(broker, visibility_timeout=LEASE))
    await queue.consume(ConsumerOptions(topics=("t",), prefetch=100), handle)
    await wait_until(lambda: set(handled) | set(queue.driver.theirs) == ids, timeout=60)
    assert len(queue.driver.theirs) >= 10
    assert not broker.groups["t", "default"].dead


class Unanswered(MortalDriver):
    """Its broker takes the mark, and the answer does not come."""

    unanswered = MAX_DELIVERIES

    async def mark_begun(self, delivery):
        marks = await super().mark_begun(delivery)
        if self.unanswered:
            self.unanswered -= 1
            raise QueueError("no answer")
        return marks


async def test_a_mark_that_had_to_be_sent_again_counts_once(open_queue, time):
    broker, handled = MemoryBroker(), []
    gone = MortalDriver(broker, visibility_timeout=LEASE)
    await gone.connect()
    await gone.declare("t", "default")
    await gone.publish_many([BusMessage(id="innocent", topic="t", payload=b"1")])
    await gone.receive("t", "default", limit=1, wait=0)
    time.advance(LEASE)

    async def handle(message):
        handled.append(message.id)

    queue = await open_queue(driver=Unanswered(broker), max_deliveries=MAX_DELIVERIES)
    await queue.consume(ConsumerOptions(topics=("t",)), handle)
    group = broker.groups["t", "default"]
    await wait_until(lambda: group.count == 0, timeout=60)
    assert (handled, dict(group.dead)) == (["innocent"], {})
