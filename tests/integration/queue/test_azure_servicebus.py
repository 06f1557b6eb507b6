"""The azure_servicebus driver on a double: what its suite cannot ask: errors, faults, foreign programs."""

import asyncio
import gc

import anyio
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from tests.doubles.servicebus.places import LEASE, driver_on, place_name
from tests.doubles.servicebus.quick import without_naps
from tests.doubles.servicebus.server import ServiceBusDouble

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterReason,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
)
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.backends.azure_servicebus import (
    AzureServiceBusDriver,
    _dead_letters,
    _links,
    build,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.config import AzureServiceBusDriverConfig, NamedQueueConfig
from lexigram.queue.errors import AzureServiceBusQueueError
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def double():
    patch = pytest.MonkeyPatch()
    without_naps(patch)
    with ServiceBusDouble() as running:
        yield running
    patch.undo()


def settings_of(double):
    return {"connection_str": double.connection_str, "management_str": double.management_str}


@pytest.fixture
async def driver(double):
    made = driver_on(settings_of(double), place_name())
    await made.connect()
    yield made
    await made.close()


async def publish(driver, *bodies, topic="orders", **fields):
    messages = [BusMessage(topic=topic, payload=body, **fields) for body in bodies]
    await driver.publish_many(messages)
    return messages


async def take(driver, number=1, topic="orders"):
    got = []
    with anyio.fail_after(20):
        while len(got) < number:
            got += await driver.receive(topic, "g", limit=number - len(got), wait=1)
    return got


# Errors say what to do.


async def test_wrong_credentials_are_a_typed_error_with_the_fix(double):
    wrong = {
        "connection_str": double.connection(double.amqp_port, "d3Jvbmc="),
        "management_str": double.connection(double.http_port, "d3Jvbmc="),
    }
    driver = driver_on(wrong, "x")
    with pytest.raises(AzureServiceBusQueueError) as caught:
        await driver.connect()
    assert caught.value.code == "LEX_ERR_QUEUE_006"
    assert "connection_str" in caught.value.hint
    assert "d3Jvbmc" not in str(caught.value)
    assert (await driver.health_check()).status is HealthStatus.UNHEALTHY


async def test_a_namespace_that_does_not_answer_is_a_typed_error():
    nowhere = ServiceBusDouble.connection(1)
    driver = AzureServiceBusDriver(
        nowhere, config=AzureServiceBusDriverConfig(management_str=nowhere, timeout=3.0)
    )
    with pytest.raises(AzureServiceBusQueueError, match=r"127\.0\.0\.1:1"):
        await driver.connect()


async def test_a_namespace_without_topics_is_refused():
    with ServiceBusDouble("Basic") as basic:
        driver = driver_on(settings_of(basic), "x")
        with pytest.raises(AzureServiceBusQueueError, match="Basic"):
            await driver.connect()


async def test_a_missing_group_is_a_typed_error_with_the_fix(driver):
    with pytest.raises(AzureServiceBusQueueError) as caught:
        await driver.receive("orders", "nobody", limit=1, wait=0)
    assert "declare" in caught.value.hint


async def test_a_queue_deleted_under_a_consumer_is_an_error_and_a_declaration_repairs_it(driver):
    await driver.declare("orders", "g")
    await driver.receive("orders", "g", limit=1, wait=0.1)
    await driver._space.admin.delete_queue(driver._place("orders", "g").queue)
    with pytest.raises(QueueError), anyio.fail_after(20):
        while True:
            await driver.receive("orders", "g", limit=1, wait=0.2)
    await driver.declare("orders", "g")
    await publish(driver, b"again")
    assert [one.message.payload for one in await take(driver)] == [b"again"]


async def test_a_topic_deleted_under_a_publisher_is_made_again_and_keeps_for_the_first_group(
    driver,
):
    await driver.declare("orders", "g")
    await publish(driver, b"lost with its topic")
    for topic, group in await driver.groups():
        await driver._space.admin.delete_queue(driver._place(topic, group).queue)
    await driver._space.admin.delete_topic(driver._place("orders", "g").entity)
    await publish(driver, b"kept")
    await driver.declare("orders", "g")
    assert [one.message.payload for one in await take(driver)] == [b"kept"]


async def test_a_body_that_is_too_large_is_refused_before_anything_is_sent(driver):
    await driver.declare("orders", "g")
    with pytest.raises(MessageTooLargeError) as caught:
        await publish(driver, b"small", b"x" * 200_000)
    assert "Premium" in caught.value.hint
    assert list(await driver.receive("orders", "g", limit=10, wait=0.3)) == []


async def test_throttled_sends_are_tried_again_and_nothing_is_lost(driver, double):
    await driver.declare("orders", "g")
    await publish(driver, b"0")
    double.fault(busy=2)  # the client waits and tries again
    await publish(driver, b"1")
    double.fault(busy=50)
    with pytest.raises(AzureServiceBusQueueError) as caught:
        await publish(driver, b"2", id="unsent")
    double.fault(busy=0)
    assert caught.value.details["unconfirmed"] == ["unsent"]
    assert "throttles" in caught.value.hint
    assert [one.message.payload for one in await take(driver, 2)] == [b"0", b"1"]


@pytest.mark.parametrize("status", [429, 503])
async def test_throttled_management_is_a_typed_error_and_passes(driver, double, status):
    double.fault(throttled=1, status=status)
    await driver.declare("orders", "g")  # once: the client tries again
    await publish(driver, b"1")
    assert len(await take(driver)) == 1


async def test_a_full_topic_is_queue_full(driver, double):
    await driver.declare("orders", "g")
    double.fault(full=20)
    with pytest.raises(QueueFullError):
        await publish(driver, b"1")
    double.fault(full=0)
    await publish(driver, b"2")
    assert [one.message.payload for one in await take(driver)] == [b"2"]


def test_settings_the_service_cannot_keep_are_refused_at_once():
    with pytest.raises(ValueError, match="300 seconds"):
        AzureServiceBusDriver("x", visibility_timeout=301)
    with pytest.raises(ValueError, match="20 seconds to 7 days"):
        AzureServiceBusDriver("x", dedup_window=5)
    with pytest.raises(ValueError, match="queue_name"):
        AzureServiceBusDriver("x", queue_name="Not Good")


def test_a_configuration_makes_the_driver():
    entry = NamedQueueConfig(
        name="events",
        driver="azure_servicebus",
        visibility_timeout=60,
        azure_servicebus=AzureServiceBusDriverConfig(
            connection_str="Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKey=secret",
            queue_name="shop",
            sessions=True,
        ),
    )
    driver = build(entry, Services())
    assert (driver.prefix, driver.visibility_timeout) == ("shop", 60)
    assert repr(driver) == "AzureServiceBusDriver(shop.servicebus.windows.net, prefix='shop')"


# The runtime on it.


async def test_a_handler_longer_than_the_lock_is_not_repeated(double):
    queue = BusQueue(driver_on(settings_of(double), place_name()))
    await queue.connect()
    calls, done = [], anyio.Event()

    async def slow(message):
        calls.append(message.id)
        await anyio.sleep(LEASE * 2.5)
        done.set()

    await queue.subscribe("orders", slow)
    await queue.publish("orders", BusMessage(id="one", payload=1))
    with anyio.fail_after(30):
        await done.wait()
    await queue.close()
    assert calls == ["one"]


async def test_the_first_renewal_of_a_lock_waits_for_no_link(driver, monkeypatch):
    """To open one takes half a second and more: a short lock would be over."""
    opened, open_link = [], _links.open_link

    async def noted(link):
        if not link._running:
            opened.append(link)
        await open_link(link)

    monkeypatch.setattr(_links, "open_link", noted)
    await driver.declare("orders", "g")
    await publish(driver, b"1")
    got = await take(driver)
    assert opened  # those of the reader and the publisher, at least
    opened.clear()
    assert list(await driver.extend_many(got, LEASE)) == []
    await driver.ack_many(got)
    assert opened == []


async def test_a_renewal_is_cancelled_and_the_driver_closed_without_a_task_nobody_hears_of(double):
    """The client asks in tasks of its own; the loop tells of one whose error nobody took."""
    told, loop = [], asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context))
    for milliseconds in (1, 4, 12):
        driver = driver_on(settings_of(double), place_name())
        await driver.connect()
        await driver.declare("orders", "g")
        await publish(driver, b"1")
        got = await take(driver)
        with anyio.move_on_after(milliseconds / 1000):
            while True:
                await driver.extend_many(got, LEASE)
        await driver.close()
        del got
        gc.collect()
    loop.set_exception_handler(before)
    assert told == []


async def test_consumers_go_on_after_all_connections_were_cut(double):
    retry = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))
    queue = BusQueue(driver_on(settings_of(double), place_name()), options=retry)
    await queue.connect()
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("orders", handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: 1 in got, timeout=30)
    double.fault(disconnect=True)
    await anyio.sleep(0.1)
    with anyio.fail_after(30):
        while True:
            try:
                await queue.publish("orders", BusMessage(payload=2))
                break
            except QueueError:
                await anyio.sleep(0.1)
    await wait_until(lambda: 2 in got, timeout=30)
    await queue.close()


# Programs of others.


async def test_a_message_of_a_foreign_program_is_delivered_with_its_native_fields(driver, double):
    await driver.declare("orders", "g")
    entity = driver._place("orders", "g").entity
    async with ServiceBusClient.from_connection_string(double.connection_str) as client:
        async with client.get_topic_sender(entity) as sender:
            await sender.send_messages(
                ServiceBusMessage(
                    b'{"number": 1}',
                    message_id="theirs",
                    content_type="application/json",
                    application_properties={"tenant": "t1", "number": 7},
                )
            )
    (got,) = await take(driver)
    assert (got.message.id, got.message.topic) == ("theirs", "orders")
    assert got.message.payload == b'{"number": 1}'
    assert got.message.headers == {
        "tenant": "t1",
        "number": "7",
        "content-type": "application/json",
    }


async def test_what_the_service_set_aside_is_a_dead_letter_with_its_reason(driver):
    await driver.declare("orders", "g")
    await publish(driver, b"old", ttl=0.3)
    await wait_until(lambda: driver.list_dead("orders", "g"), timeout=20)
    entries = await driver.list_dead("orders", "g")
    assert [(one.reason, one.message.payload) for one in entries] == [
        (DeadLetterReason.EXPIRED, b"old")
    ]
    assert await driver.redrive("orders", "g") == 1


async def test_what_fails_again_during_a_redrive_is_a_dead_letter_still(driver, monkeypatch):
    """It was taken for a copy of what had gone back, and dropped."""
    monkeypatch.setattr(_dead_letters, "PAGE", 5)  # so the last page has room for others
    queue = BusQueue(driver, options=BusOptions(retry=RetryPolicy(max_retries=0)))

    async def fail(message):
        raise ValueError("no")

    async def are_dead(number):
        return await driver.count_dead("orders", "default") == number

    await queue.connect()
    await queue.subscribe("orders", fail)
    await publish(driver, *[b"1"] * 12)
    await wait_until(lambda: are_dead(12))
    send = driver._now().senders.send

    async def send_and_wait(entity, outs, *more, **options):
        await send(entity, outs, *more, **options)
        if entity == driver._place("orders", "default").queue:
            await wait_until(lambda: are_dead(12 + len(outs)))  # the first ones are there still

    monkeypatch.setattr(driver._now().senders, "send", send_and_wait)
    assert await driver.redrive("orders", "default") == 12
    assert await driver.count_dead("orders", "default") == 12
    assert len(await driver.list_dead("orders", "default")) == 12
    await queue.close()
