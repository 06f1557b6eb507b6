"""The sqs driver on moto's server (a double): what its suite cannot ask: errors, faults, large bodies,
foreign programs."""

import json
import time
from dataclasses import replace

import anyio
import pytest
from botocore.exceptions import EndpointConnectionError
from tests.doubles.sqs.places import SQSDouble, driver_on, place_name

from lexigram.blobs import BlobConfig, BlobModule, BlobStore
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.blobs import BlobError
from lexigram.contracts.queue import (
    BusMessage,
    CapabilityError,
    DeadLetterEntry,
    DeadLetterReason,
    MessageTooLargeError,
    QueueError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, ORDERING_KEY
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.backends.services import Services
from lexigram.queue.backends.sqs import SQSDriver, SQSQueue, build
from lexigram.queue.backends.sqs._wire import DUE, LONGEST_LEASE, inline, read_received, wire
from lexigram.queue.config import NamedQueueConfig, SQSDriverConfig
from lexigram.queue.errors import SQSQueueError
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def double():
    with SQSDouble() as running:
        yield running


@pytest.fixture
async def make(double):
    """Makes connected drivers on a place of this test."""
    prefix, made = place_name(), []

    async def make(**more):
        driver = driver_on(double.settings, prefix, **more)
        await driver.connect()
        made.append(driver)
        return driver

    yield make
    for driver in made:
        await driver.close()


@pytest.fixture
async def driver(make):
    return await make()


@pytest.fixture
async def blobs():
    return await BlobStore.open(BlobConfig(scheme="memory"))


async def publish(driver, *bodies, topic="orders", **fields):
    messages = [BusMessage(topic=topic, payload=body, **fields) for body in bodies]
    await driver.publish_many(messages)
    return messages


async def take(driver, number=1, topic="orders", group="g"):
    got = []
    with anyio.fail_after(20):
        while len(got) < number:
            got += await driver.receive(topic, group, limit=number - len(got), wait=1)
    return got


class Meeting:
    """A call of the client that goes through when ``number`` of them are under way, after ``alone``."""

    def __init__(self, call, number, alone=0):
        self.call, self.number, self.alone = call, number, alone
        self.all = anyio.Event()

    async def __call__(self, **asked):
        if self.alone:
            self.alone -= 1
            return await self.call(**asked)
        self.number -= 1
        if not self.number:
            self.all.set()
        await self.all.wait()
        return await self.call(**asked)


# Under load.


@pytest.mark.parametrize(
    ("request_name", "settle"),
    [
        ("delete_message_batch", SQSDriver.ack_many),
        ("change_message_visibility_batch", SQSDriver.release_many),
        ("change_message_visibility_batch", lambda driver, held: driver.extend_many(held, 5)),
    ],
    ids=["ack", "release", "extend"],
)
async def test_many_messages_are_settled_by_requests_side_by_side(
    make, monkeypatch, request_name, settle
):
    driver = await make(visibility_timeout=60.0)
    await driver.declare("orders", "g")
    await publish(driver, *(b"%d" % number for number in range(25)))
    held = await take(driver, 25)
    client = driver._space.asking
    monkeypatch.setattr(client, request_name, Meeting(getattr(client, request_name), 3))
    with anyio.fail_after(20):
        await settle(driver, held)


async def test_one_receive_asks_for_several_pages_at_once(make, monkeypatch):
    driver = await make(visibility_timeout=60.0)
    await driver.declare("orders", "g")
    await publish(driver, *(b"%d" % number for number in range(35)))
    client = driver._space.reading
    meeting = Meeting(client.receive_message, 2, alone=1)
    monkeypatch.setattr(client, "receive_message", meeting)
    with anyio.fail_after(20):
        got = await driver.receive("orders", "g", limit=30, wait=0)
    assert len({one.message.id for one in got}) == 30


async def test_what_came_is_delivered_although_the_next_request_failed(make, monkeypatch):
    driver = await make(visibility_timeout=60.0)
    await driver.declare("orders", "g")
    await publish(driver, *(b"%d" % number for number in range(25)))
    real, calls = driver._space.reading.receive_message, []

    async def receive_message(**asked):
        calls.append(asked)
        if len(calls) == 2:
            raise EndpointConnectionError(endpoint_url="here")
        return await real(**asked)

    monkeypatch.setattr(driver._space.reading, "receive_message", receive_message)
    got = await driver.receive("orders", "g", limit=20, wait=0)
    assert len(got) == 10
    assert len(await driver.receive("orders", "g", limit=20, wait=0)) == 15


async def stored(blobs):
    return [info.path async for info in blobs.list("")]


def url_of(driver, queue):
    return driver._space.urls[queue]


# Errors say what to do.


async def test_wrong_credentials_are_a_typed_error_with_the_fix(double):
    wrong = {**double.settings, "access_key_id": "wrong", "secret_access_key": "hidden"}
    driver = driver_on(wrong, "x")
    with pytest.raises(SQSQueueError) as caught:
        await driver.connect()
    assert caught.value.code == "LEX_ERR_QUEUE_005"
    assert "access_key_id" in caught.value.hint
    assert "hidden" not in str(caught.value)
    assert (await driver.health_check()).status is HealthStatus.UNHEALTHY


async def test_a_service_that_does_not_answer_is_a_typed_error(double):
    nowhere = {**double.settings, "endpoint_url": "http://127.0.0.1:1"}
    driver = driver_on(nowhere, "x", timeout=1.0)
    with pytest.raises(SQSQueueError, match=r"127\.0\.0\.1:1"):
        await driver.connect()


async def test_a_missing_group_is_a_typed_error_with_the_fix(driver):
    with pytest.raises(SQSQueueError) as caught:
        await driver.receive("orders", "nobody", limit=1, wait=0)
    assert "declare" in caught.value.hint


async def test_a_queue_deleted_under_a_consumer_is_an_error_and_a_declaration_repairs_it(driver):
    await driver.declare("orders", "g")
    queue = driver._place("orders", "g").queue
    await driver._space.asking.delete_queue(QueueUrl=url_of(driver, queue))
    with pytest.raises(SQSQueueError) as caught:
        await driver.receive("orders", "g", limit=1, wait=0)
    assert "declare" in caught.value.hint
    await driver.declare("orders", "g")
    await publish(driver, b"again")
    assert [one.message.payload for one in await take(driver)] == [b"again"]


@pytest.mark.parametrize(("status", "code"), [(503, "ServiceUnavailable"), (429, "Throttling")])
async def test_throttled_sends_are_tried_again_and_nothing_is_lost(driver, double, status, code):
    await driver.declare("orders", "g")
    double.fault("SendMessageBatch", 1, status, code)  # the client waits and tries again
    await publish(driver, b"1")
    double.fault("SendMessageBatch", 50, status, code)
    with pytest.raises(SQSQueueError) as caught:
        await publish(driver, b"2", id="unsent")
    double.fault("SendMessageBatch", 0)
    assert caught.value.details["unconfirmed"] == ["unsent"]
    assert "throttles" in caught.value.hint
    assert [one.message.payload for one in await take(driver)] == [b"1"]
    assert list(await driver.receive("orders", "g", limit=1, wait=0.2)) == []


async def test_a_consumer_goes_on_when_receiving_was_throttled(driver, double):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    async with BusQueue(driver, options=BusOptions(retry=RetryPolicy(base=0.01))) as queue:
        await queue.subscribe("orders", handle)
        double.fault("ReceiveMessage", 3, 400, "RequestThrottled")
        await queue.publish("orders", BusMessage(payload=1))
        await wait_until(lambda: handled == [1], timeout=30)


async def test_a_group_dropped_less_than_a_minute_ago_is_waited_for(driver, double):
    code = "AWS.SimpleQueueService.QueueDeletedRecently"
    double.fault("CreateQueue", 1, 400, code)
    await driver.declare("orders", "g")
    assert await driver.groups() == [("orders", "g")]


def test_settings_that_sqs_cannot_keep_are_refused():
    with pytest.raises(ValueError, match="fifo"):
        SQSDriver(dedup_window=60)
    with pytest.raises(ValueError, match="300"):
        SQSDriver(config=SQSDriverConfig(fifo=True), dedup_window=600)
    with pytest.raises(ValueError, match="20 characters"):
        SQSDriver(prefix="no.dots")
    with pytest.raises(ValueError, match="43200"):
        SQSDriver(visibility_timeout=50_000)
    with pytest.raises(ValueError, match="queue_url"):
        SQSQueue(queue_url="shop")


def test_the_configuration_is_the_driver():
    own = SQSDriverConfig(queue_url="https://sqs.eu-west-1.amazonaws.com/123456789012/shop")
    driver = build(NamedQueueConfig(name="a", driver="sqs", sqs=own), Services())
    assert (driver.prefix, driver.address) == ("shop", "https://sqs.eu-west-1.amazonaws.com")
    assert driver.visibility_timeout == 30
    longer = SQSDriverConfig(visibility_timeout=90, fifo=True)
    driver = build(NamedQueueConfig(name="a", driver="sqs", sqs=longer), Services())
    assert driver.visibility_timeout == 90
    assert driver.fifo


# Groups, without topics.


async def test_a_publisher_with_a_list_of_groups_does_not_miss_a_new_one(make):
    publisher, consumer = await make(groups_refresh=0.5), await make(groups_refresh=0.5)
    await publisher.declare("orders", "old")
    await publish(publisher, b"1")  # the list is fresh now
    await consumer.declare("orders", "new")
    await publish(publisher, b"2")
    assert [one.message.payload for one in await take(consumer, group="new")] == [b"2"]


async def test_what_is_sent_to_a_group_that_was_just_dropped_is_kept_for_the_next(make):
    operator = await make()
    await operator.declare("orders", "g")
    publisher = await make(groups_refresh=60.0)
    await publish(publisher, b"1")
    await operator.drop("orders", "g")
    await publish(publisher, b"2")
    await operator.declare("orders", "later")
    assert [one.message.payload for one in await take(operator, group="later")] == [b"2"]


async def test_other_groups_get_a_message_although_one_was_just_dropped(make):
    operator = await make()
    await operator.declare("orders", "g")
    await operator.declare("orders", "gone")
    publisher = await make(groups_refresh=60.0)
    await publish(publisher, b"1")
    await operator.drop("orders", "gone")
    await publish(publisher, b"2")
    assert [one.message.payload for one in await take(operator, 2)] == [b"1", b"2"]


async def test_a_scheduled_message_is_kept_for_the_first_group_too(driver):
    at = {DELIVER_AT: str(time.time() + 1.0)}
    await publish(driver, b"later", headers=at)
    await driver.declare("orders", "g")
    assert [one.message.payload for one in await take(driver)] == [b"later"]
    assert time.time() >= float(at[DELIVER_AT])


# Large bodies.


async def test_without_a_blob_store_a_body_that_is_too_large_is_refused_before_anything_is_sent(
    driver,
):
    await driver.declare("orders", "g")
    for large in (b"x" * 1_000_000, b"\xff" * 800_000):
        with pytest.raises(MessageTooLargeError) as caught:
            await publish(driver, b"small", large)
        assert BlobModule.__name__ in caught.value.hint.replace(":", " ").split()
    with pytest.raises(MessageTooLargeError):
        await publish(driver, b"small", headers={"h": "x" * 40_000})
    assert list(await driver.receive("orders", "g", limit=10, wait=0.2)) == []


async def test_a_large_body_is_in_the_blob_store_until_its_group_has_settled_it(make, blobs):
    driver = await make(blobs=blobs, inline_bytes=100)
    await driver.declare("orders", "g")
    await driver.declare("orders", "other")
    large = b"x" * 2_000_000
    await publish(driver, large, b"small")
    assert len(await stored(blobs)) == 2  # one for each group
    got = await take(driver, 2)
    assert sorted(len(one.message.payload) for one in got) == [5, 2_000_000]
    await driver.ack_many(got)
    assert len(await stored(blobs)) == 1
    assert {one.message.payload for one in await take(driver, 2, group="other")} == {
        large,
        b"small",
    }
    await driver.drop("orders", "other")
    assert await stored(blobs) == []


async def test_a_large_body_survives_retry_dead_letter_and_redrive(make, blobs):
    driver = await make(blobs=blobs, inline_bytes=100)
    await driver.declare("orders", "g")
    large = b"x" * 2_000_000
    await publish(driver, large)
    [held] = await take(driver)
    await driver.nack(held, message=replace(held.message, retry_count=1))
    [held] = await take(driver)
    assert held.message.retry_count == 1
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="x", group="g"))
    [dead] = await driver.list_dead("orders", "g")
    assert dead.message.payload == large
    assert await driver.redrive("orders", "g") == 1
    [held] = await take(driver)
    assert held.message.payload == large
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="x", group="g"))
    assert len(await stored(blobs)) == 1
    assert await driver.purge_dead("orders", "g") == 1
    assert await stored(blobs) == []


async def test_a_body_that_was_lost_is_delivered_as_what_could_be_read(make, blobs):
    driver = await make(blobs=blobs, inline_bytes=10)
    await driver.declare("orders", "g")
    await publish(driver, b"x" * 100)
    [path] = await stored(blobs)
    await blobs.delete(path)
    [held] = await take(driver)
    assert json.loads(held.message.payload)["path"] == path


async def test_messages_come_again_when_the_blob_store_was_down(make, blobs, monkeypatch):
    driver = await make(blobs=blobs, inline_bytes=10)
    await driver.declare("orders", "g")
    await publish(driver, b"x" * 100, b"small")

    async def down(*_, **__):
        raise BlobError("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(type(blobs), "download", down)
        with pytest.raises(SQSQueueError, match="the store is down"):
            await driver.receive("orders", "g", limit=10, wait=0)
        patch.setattr(type(blobs), "upload", down)
        with pytest.raises(QueueError) as caught:
            await publish(driver, b"y" * 100, id="unsent")
        assert caught.value.details["unconfirmed"] == ["unsent"]
    assert {one.message.payload for one in await take(driver, 2)} == {b"x" * 100, b"small"}


# Long delays.


def test_a_delay_beyond_fifteen_minutes_is_carried_on_when_it_is_received():
    message = BusMessage(topic="t", payload=b"x")
    short, long = (wire(message, inline(b"x"), "q", delay=seconds) for seconds in (60, 100_000))
    assert short["DelaySeconds"] == 60
    assert DUE not in json.dumps(short)
    assert long["DelaySeconds"] == 900
    raw = {"MessageId": "1", "ReceiptHandle": "h", "Body": "x", **long}
    sent = str(int(time.time() * 1000))
    raw["Attributes"] = {"ApproximateReceiveCount": "4", "SentTimestamp": sent}
    one = read_received(raw)
    assert one.due == pytest.approx(time.time() + 100_000, abs=60)
    # Three times it was hidden again, up to twelve hours each: they are no deliveries.
    assert (100_000 - 900) / LONGEST_LEASE < 3
    assert one.deliveries(fifo=False) == 1
    assert one.message("t", one.payload()) == message


async def test_a_message_that_is_not_due_is_hidden_until_it_is(driver):
    await driver.declare("orders", "g")
    due = time.time() + 1.5
    attribute = {"DataType": "String", "StringValue": repr(due)}
    await driver._space.asking.send_message(
        QueueUrl=url_of(driver, driver._place("orders", "g").queue),
        MessageBody="later",
        MessageAttributes={DUE: attribute},
    )
    assert list(await driver.receive("orders", "g", limit=1, wait=0.3)) == []
    assert await driver.lag("orders", "g") == 0
    assert await driver.depth("orders", "g") == 1
    assert [one.message.payload for one in await take(driver)] == [b"later"]
    assert time.time() >= due


async def test_a_delay_sqs_cannot_keep_is_refused(driver):
    await driver.declare("orders", "g")
    late = {DELIVER_AT: str(time.time() + 20 * 86400)}
    with pytest.raises(CapabilityError) as caught:
        await publish(driver, b"x", headers=late)
    assert "13 days" in caught.value.hint


# Keys.


async def test_of_a_key_one_message_is_out_at_a_time_and_waiting_is_no_delivery(make):
    driver = await make(fifo=True)
    await driver.declare("orders", "g")
    await publish(driver, *(b"%d" % n for n in range(6)), headers={ORDERING_KEY: "k"})
    await publish(driver, b"free")
    seen = []
    while len(seen) < 7:
        got = await driver.receive("orders", "g", limit=10, wait=1)
        keyed = [one for one in got if ORDERING_KEY in one.message.headers]
        assert len(keyed) <= 1
        assert {one.delivery_count for one in got} == {1}
        seen += [one.message.payload for one in got]
        await driver.ack_many(got)
    assert [body for body in seen if body != b"free"] == [b"%d" % n for n in range(6)]


# Foreign programs.


async def test_a_message_on_the_wire_is_a_bare_body_with_ten_attributes_at_most(driver):
    await driver.declare("orders", "g")
    odd = {"with space": "1", "empty": "", "control": "a\x00b", "AWS.x": "y", "Umlaut": "ü"}
    headers = {**{f"h{number}": str(number) for number in range(20)}, **odd}
    [sent] = await publish(driver, b'{"number": 1}', headers=headers, ttl=60.0)
    raw = await driver._space.asking.receive_message(
        QueueUrl=url_of(driver, driver._place("orders", "g").queue),
        MessageAttributeNames=["All"],
        VisibilityTimeout=0,
    )
    [message] = raw["Messages"]
    assert message["Body"] == '{"number": 1}'
    assert len(message["MessageAttributes"]) == 10
    assert message["MessageAttributes"]["ce-id"]["StringValue"] == sent.id
    assert (await take(driver))[0].message == sent


async def test_a_message_of_a_foreign_producer_is_a_message_and_keeps_its_id(driver):
    await driver.declare("orders", "g")
    attribute = {"DataType": "String", "StringValue": "t1"}
    answer = await driver._space.asking.send_message(
        QueueUrl=url_of(driver, driver._place("orders", "g").queue),
        MessageBody='{"number": 1}',
        MessageAttributes={"tenant": attribute, "raw": {"DataType": "Binary", "BinaryValue": b"b"}},
    )
    for _ in range(2):
        [held] = await take(driver)
        assert held.message.id == answer["MessageId"]
        assert held.message.payload == b'{"number": 1}'
        assert held.message.headers == {"tenant": "t1", "raw": "b"}
        await driver.release_many([held])


async def test_what_the_redrive_policy_set_aside_is_listed_and_comes_back(driver):
    await driver.declare("orders", "g")
    place = driver._place("orders", "g")
    facts = await driver._space.facts_of(place.queue)
    policy = json.loads(facts["RedrivePolicy"])
    assert int(policy["maxReceiveCount"]) == 1000  # far above what the runtime allows
    policy["maxReceiveCount"] = 1
    await driver._space.asking.set_queue_attributes(
        QueueUrl=url_of(driver, place.queue), Attributes={"RedrivePolicy": json.dumps(policy)}
    )
    [sent] = await publish(driver, b"1")
    await driver.release_many(await take(driver))
    assert list(await driver.receive("orders", "g", limit=1, wait=0.2)) == []
    [dead] = await driver.list_dead("orders", "g")
    assert (dead.message, dead.reason) == (sent, DeadLetterReason.POISON)
    assert await driver.redrive("orders", "g") == 1
    assert (await take(driver))[0].message == sent


async def test_a_dead_letter_moved_by_sqs_itself_begins_anew(driver):
    await driver.declare("orders", "g")
    place = driver._place("orders", "g")
    await publish(driver, b"1")
    [held] = await take(driver)
    failed = replace(held.message, retry_count=3)
    await driver.dead_letter(held, DeadLetterEntry(message=failed, error="boom", group="g"))
    # As StartMessageMoveTask does it, which moto has not: the message as it is.
    asking = driver._space.asking
    raw = await asking.receive_message(
        QueueUrl=url_of(driver, place.dead), MessageAttributeNames=["All"]
    )
    [message] = raw["Messages"]
    await asking.send_message(
        QueueUrl=url_of(driver, place.queue),
        MessageBody=message["Body"],
        MessageAttributes=message["MessageAttributes"],
    )
    assert (await take(driver))[0].message == replace(failed, retry_count=0)


async def test_a_connect_that_fails_leaves_the_driver_as_it_was(driver, double):
    await driver.declare("orders", "g")
    double.fault("ListQueues", 50)
    with pytest.raises(SQSQueueError):
        await driver.connect()
    double.fault("ListQueues", 0)
    await publish(driver, b"1")
    assert [one.message.payload for one in await take(driver)] == [b"1"]
