"""The rabbitmq driver beside what a suite for all drivers cannot ask: its queues and its errors."""

import asyncio
import functools
import re
import sys
import time
from contextlib import AsyncExitStack

import aio_pika
import anyio
import pytest
from tests.doubles.proxy import proxy_to
from tests.integration.queue.rabbitmq_place import clear, own_vhost, rabbitmqctl
from tests.names import unique_name
from tests.queue_drivers import make as make_driver

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.queue import BusOptions, BusQueue, ConsumerOptions, NamedQueueConfig, RetryPolicy
from lexigram.queue.backends.rabbitmq import RabbitMQDriver, RabbitMQQueue, build
from lexigram.queue.backends.services import Services
from lexigram.queue.config import RabbitMQDriverConfig
from lexigram.queue.errors import QueueLibraryError, RabbitMQQueueError
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.service("rabbitmq")]


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


@pytest.fixture
async def exchange(vhost):
    name = unique_name()
    yield name
    await clear(RabbitMQDriver(vhost, exchange=name))


@pytest.fixture
async def open_driver(vhost, exchange):
    async with AsyncExitStack() as stack:

        async def make(**settings):
            driver = make_driver(
                RabbitMQDriver,
                RabbitMQDriverConfig,
                **{"url": vhost, "exchange": exchange, **settings},
            )
            stack.push_async_callback(driver.close)
            await driver.connect()
            return driver

        yield make


@pytest.fixture
async def driver(open_driver):
    return await open_driver()


@pytest.fixture
async def open_queue(open_driver):
    async with AsyncExitStack() as stack:

        async def make(options=None, **settings):
            queue = BusQueue(await open_driver(**settings), options=BusOptions(**(options or {})))
            stack.push_async_callback(queue.close)
            await queue.connect()
            return queue

        yield make


@pytest.fixture
async def raw(vhost):
    """The client library alone: what a foreign program has."""
    connection = await aio_pika.connect(vhost)
    yield await connection.channel()
    await connection.close()


async def take_one(driver, topic, group):
    with anyio.fail_after(60):
        while True:
            got = await driver.receive(topic, group, limit=1, wait=1)
            if got:
                return got[0]


# Others on the same broker.


async def test_a_foreign_producer_needs_only_a_routing_key(driver, raw, exchange):
    await driver.declare("orders", "g")
    theirs = await raw.get_exchange(exchange)
    await theirs.publish(
        aio_pika.Message(b'{"n": 1}', message_id="theirs-1", content_type="application/json"),
        routing_key="orders",
    )
    got = (await take_one(driver, "orders", "g")).message
    assert (got.id, got.topic, got.payload) == ("theirs-1", "orders", b'{"n": 1}')
    assert got.headers == {"content-type": "application/json"}


async def test_a_message_without_an_id_gets_one_that_stays(open_driver, driver, raw, exchange):
    await driver.declare("orders", "g")
    queue = await raw.get_queue(f"{exchange}/orders/g")
    channel = await raw.get_underlay_channel()
    properties = aio_pika.Message(b"1", headers={"who": "they", "n": 5}).properties
    connection = channel.connection
    # aio-pika always gives an id: take it away, as simpler clients never give one.
    bare = await connection.channel(publisher_confirms=False)
    publish, marshal = bare.basic_publish, type(properties).marshal

    def without_id(self):
        self.message_id = None
        return marshal(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(properties), "marshal", without_id)
        for _ in range(2):
            await publish(b"1", exchange=exchange, routing_key="orders", properties=properties)
    other = await open_driver()
    first, second = [await take_one(other, "orders", "g") for _ in range(2)]
    assert first.message.id != second.message.id
    assert first.message.headers == {"who": "they", "n": "5"}
    await other.close()  # as if it had died
    again = {(await take_one(driver, "orders", "g")).message.id for _ in range(2)}
    assert again == {first.message.id, second.message.id}
    assert queue.name


async def test_a_foreign_consumer_reads_a_bare_body_and_plain_headers(driver, raw, exchange):
    theirs = await raw.declare_queue(exclusive=True)
    await theirs.bind(exchange, routing_key="orders.#")
    await driver.declare("orders.made", "g")
    sent = BusMessage(
        topic="orders.made",
        payload=b'{"n": 1}',
        headers={"tenant": "t1", "content-type": "application/json"},
        priority=3,
    )
    await driver.publish_many([sent])
    got = await theirs.get(timeout=10, fail=True)
    await got.ack()
    assert got.body == b'{"n": 1}'
    assert (got.message_id, got.content_type, got.priority) == (sent.id, "application/json", 3)
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert (got.headers["tenant"], got.headers["ce-id"]) == ("t1", sent.id)


async def test_what_expires_by_a_foreign_rule_is_a_dead_letter(driver, raw, exchange):
    await driver.declare("orders", "g")
    theirs = await raw.get_exchange(exchange)
    message = aio_pika.Message(b"late", message_id="theirs-1", expiration=0.01)
    await theirs.publish(message, routing_key="orders")
    (entry,) = await wait_until(lambda: driver.list_dead("orders", "g"))
    assert (entry.message.id, entry.reason) == ("theirs-1", DeadLetterReason.EXPIRED)
    assert entry.error == "set aside by the broker: expired"
    assert await driver.redrive("orders", "g") == 1
    assert (await take_one(driver, "orders", "g")).message.payload == b"late"


# Q1, Q2: what the first line of this library lost.


async def test_publishing_works_on_a_broker_where_nothing_was_declared(open_queue):
    queue = await open_queue()
    await queue.publish("orders", BusMessage(payload={"n": 1}))
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("orders", handle)
    await wait_until(lambda: got == [{"n": 1}])


async def test_a_failing_handler_does_not_lose_its_message(open_queue):
    queue = await open_queue(options={"retry": RetryPolicy(base=0.01)})
    calls = []

    async def handle(message):
        calls.append(message.retry_count)
        if len(calls) == 1:
            raise ValueError("not yet")

    await queue.subscribe("orders", handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: calls == [0, 1])


# Queues.


async def test_crashes_are_counted_although_classic_queues_do_not_count(open_driver):
    keeper = await open_driver()
    await keeper.declare("t", "g")
    await keeper.publish_many([BusMessage(id="m1", topic="t", payload=b"")])
    for number in range(1, 4):
        victim = await open_driver()
        assert (await take_one(victim, "t", "g")).delivery_count == number
        await victim._connection._connection.close()  # nothing is settled or given back
    held = await take_one(keeper, "t", "g")
    assert held.delivery_count == 4
    await keeper.nack(held, message=held.message)
    assert (await take_one(keeper, "t", "g")).delivery_count == 1  # it was settled


async def test_after_a_pause_the_broker_is_asked_what_is_still_held(open_driver):
    driver = await open_driver()
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    held = await take_one(driver, "t", "g")
    assert list(await driver.extend_many([held], 5.0)) == []
    await driver._connection._connection.close()
    assert list(await driver.extend_many([held], 5.0)) == [held]


async def test_who_waits_gets_the_message_of_a_dead_member_at_once(open_driver):
    keeper, victim = await open_driver(), await open_driver()
    await keeper.declare("t", "g")
    await keeper.publish_many([BusMessage(topic="t", payload=b"1")])
    await take_one(victim, "t", "g")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(victim._connection._connection.close)
        with anyio.fail_after(60):  # the copy that is counted comes while the original goes
            assert await keeper.receive("t", "g", limit=10, wait=200)


async def test_looking_around_does_not_count_as_crashes(open_driver):
    one, other = await open_driver(), await open_driver()
    await one.declare("t", "g")
    await other.declare("t", "g")
    await one.publish_many([BusMessage(topic="t", payload=b"")])
    for driver in (one, other, one, other):
        await driver.release_many([await take_one(driver, "t", "g")])
    assert (await take_one(one, "t", "g")).delivery_count == 1


async def test_a_member_that_stops_receiving_leaves_the_rest_to_others(open_driver):
    idle, busy = await open_driver(), await open_driver()
    for driver in (idle, busy):
        await driver.declare("t", "g")
    await idle.receive("t", "g", limit=50, wait=0)  # a consumer with room for many
    await busy.publish_many([BusMessage(topic="t", payload=b"%d" % n) for n in range(20)])
    got = set()
    with anyio.fail_after(60):
        while len(got) < 20:
            for one in await busy.receive("t", "g", limit=50, wait=1):
                assert one.delivery_count == 1
                got.add(one.message.payload)


async def test_prefetch_count_is_the_most_a_group_holds(open_driver):
    driver = await open_driver(prefetch_count=3)
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"") for _ in range(8)])
    held = [await take_one(driver, "t", "g") for _ in range(3)]
    assert list(await driver.receive("t", "g", limit=10, wait=0.3)) == []
    assert await driver.lag("t", "g") == 5
    await driver.ack_many(held)
    assert len([await take_one(driver, "t", "g") for _ in range(3)]) == 3


async def test_a_pattern_that_binds_too_much_takes_nothing_from_other_topics(open_driver):
    driver, publisher = await open_driver(), await open_driver()
    await driver.declare("shop.*Recorded", "family")  # bound as shop.#
    await publisher.publish_many([BusMessage(topic="shop.Sent", payload=b"kept")])
    assert list(await driver.receive("shop.*Recorded", "family", limit=9, wait=0.3)) == []
    await driver.declare("shop.Sent", "first")
    assert (await take_one(driver, "shop.Sent", "first")).message.payload == b"kept"


async def test_a_word_that_amqp_takes_for_a_wildcard_is_just_a_word(driver):
    await driver.declare("a.#", "g")
    await driver.declare("a.b", "g")
    await driver.publish_many([BusMessage(topic="a.b", payload=b"other")])
    await driver.publish_many([BusMessage(topic="a.#", payload=b"mine")])
    assert (await take_one(driver, "a.#", "g")).message.payload == b"mine"
    assert list(await driver.receive("a.#", "g", limit=9, wait=0.3)) == []


async def test_a_message_for_later_is_kept_for_the_first_group(driver):
    at = {DELIVER_AT: repr(time.time() + 1.0)}
    await driver.publish_many([BusMessage(topic="t", payload=b"later", headers=at)])
    await driver.declare("t", "g")
    held = await take_one(driver, "t", "g")
    assert held.message.payload == b"later"
    assert time.time() >= float(held.message.headers[DELIVER_AT])


async def test_no_message_whose_time_comes_is_lost_while_the_first_group_is_declared(
    driver, raw, exchange
):
    await driver.publish_many([BusMessage(topic="t", payload=b"kept")])
    returns = await raw.get_exchange(exchange)
    expected = {b"kept"}
    with anyio.CancelScope() as returning:

        async def return_from_ladder():
            while not returning.cancel_called:  # as the broker does when the time has come
                payload = b"%d" % len(expected)
                expected.add(payload)
                await returns.publish(aio_pika.Message(payload), routing_key="t", mandatory=False)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(return_from_ladder)
            await driver.declare("t", "g")
            returning.cancel()
    with anyio.fail_after(60):
        while expected:
            got = await driver.receive("t", "g", limit=100, wait=1)
            await driver.ack_many(got)
            expected.difference_update(one.message.payload for one in got)


async def test_a_step_that_was_deleted_is_made_again(driver, raw, exchange):
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    held = await take_one(driver, "t", "g")
    await driver.nack(held, delay=0.2)
    held = await take_one(driver, "t", "g")
    await raw.queue_delete(f"{exchange}/t/g/retry/250")
    with pytest.raises(QueueError):
        await driver.nack(held, delay=0.2)
    await driver.nack(held, delay=0.2)  # as the runtime does, which insists
    assert (await take_one(driver, "t", "g")).message.payload == b"1"


async def test_two_messages_of_one_id_may_be_on_their_way_at_once(driver):
    await driver.declare("heard", "g")
    batch = [BusMessage(id="one", topic=topic, payload=b"1") for topic in ("unheard", "heard")]
    await driver.publish_many(batch)
    await driver.declare("unheard", "g")
    for topic in ("heard", "unheard"):
        assert (await take_one(driver, topic, "g")).message.id == "one"


async def test_many_processes_may_declare_at_once(open_driver):
    drivers = [await open_driver() for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for number, driver in enumerate(drivers):
            tasks.start_soon(driver.declare, "t", "shared")
            tasks.start_soon(driver.declare, "t", f"own-{number}")
    expected = {("t", "shared"), *(("t", f"own-{number}") for number in range(6))}
    assert set(await drivers[0].groups()) == expected
    await drivers[1].publish_many([BusMessage(topic="t", payload=b"")])
    for _, group in expected:
        assert await drivers[0].lag("t", group) == 1


async def test_a_pause_is_remembered_by_a_member_that_comes_later(open_driver):
    first = await open_driver()
    await first.declare("t", "g")
    await first.set_paused("t", "g", True)
    await first.publish_many([BusMessage(topic="t", payload=b"1")])
    second = await open_driver()
    assert list(await second.receive("t", "g", limit=1, wait=0.3)) == []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.set_paused, "t", "g", False)
        assert (await take_one(second, "t", "g")).message.payload == b"1"


async def test_hundreds_of_dead_letters_are_listed_in_pages_and_redriven(open_queue):
    queue = await open_queue(options={"prefetch": 50})

    async def handle(message):
        raise ValueError(message.payload)

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    await queue.publish_many("t", [BusMessage(payload=n, max_retries=0) for n in range(300)])
    driver = queue.driver

    async def all_dead():
        return len(await driver.list_dead("t", "default", limit=1000)) == 300

    await wait_until(all_dead, timeout=60)
    await subscription.stop()
    redriven = 0

    # The server puts back what a look had in its hands a moment after the look.
    async def the_last_page_is_full():
        return len(await driver.list_dead("t", "default", limit=10, offset=290)) == 10

    async def all_are_redriven():
        nonlocal redriven
        redriven += await driver.redrive("t", "default")
        return redriven >= 300

    await wait_until(the_last_page_is_full)
    await wait_until(all_are_redriven)
    assert redriven == 300
    assert await driver.depth("t", "default") == 300


# The promises of the bus.


async def test_a_long_handler_keeps_its_message_and_a_dead_process_does_not(open_queue):
    first, second = await open_queue(), await open_queue()
    calls, gate = [], anyio.Event()

    async def slow(message):
        calls.append("slow")
        await gate.wait()

    async def quick(message):
        calls.append("quick")

    await first.subscribe("t", slow)
    await first.publish("t", BusMessage(payload=1))
    await wait_until(lambda: calls == ["slow"])
    await second.subscribe("t", quick)
    await anyio.sleep(1.5)  # longer than anything here waits for
    assert calls == ["slow"]
    await (
        first.driver._connection._connection.close()
    )  # its process is gone, for all the broker knows
    await wait_until(lambda: calls == ["slow", "quick"])
    gate.set()


async def test_two_groups_get_all_and_three_replicas_share(open_queue):
    queues = [await open_queue() for _ in range(3)]
    billing, mailing = [], []

    async def bill(message):
        billing.append(message.payload)

    async def mail(message):
        mailing.append(message.payload)

    for queue in queues:
        await queue.subscribe("t", bill, group="billing")
    await queues[0].subscribe("t", mail, group="mailing")
    await queues[1].publish_many("t", [BusMessage(payload=n) for n in range(100)])
    await wait_until(lambda: len(billing) >= 100 and len(mailing) >= 100)
    assert sorted(billing) == sorted(mailing) == list(range(100))


async def test_a_stop_under_load_acknowledges_nothing_that_was_not_handled(open_queue):
    queue = await open_queue(options={"drain_timeout": 5.0})
    handled = []

    async def handle(message):
        await anyio.sleep(0.001)
        handled.append(message.payload)

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    await queue.publish_many("t", [BusMessage(payload=n) for n in range(300)])
    await wait_until(lambda: len(handled) > 20)
    await subscription.stop()
    before = len(handled)
    await wait_until(lambda: _has_depth(queue, 300 - before))
    await queue.subscribe("t", handle)
    await wait_until(lambda: len(handled) >= 300, timeout=60)
    assert sorted(handled) == list(range(300))


async def _has_depth(queue, expected):
    return await queue.driver.depth("t", "default") == expected


# What goes wrong.


async def test_a_connection_that_the_server_closes_is_replaced_and_nothing_is_lost(
    open_queue, vhost
):
    name = vhost.rpartition("/")[2]
    if not name:
        pytest.fail("needs rabbitmqctl, which closes connections of a vhost of its own")
    queue = await open_queue()
    handled = set()

    async def handle(message):
        handled.add(message.payload)

    await queue.subscribe("t", handle)
    for number in range(60):
        if number == 30:
            await anyio.to_thread.run_sync(
                rabbitmqctl, "close_all_connections", "--vhost", name, "test"
            )
        await _publish_until_confirmed(queue, BusMessage(id=f"m{number}", payload=number))
    await wait_until(lambda: handled == set(range(60)), timeout=60)


async def _publish_until_confirmed(queue, message):
    with anyio.fail_after(60):
        while True:
            try:
                return await queue.publish("t", message)
            except QueueError:
                await anyio.sleep(0.05)


async def test_a_queue_that_was_deleted_is_declared_again(open_queue, raw, exchange):
    queue = await open_queue()
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("t", handle)
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: handled == [1])
    await raw.queue_delete(f"{exchange}/t/default")
    await queue.publish("t", BusMessage(payload=2))
    await wait_until(lambda: handled == [1, 2], timeout=60)


async def test_a_channel_that_the_server_closes_is_opened_again(open_queue):
    queue = await open_queue()
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("t", handle)
    with pytest.raises(Exception, match="no exchange"):
        await queue.driver._connection._publishing.basic_publish(
            b"", exchange="not there", routing_key="t"
        )
    await _publish_until_confirmed(queue, BusMessage(payload=1))
    await wait_until(lambda: handled == [1])


@pytest.fixture
async def proxy(services):
    async with proxy_to(services["rabbitmq"].address) as opened:
        yield opened


@pytest.fixture
async def proxied(open_driver, proxy, vhost, services):
    """A driver that reaches the broker through the proxy."""
    url = vhost.replace(services["rabbitmq"].address, proxy.address)
    yield await open_driver(url=url, timeout=0.5)
    proxy.release()


async def test_a_broker_that_hangs_is_an_error_and_never_a_hang(proxied, proxy):
    await proxied.declare("t", "g")
    await proxied.publish_many([BusMessage(topic="t", payload=b"1")])
    proxy.hold()
    with pytest.raises(RabbitMQQueueError, match=r"no answer within 0.5 s") as caught:
        await proxied.publish_many([BusMessage(topic="t", payload=b"2", id="two")])
    assert caught.value.details["unconfirmed"] == ["two"]
    assert "overloaded" in caught.value.hint
    health = await proxied.health_check(timeout=0.1)
    assert (health.status, health.error) == (HealthStatus.UNHEALTHY, "no answer within 0.1 s")
    for question in (
        proxied.receive("t", "g", limit=1, wait=0),
        proxied.list_dead("t", "g"),
        proxied.count_dead("t", "g"),
        proxied.connect(),
    ):
        with pytest.raises(RabbitMQQueueError):
            await question
    proxy.release()
    await proxied.connect()
    assert (await take_one(proxied, "t", "g")).message.payload in {b"1", b"2"}


async def test_a_connection_lost_in_the_middle_of_a_publish_names_what_is_unconfirmed(
    proxied, proxy
):
    await proxied.declare("t", "g")
    proxy.cut_on(b"to-be-lost", delivered=True)
    with pytest.raises(RabbitMQQueueError) as caught:
        await proxied.publish_many([BusMessage(topic="t", payload=b"to-be-lost", id="one")])
    assert caught.value.details["unconfirmed"] == ["one"]
    await proxied.connect()
    await proxied.publish_many([BusMessage(topic="t", payload=b"again", id="one")])
    got = {(await take_one(proxied, "t", "g")).message.payload for _ in range(2)}
    assert got == {b"to-be-lost", b"again"}


async def test_messages_that_cannot_be_given_back_stay_and_are_told(proxied, proxy, caplog):
    await proxied.declare("t", "g")
    await proxied.publish_many([BusMessage(topic="t", payload=b"%d" % n) for n in range(5)])
    (first,) = await proxied.receive("t", "g", limit=1, wait=60)
    await proxied.ack_many([first])
    member = proxied._receiver.members["t", "g"]
    await proxied.receive("t", "g", limit=3, wait=60)
    proxy.hold()
    await wait_until(lambda: "could not give back messages" in caplog.text)
    proxy.release()
    assert member.queue in caplog.text


async def test_a_group_that_was_never_declared_is_told_by_every_question(driver):
    for question in (
        driver.count_dead("t", "g"),
        driver.list_dead("t", "g"),
        driver.redrive("t", "g"),
        driver.purge_dead("t", "g"),
        driver.depth("t", "g"),
        driver.lag("t", "g"),
        driver.set_paused("t", "g", True),
    ):
        with pytest.raises(RabbitMQQueueError, match="was never declared") as caught:
            await question
        assert "declare" in caught.value.hint


async def test_a_temporary_group_whose_queue_expired_leaves_the_registry(driver, raw, exchange):
    await driver.declare("t", "g", temporary=True)
    assert await driver.groups() == [("t", "g")]
    await raw.queue_delete(driver._names.queue("t", "g"))
    assert await driver.groups() == []


async def test_a_dead_letter_that_a_crash_doubled_is_listed_once(driver, raw):
    await driver.declare("t", "g")
    dead = driver._names.dead(driver._names.queue("t", "g"))
    for identity in ("one", "one", "two"):
        message = aio_pika.Message(b"", message_id=identity)
        await raw.default_exchange.publish(message, routing_key=dead)
    listed = await driver.list_dead("t", "g", limit=2)
    assert [entry.message.id for entry in listed] == ["one", "two"]


@pytest.mark.parametrize("wrong", ["", "localhost", "http://localhost", "amqp://h:port/"])
async def test_a_wrong_url_says_how_one_looks(wrong):
    with pytest.raises(RabbitMQQueueError, match="amqp://user:password@host:port/vhost"):
        await RabbitMQDriver(wrong).connect()


async def test_an_unreachable_host_says_what_to_check():
    with pytest.raises(RabbitMQQueueError) as caught:
        await RabbitMQDriver(
            "amqp://guest:s3cret@127.0.0.1:1/", config=RabbitMQDriverConfig(timeout=3)
        ).connect()
    assert "does RabbitMQ listen at amqp://127.0.0.1:1/?" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_wrong_password_is_told_and_never_shown(services):
    address = services["rabbitmq"].address
    driver = RabbitMQDriver(f"amqp://guest:s3cret@{address}/")
    with pytest.raises(RabbitMQQueueError, match="the user or the password is wrong") as caught:
        await driver.connect()
    health = await driver.health_check()
    assert health.status is HealthStatus.UNHEALTHY
    for shown in (str(caught.value), repr(driver), repr(health)):
        assert "s3cret" not in shown


async def test_a_vhost_that_is_not_there_is_told(services):
    address = services["rabbitmq"].address
    with pytest.raises(RabbitMQQueueError, match="vhost"):
        await RabbitMQDriver(f"amqp://guest:guest@{address}/nowhere").connect()


async def test_a_missing_permission_is_told_with_the_command_that_gives_it(
    vhost, services, exchange
):
    user, name = unique_name(), vhost.rpartition("/")[2]
    if not name:
        pytest.fail("needs rabbitmqctl, which makes users")
    ask = functools.partial(anyio.to_thread.run_sync, rabbitmqctl)
    url = f"amqp://{user}:secret@{services['rabbitmq'].address}/{name}"
    driver = RabbitMQDriver(url, exchange=exchange)
    await ask("add_user", user, "secret")
    await ask("set_permissions", "-p", name, user, "^other", "^other", "^other")
    try:
        with pytest.raises(RabbitMQQueueError, match="rabbitmqctl set_permissions") as caught:
            await driver.connect()
        rights = re.findall(r"'([^']+)'", caught.value.hint)[-3:]
        await ask("set_permissions", "-p", name, user, *rights)
        await driver.connect()
        await driver.publish_many([BusMessage(topic="t", payload=b"1")])
        await driver.declare("t", "g")
        await driver.nack(await take_one(driver, "t", "g"), delay=0.1)
        held = await take_one(driver, "t", "g")
        await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="no"))
        assert await driver.redrive("t", "g") == 1
        await driver.close()
    finally:
        await ask("delete_user", user)


async def test_an_exchange_of_another_kind_is_told(raw, vhost):
    name = unique_name()
    await raw.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
    try:
        with pytest.raises(RabbitMQQueueError, match="declared with other settings"):
            await RabbitMQDriver(vhost, exchange=name).connect()
    finally:
        await raw.exchange_delete(name)


async def test_what_does_not_fit_is_refused_and_the_connection_stays(driver):
    await driver.declare("t", "g")
    big = {"big": "x" * 200_000}
    with pytest.raises(MessageTooLargeError, match="headers"):
        await driver.publish_many([BusMessage(topic="t", payload=b"", headers=big)])
    with pytest.raises(RabbitMQQueueError, match="255 bytes"):
        await driver.publish_many([BusMessage(topic="t" * 300, payload=b"")])
    await driver.publish_many([BusMessage(topic="t", payload=b"fits")])
    assert (await take_one(driver, "t", "g")).message.payload == b"fits"


async def test_long_names_of_topics_and_groups_are_fine(driver):
    topic, group = "t" * 200, "g" * 200
    await driver.declare(topic, group)
    await driver.publish_many([BusMessage(topic=topic, payload=b"1")])
    assert (await take_one(driver, topic, group)).message.payload == b"1"


async def test_a_missing_library_is_named_with_its_extra(monkeypatch, vhost):
    monkeypatch.setitem(sys.modules, "aiormq", None)
    with pytest.raises(QueueLibraryError, match=r"lexigram-queue\[rabbitmq\]"):
        await RabbitMQDriver(vhost).connect()


async def test_the_configuration_is_obeyed(vhost, exchange, raw):
    entry = NamedQueueConfig(
        name="events",
        driver="rabbitmq",
        max_backlog=5,
        rabbitmq=RabbitMQDriverConfig(
            url=vhost, exchange=exchange, queue_type="quorum", prefetch_count=2
        ),
    )
    driver = build(entry, Services())
    await driver.connect()
    try:
        await driver.declare("t", "g")
        with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="x-queue-type"):
            await raw.declare_queue(
                f"{exchange}/t/g/dead", durable=True, arguments={"x-queue-type": "classic"}
            )
        await driver.publish_many([BusMessage(topic="t", payload=b"") for _ in range(5)])
        assert [await take_one(driver, "t", "g") for _ in range(2)]
        assert list(await driver.receive("t", "g", limit=9, wait=0.3)) == []
        with pytest.raises(QueueFullError):
            for _ in range(100):  # a quorum queue keeps its limit roughly
                await driver.publish_many([BusMessage(topic="nobody", payload=b"")])
    finally:
        await driver.close()


async def hold(open_driver, number):
    """Two members of a group on quorum queues, and ``number`` deliveries of the first one."""
    members = [await open_driver(queue_type="quorum") for _ in range(2)]
    for member in members:
        await member.declare("t", "g")
    await members[0].publish_many(
        [BusMessage(topic="t", payload=b"", id=f"m{n}") for n in range(number)]
    )
    with anyio.fail_after(60):
        held = []
        while len(held) < number:
            held += await members[0].receive("t", "g", limit=number, wait=1)
    return *members, held


async def test_members_mark_at_the_same_time_on_quorum_queues(open_driver):
    """RabbitMQ lets several consumers be exclusive on a quorum queue, and gives each of them a part."""
    one, other, (first, *held) = await hold(open_driver, 13)
    assert await one.mark_begun(first) == 1  # from now on there is a queue of the marks
    with anyio.fail_after(60):
        for marks in (1, 2, 3):
            calls = (
                member.mark_begun(delivery)
                for member, delivery in zip([one, other] * 6, held, strict=True)
            )
            assert await asyncio.gather(*calls) == [marks] * len(held)
    await one.ack_many([first, *held])
    async with one._connection.contents(
        one._names.attempts(one._names.queue("t", "g"))
    ) as contents:
        left = await contents.read()
    assert left == []


async def test_each_of_several_readers_sees_all_dead_letters_of_a_quorum_queue(open_driver):
    one, other, held = await hold(open_driver, 12)
    for delivery in held:
        entry = DeadLetterEntry(
            message=delivery.message, error="e", reason=DeadLetterReason.REJECTED
        )
        await one.dead_letter(delivery, entry)
    with anyio.fail_after(60):
        lists = await asyncio.gather(*(member.list_dead("t", "g") for member in [one, other] * 4))
    assert [{entry.message.id for entry in found} for found in lists] == [
        {f"m{n}" for n in range(12)}
    ] * 8
    assert await one.redrive("t", "g", ["m3"]) == 1
    assert await other.purge_dead("t", "g") == 11


async def test_the_queue_of_its_own_needs_a_url_only(vhost, exchange):
    async with RabbitMQQueue(vhost, exchange, prefetch_count=3) as queue:
        got = asyncio.Event()

        async def handle(message):
            got.set()

        await queue.subscribe("t", handle)
        await queue.publish("t", BusMessage(payload=1))
        async with asyncio.timeout(60):
            await got.wait()
        assert queue.subscriptions[0]._prefetch == 4  # never less than its workers
    with pytest.raises(ValueError, match="at least 1"):
        RabbitMQQueue(vhost, prefetch_count=0)
