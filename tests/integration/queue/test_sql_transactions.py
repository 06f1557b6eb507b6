"""What is published inside a transaction belongs to it; exactly once; plans of the statements."""

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterReason,
    DeliveryGuarantee,
    MessageRejectedError,
)
from lexigram.queue import BusOptions, ConsumerOptions, InMemoryQueue, RetryPolicy
from lexigram.queue.backends.sql import SqlQueue
from lexigram.queue.outbox.inbox import Inbox
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01), max_retries=2)
ONCE = DeliveryGuarantee.EXACTLY_ONCE


@pytest.fixture
async def queue(database):
    queue = SqlQueue(database, options=QUICK)
    queue.inbox = Inbox(database).around
    await queue.connect()
    yield queue
    await queue.close()


async def effects(database):
    found = await database.execute_query("SELECT number FROM effects ORDER BY number")
    return [row["number"] for row in found.rows]


async def write(database, number):
    await database.execute_insert("effects", {"number": number})


def once(topic="orders", **options):
    return ConsumerOptions(topics=(topic,), group="g", delivery_guarantee=ONCE, **options)


async def test_what_is_published_in_a_transaction_is_sent_when_it_commits(queue, database):
    await queue.driver.declare("orders", "g")
    async with database.transaction():
        await queue.publish("orders", BusMessage(payload=1))
        await queue.publish_many("orders", [BusMessage(payload=2), BusMessage(payload=3)])
        await write(database, 1)
        if database.dialect == "postgresql":  # SQLite has one writer: nobody could look
            other = SqlQueue(database.config.url)
            await other.connect()
            assert await other.driver.depth("orders", "g") == 0
            await other.close()
    assert await queue.driver.depth("orders", "g") == 3
    assert await effects(database) == [1]


async def test_what_is_published_in_a_transaction_that_rolls_back_never_was(queue, database):
    await queue.driver.declare("orders", "g")
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            await queue.publish("orders", BusMessage(payload=1))
            await queue.publish_many("orders", [BusMessage(payload=2)])
            await write(database, 1)
            raise ZeroDivisionError
    assert await queue.driver.depth("orders", "g") == 0
    assert await effects(database) == []


async def test_publishers_beside_a_transaction_do_not_join_it(queue, database):
    await queue.driver.declare("orders", "g")
    begun = anyio.Event()

    async def beside():
        await begun.wait()
        await queue.publish("orders", BusMessage(payload="beside"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        with pytest.raises(ZeroDivisionError):
            async with database.transaction():
                await queue.publish("orders", BusMessage(payload="inside"))
                begun.set()
                await anyio.lowlevel.checkpoint()
                raise ZeroDivisionError
    (left,) = await queue.driver.peek("orders", "g")
    assert left.payload == b'"beside"'


async def test_a_waiting_consumer_is_woken_by_the_commit(database):
    queue = SqlQueue(database, poll_interval=60.0)  # only the wake-up can be in time
    await queue.connect()
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("orders", handle)
    await anyio.sleep(0.1)  # until it waits; earlier it would find the message without a wake-up
    async with database.transaction():
        await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: got == [1])
    await queue.close()


async def test_a_message_that_comes_twice_is_handled_once(queue, database):
    async def handle(message):
        await write(database, message.payload)

    await queue.consume(once(), handle)
    for _ in range(2):
        await queue.publish("orders", BusMessage(id="same", payload=7))
    await queue.publish("orders", BusMessage(payload=8))
    await wait_until(lambda: queue.subscriptions[0].handled == 3)
    assert await effects(database) == [7, 8]


async def test_two_groups_handle_a_message_once_each(queue, database):
    async def handle(message):
        await write(database, message.payload)

    for group in ("a", "b"):
        options = ConsumerOptions(topics=("orders",), group=group, delivery_guarantee=ONCE)
        await queue.consume(options, handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: sum(one.handled for one in queue.subscriptions) == 2)
    assert await effects(database) == [1, 1]


async def test_a_failed_attempt_leaves_nothing_and_the_retry_passes(queue, database):
    attempts = []
    await queue.driver.declare("mails", "g")

    async def handle(message):
        attempts.append(message.retry_count)
        await write(database, message.payload)
        await queue.publish("mails", BusMessage(payload="sent"))
        if len(attempts) == 1:
            raise ValueError("the first time")

    await queue.consume(once(), handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: queue.subscriptions[0].handled == 1)
    assert attempts == [0, 1]
    assert await effects(database) == [1]
    assert await queue.driver.depth("mails", "g") == 1


async def test_a_redriven_dead_letter_passes(queue, database):
    is_fixed = False

    async def handle(message):
        await write(database, message.payload)
        if not is_fixed:
            raise MessageRejectedError("not yet")

    await queue.consume(once(), handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: queue.driver.list_dead("orders", "g"))
    (dead,) = await queue.driver.list_dead("orders", "g")
    assert dead.reason is DeadLetterReason.REJECTED
    assert await effects(database) == []
    is_fixed = True
    assert await queue.driver.redrive("orders", "g") == 1
    await wait_until(lambda: queue.subscriptions[0].handled == 1)
    assert await effects(database) == [1]


async def test_of_a_batch_only_what_is_new_is_handled(queue, database):
    async def handle(messages):
        for message in messages:
            await write(database, message.payload)

    async def single(message):
        await write(database, message.payload)

    await queue.driver.declare("orders", "g")
    first = await queue.consume(once(), single)
    await queue.publish("orders", BusMessage(id="one", payload=1))
    await wait_until(lambda: first.handled == 1)
    await first.stop()
    await queue.publish_many(
        "orders", [BusMessage(id="one", payload=1), BusMessage(id="two", payload=2)]
    )
    second = await queue.consume(once(batch_size=10), handle)
    await wait_until(lambda: second.handled == 2)
    assert await effects(database) == [1, 2]


async def test_exactly_once_works_on_another_broker_with_sql_beside_it(database):
    queue = InMemoryQueue(options=QUICK)
    queue.inbox = Inbox(database).around
    await queue.connect()

    async def handle(message):
        await write(database, message.payload)

    await queue.consume(once(), handle)
    for _ in range(3):
        await queue.publish("orders", BusMessage(id="same", payload=1))
    await wait_until(lambda: queue.subscriptions[0].handled == 3)
    assert await effects(database) == [1]
    await queue.close()


async def test_what_was_handled_long_ago_is_forgotten(database):
    rows = [("g", "old", 1.0), ("g", "older", 0.5)]
    for group, message, at in rows:
        row = {"group_name": group, "message_id": message, "handled_at": at}
        await database.execute_insert("lexigram_bus_inbox", row)
    inbox = Inbox(database, retention=3600)
    call = inbox.around(once())

    class Taken:
        message = BusMessage(id="new")

    async def handler(_ids):
        return None

    await call([Taken()], handler)  # its first attempt looks for old rows
    found = await database.execute_query("SELECT message_id FROM lexigram_bus_inbox")
    assert [row["message_id"] for row in found.rows] == ["new"]
    assert await inbox.prune() == 0


async def test_exactly_once_is_refused_without_sql():
    queue = InMemoryQueue()
    await queue.connect()

    async def handle(message):
        return None

    with pytest.raises(ConfigurationError, match="exactly_once, which needs SQL"):
        await queue.consume(once(), handle)
    await queue.close()


async def test_a_message_that_asks_for_it_without_sql_is_remembered_for_a_while():
    queue = InMemoryQueue()
    await queue.connect()
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("orders", handle)
    for _ in range(3):
        await queue.publish("orders", BusMessage(id="a", payload=1, delivery_guarantee=ONCE))
        await wait_until(lambda: got)
    await queue.publish("orders", BusMessage(id="b", payload=2))
    await wait_until(lambda: 2 in got)
    assert got == [1, 2]
    await queue.close()
