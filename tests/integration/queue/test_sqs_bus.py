"""What SQS has of its own, through the bus, on moto's server (a double): FIFO queues, ids taken once,
bodies in the blob store, the redrive policy. The same by the driver alone is in ``test_sqs``."""

import json

import anyio
import pytest
from tests.doubles.sqs.places import LEASE, SQSDouble, driver_on, place_name

from lexigram.app import Application
from lexigram.blobs import BlobModule
from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.queue import BusMessage, DeadLetterReason, QueueProtocol
from lexigram.queue import BusOptions, BusQueue, QueueConfig, QueueModule, RetryPolicy
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.queue.options import ConsumerOptions
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))
LARGE = "x" * 2_000_000


@pytest.fixture(scope="module")
def double():
    with SQSDouble() as running:
        yield running


@pytest.fixture
async def fifo(double):
    settings = {"fifo": True, "dedup_window": 300.0}
    async with BusQueue(
        driver_on(double.settings, place_name(), **settings), options=QUICK
    ) as made:
        yield made


class Handler:
    """Remembers what it handled; fails while ``error`` is set."""

    def __init__(self, error=None):
        self.error, self.attempts, self.handled = error, [], []

    async def __call__(self, message):
        self.attempts.append((message.id, message.retry_count))
        if self.error is not None:
            raise self.error
        self.handled.append(message.payload)


# FIFO queues.


async def test_keys_keep_their_order_side_by_side_and_one_of_a_key_is_handled_at_a_time(fifo):
    handled, busy, together = [], set(), set()

    async def handle(message):
        key, number = message.payload
        assert key not in busy, "two of one key at a time"
        busy.add(key)
        together.add(len(busy))
        await anyio.sleep(0.01)
        busy.discard(key)
        handled.append((key, number))

    options = ConsumerOptions(topics=("orders",), group="g", prefetch=20, concurrency=8)
    await fifo.driver.declare("orders", "g")
    for number in range(8):
        for key in "abc":
            await fifo.publish("orders", BusMessage(payload=[key, number]), ordering_key=key)
    await fifo.consume(options, handle)
    await wait_until(lambda: len(handled) == 24, timeout=60)
    for key in "abc":
        assert [number for one, number in handled if one == key] == list(range(8))
    assert max(together) > 1
    assert list(await DeadLetters(fifo).list()) == []


async def test_a_message_of_a_key_that_fails_is_tried_again_and_its_key_goes_on(fifo):
    handled = []

    async def handle(message):
        if message.payload == 0 and message.retry_count == 0:
            raise ValueError("once")
        handled.append(message.payload)

    await fifo.subscribe("orders", handle)
    for number in range(3):
        await fifo.publish("orders", BusMessage(payload=number), ordering_key="k")
    await wait_until(lambda: len(handled) == 3, timeout=30)
    # Published before or after the failure was seen: the retry is behind what was there then.
    assert sorted(handled) == [0, 1, 2]
    assert handled.index(1) < handled.index(2)


# Ids taken once.


async def test_an_id_is_taken_once_although_its_retries_and_its_redrive_have_it_too(fifo):
    handler = Handler(ValueError("boom"))
    await fifo.subscribe("orders", handler)
    for _ in range(3):
        await fifo.publish("orders", BusMessage(id="one", payload=1, max_retries=2))
    await wait_until(lambda: DeadLetters(fifo).list(), timeout=30)
    assert handler.attempts == [("one", 0), ("one", 1), ("one", 2)]
    [entry] = await DeadLetters(fifo).list()
    assert (entry.message.id, entry.reason) == ("one", DeadLetterReason.RETRIES_EXHAUSTED)
    handler.error = None
    assert await DeadLetters(fifo).redrive() == 1
    await wait_until(lambda: handler.handled == [1], timeout=30)
    await fifo.publish("orders", BusMessage(id="one", payload=1))  # still within five minutes
    await fifo.publish("orders", BusMessage(id="two", payload=2))
    await wait_until(lambda: 2 in handler.handled, timeout=30)
    assert handler.handled == [1, 2]


# Large bodies.


async def test_a_large_body_goes_through_an_application_with_a_blob_store_and_leaves_nothing_there(
    double,
):
    backend = {
        "name": "events",
        "driver": "sqs",
        "visibility_timeout": LEASE,
        "retry_base": 0.01,
        "retry_cap": 0.01,
        "sqs": {
            "queue_url": f"{double.url}/123456789012/{place_name()}",
            "access_key_id": "test",
            "secret_access_key": "test",
            "groups_refresh": 0.0,
        },
    }
    config = QueueConfig.from_dict({"backends": [backend]})
    modules = [BlobModule.stub(), QueueModule.configure(config)]
    async with Application("shop", modules=modules) as app:
        queue = await app.container.resolve(QueueProtocol)
        blobs = await app.container.resolve(BlobStoreProtocol)

        async def stored():
            return [info.path async for info in blobs.list("")]

        handler = Handler(ValueError("boom"))
        await queue.subscribe("orders", handler)
        await queue.publish("orders", BusMessage(id="big", payload={"text": LARGE}, max_retries=1))
        await wait_until(lambda: DeadLetters(queue).list(), timeout=60)
        assert handler.attempts == [("big", 0), ("big", 1)]
        [entry] = await DeadLetters(queue).list()
        assert entry.message.payload == {"text": LARGE}
        assert len(await stored()) == 1  # its copies share one body
        handler.error = None
        assert await DeadLetters(queue).redrive() == 1
        await wait_until(lambda: handler.handled == [{"text": LARGE}], timeout=60)
        await wait_until(lambda: is_empty(stored), timeout=30)


async def is_empty(stored):
    return await stored() == []


# Leases.


async def test_a_suspect_whose_lease_ended_before_its_handler_began_is_not_counted(double):
    """Its process stood still, again and again: more often than the message may kill one."""
    name, handler = place_name(), Handler()
    options = BusOptions(max_deliveries=1)
    async with (
        BusQueue(driver_on(double.settings, name)) as others,
        BusQueue(driver_on(double.settings, name), options=options) as queue,
    ):
        other = others.driver
        consumer = await queue.prepare(ConsumerOptions(topics=("orders",)), handler)
        suspects = consumer._suspects
        await queue.publish("orders", BusMessage(id="innocent", payload=1))
        await other.release_many([await take(other)])
        for _ in range(3):
            [suspect] = await suspects.sort_out([await take(queue.driver)])
            assert suspect.delivery_count > 1
            assert not await suspects.begin(suspect)  # its copy is sent
            assert not await suspects.sort_out([copy := await take(queue.driver)])
            assert consumer._buffer.popleft() is copy
            for _ in range(2):  # the first time when the lease is over
                await other.release_many([await take(other)])
            assert not await suspects.begin(copy)
        assert await other.list_dead("orders", "default") == []
        await consumer.start()
        await wait_until(lambda: handler.handled == [1], timeout=30)


async def take(driver):
    with anyio.fail_after(60):
        while not (got := await driver.receive("orders", "default", limit=1, wait=1)):
            pass
    return got[0]


# The redrive policy.


async def test_what_sqs_set_aside_by_its_redrive_policy_is_a_dead_letter_of_the_bus(double):
    driver, handler = driver_on(double.settings, place_name()), Handler()
    async with BusQueue(driver, options=QUICK) as queue:
        await driver.declare("orders", "default")
        place, asking = driver._place("orders", "default"), driver._space.asking
        url = driver._space.urls[place.queue]
        facts = await asking.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
        policy = json.loads(facts["Attributes"]["RedrivePolicy"])
        assert policy["deadLetterTargetArn"].endswith(place.dead)
        policy = json.dumps({**policy, "maxReceiveCount": 2})
        await asking.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
        await queue.publish("orders", BusMessage(id="poison", payload=1))
        for count in (1, 2):  # members that die with it in hand: nobody settles it
            held = await take(driver)
            assert held.delivery_count == count
            await driver.release_many([held])
        await queue.subscribe("orders", handler)
        await wait_until(lambda: DeadLetters(queue).list(), timeout=30)
        [entry] = await DeadLetters(queue).list()
        assert (entry.message.id, entry.reason) == ("poison", DeadLetterReason.POISON)
        assert (entry.message.payload, handler.handled) == (1, [])
        assert await DeadLetters(queue).redrive() == 1
        await wait_until(lambda: handler.handled == [1], timeout=30)
        assert list(await DeadLetters(queue).list()) == []
