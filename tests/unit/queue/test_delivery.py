"""A message reaches every group once handled, whole, as published."""

from typing import Any

import anyio
import attrs
import pytest

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    QueueError,
    QueueProtocol,
)
from lexigram.contracts.queue.headers import CONTENT_TYPE
from lexigram.queue import ConsumerOptions, InMemoryQueue, MessageConsumer, ReplyTimeoutError
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.queue.core.pipeline import MiddlewareBase
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


@attrs.frozen
class Order:
    number: int
    items: list[str]


class Collector:
    def __init__(self):
        self.messages = []

    async def __call__(self, message):
        self.messages.append(message)

    @property
    def payloads(self):
        return [message.payload for message in self.messages]


async def test_the_queue_is_a_queue(queue):
    assert isinstance(queue, QueueProtocol)


async def test_publish_returns_the_message_as_sent(queue):
    sent = await queue.publish("orders", BusMessage(id="1", payload={"a": 1}))
    assert (sent.id, sent.topic, sent.payload) == ("1", "orders", {"a": 1})


async def test_two_consumer_classes_both_get_every_message_and_three_replicas_share_them(
    open_queue,
):
    broker = MemoryBroker()
    seen = {"Billing": [], "Mailing": []}

    class Billing(MessageConsumer):
        topic = "orders"

        async def handle(self, message):
            seen[type(self).__name__].append(message.payload)

    class Mailing(Billing):
        pass

    billing = Billing(await open_queue(broker))
    await billing.start()
    replicas = [Mailing(await open_queue(broker)) for _ in range(3)]
    for replica in replicas:
        await replica.start()
    for number in range(100):
        await billing._queue.publish("orders", BusMessage(payload=number))
    await wait_until(lambda: all(len(got) >= 100 for got in seen.values()))
    assert sorted(seen["Billing"]) == sorted(seen["Mailing"]) == list(range(100))
    for consumer in (billing, *replicas):
        await consumer.stop()


async def test_what_is_published_before_the_first_subscriber_is_delivered(queue):
    await queue.publish("orders", BusMessage(payload="early"))
    collect = Collector()
    await queue.subscribe("orders", collect)
    await wait_until(lambda: collect.payloads == ["early"])


async def test_a_pattern_and_a_list_of_topics(queue):
    family, pair = Collector(), Collector()
    await queue.subscribe("*Recorded", family, group="family")
    await queue.consume(ConsumerOptions(topics=("OrderRecorded", "Paid"), group="pair"), pair)
    for topic in ("OrderRecorded", "Paid", "BillRecorded"):
        await queue.publish(topic, BusMessage(payload=topic))
    await wait_until(lambda: len(family.messages) == 2 and len(pair.messages) == 2)
    assert sorted(family.payloads) == ["BillRecorded", "OrderRecorded"]
    assert sorted(pair.payloads) == ["OrderRecorded", "Paid"]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize(
    "payload", [{"a": [1, None]}, [1, 2], "text", b"\x00bytes", 7, None, True, 1.5], ids=repr
)
async def test_a_payload_comes_back_equal_and_of_its_type(open_queue, serializer, payload):
    queue, collect = await open_queue(serializer=serializer), Collector()
    await queue.subscribe("t", collect)
    await queue.publish("t", BusMessage(payload=payload))
    await wait_until(lambda: collect.messages)
    assert collect.payloads == [payload]
    assert type(collect.payloads[0]) is type(payload)


async def test_groups_and_the_publisher_never_share_a_payload(queue):
    first, second = Collector(), Collector()
    await queue.subscribe("t", first, group="a")
    await queue.subscribe("t", second, group="b")
    payload = {"items": []}
    await queue.publish("t", BusMessage(payload=payload))
    payload["items"].append("changed after publishing")
    await wait_until(lambda: first.messages and second.messages)
    first.payloads[0]["items"].append("changed by a group")
    assert second.payloads == [{"items": []}]


async def test_share_hands_the_object_on(open_queue):
    queue, collect = await open_queue(share=True), Collector()
    await queue.subscribe("t", collect)
    payload = {"a": object()}
    await queue.publish("t", BusMessage(payload=payload))
    await wait_until(lambda: collect.messages)
    assert collect.payloads[0] is payload


async def test_a_typed_payload_is_decoded_by_the_annotation_of_the_handler(queue):
    got = []

    class Shipping(MessageConsumer):
        topic = "orders"

        async def handle(self, order: Order) -> None:
            got.append(order)

    class Audit(MessageConsumer):
        topic = "orders"
        payload_type = Order

        async def handle(self, message: BusMessage) -> None:
            got.append(message.payload)

    await Shipping(queue).start()
    await Audit(queue).start()
    await queue.publish("orders", BusMessage(payload=Order(1, ["a"])))
    await wait_until(lambda: len(got) == 2)
    await queue.publish("orders", BusMessage(payload={"number": 1, "items": ["a"]}))
    await wait_until(lambda: len(got) == 4)
    assert got == [Order(1, ["a"])] * 4


async def test_a_batch_handler_gets_several_messages_at_once(queue):
    batches = []

    class Bulk(MessageConsumer):
        topic = "orders"
        batch_size = 5
        concurrency = 1

        async def handle_batch(self, messages: list[Order]) -> None:
            batches.append(messages)

    for number in range(12):
        await queue.publish("orders", BusMessage(payload=Order(number, [])))
    await Bulk(queue).start()
    await wait_until(lambda: sum(map(len, batches)) == 12)
    assert [order.number for batch in batches for order in batch] == list(range(12))
    assert max(map(len, batches)) == 5
    (group,) = queue.driver.broker.groups.values()
    await wait_until(lambda: group.count == 0)


async def test_a_batch_goes_out_in_order_with_one_call(queue):
    collect = Collector()
    await queue.subscribe("t", collect)
    sent = await queue.publish_many("t", [BusMessage(payload=number) for number in range(1000)])
    assert {message.topic for message in sent} == {"t"}
    await wait_until(lambda: len(collect.messages) == 1000)
    assert collect.payloads == list(range(1000))


async def test_a_request_gets_its_answer(queue):
    async def double(message):
        await queue.reply(message, message.payload * 2)

    await queue.subscribe("double", double)
    answers = [await queue.request("double", BusMessage(payload=number)) for number in (1, 2)]
    assert [answer.payload for answer in answers] == [2, 4]


async def test_a_request_nobody_answers_times_out_and_expires(queue):
    with pytest.raises(ReplyTimeoutError, match="no reply"):
        await queue.request("nobody", BusMessage(payload=1), timeout=0.02)
    late = Collector()
    await queue.subscribe("nobody", late)
    group = queue.driver.broker.groups["nobody", "default"]
    await wait_until(lambda: group.dead)
    assert late.messages == []


async def test_answering_what_is_no_question_does_nothing(queue):
    await queue.reply(BusMessage(payload=1), "nobody asked")


async def test_a_scheduled_message_comes_when_it_is_due(open_queue):
    queue, collect = await open_queue(), Collector()
    await queue.subscribe("t", collect)
    await queue.publish("t", BusMessage(payload="later"), delay=0.05)
    await queue.publish("t", BusMessage(payload="now"))
    await wait_until(lambda: len(collect.messages) == 2)
    assert collect.payloads == ["now", "later"]


async def test_messages_of_an_ordering_key_are_handled_one_by_one_in_order(queue):
    running, order = set(), []

    async def handle(message):
        key = message.headers["ordering-key"]
        assert key not in running
        running.add(key)
        await anyio.sleep(0.001)
        running.remove(key)
        order.append(message.payload)

    await queue.subscribe("t", handle)
    for number in range(20):
        for key in ("a", "b"):
            await queue.publish("t", BusMessage(payload=(key, number)), ordering_key=key)
    await wait_until(lambda: len(order) == 40)
    for key in ("a", "b"):
        assert [n for k, n in order if k == key] == list(range(20))


async def test_the_most_urgent_comes_first(open_queue):
    queue, collect = await open_queue(concurrency=1, prefetch=1), Collector()
    for level in (0, 9, 5):
        await queue.publish("t", BusMessage(payload=level, priority=level))
    await queue.subscribe("t", collect)
    await wait_until(lambda: len(collect.messages) == 3)
    assert collect.payloads == [9, 5, 0]


async def test_an_id_is_taken_once_within_the_window(open_queue):
    queue, collect = await open_queue(MemoryBroker(dedup_window=60)), Collector()
    await queue.subscribe("t", collect)
    await queue.publish("t", BusMessage(id="same", payload=1))
    await queue.publish("t", BusMessage(id="same", payload=2))
    await queue.publish("t", BusMessage(id="other", payload=3))
    await wait_until(lambda: len(collect.messages) == 2)
    assert collect.payloads == [1, 3]


async def test_default_ttl_and_retries_are_given_to_messages_that_have_none(open_queue):
    queue = await open_queue(default_ttl=60.0, max_retries=7)
    sent = await queue.publish("t", BusMessage(payload=1))
    assert (sent.ttl, sent.max_retries) == (60.0, 7)
    own = await queue.publish("t", BusMessage(payload=1, ttl=5.0, max_retries=1))
    assert (own.ttl, own.max_retries) == (5.0, 1)


async def test_middleware_wraps_in_order_and_may_stop_a_message(queue):
    seen = []

    class Note(MiddlewareBase):
        def __init__(self, name):
            self.name = name

        async def process(self, message, next_handler):
            seen.append(f"{self.name} in")
            if message.payload != "stop" or self.name != "inner":
                await next_handler(message)
            seen.append(f"{self.name} out")

    queue.pipeline.add(Note("outer"))

    async def handle(message):
        seen.append(message.payload)

    await queue.consume(ConsumerOptions(topics=("t",), middleware=[Note("inner")]), handle)
    await queue.publish("t", BusMessage(payload="go"))
    await wait_until(lambda: len(seen) == 5)
    assert seen == ["outer in", "inner in", "go", "inner out", "outer out"]
    seen.clear()
    await queue.publish("t", BusMessage(payload="stop"))
    await wait_until(lambda: len(seen) == 4)
    await wait_until(lambda: queue.driver.broker.groups["t", "default"].count == 0)


async def test_what_a_driver_cannot_do_is_refused_when_asked_for(open_queue):
    class Plain(MemoryDriver):
        capabilities = MemoryDriver.capabilities - {
            Capability.PRIORITY,
            Capability.ORDERING,
            Capability.SCHEDULE,
            Capability.PATTERN,
        }

    queue = await open_queue(driver=Plain())
    with pytest.raises(CapabilityError, match="does not support priority"):
        await queue.publish("t", BusMessage(priority=1))
    with pytest.raises(CapabilityError, match="does not support ordering"):
        await queue.publish("t", BusMessage(), ordering_key="a")
    with pytest.raises(CapabilityError, match="does not support schedule"):
        await queue.publish("t", BusMessage(), delay=1)
    with pytest.raises(CapabilityError, match="pattern"):
        await queue.subscribe("t*", Collector())


@pytest.mark.parametrize("headers", [{"ce-id": "x"}, {"Ce-Time": "x"}, {"a": 1}, {2: "b"}], ids=str)
async def test_headers_that_would_be_misread_are_refused(queue, headers):
    with pytest.raises(QueueError):
        await queue.publish("t", BusMessage(headers=headers))


async def test_a_queue_that_is_not_connected_says_so():
    queue = InMemoryQueue()
    with pytest.raises(RuntimeError, match="not connected"):
        await queue.publish("t", BusMessage())
    with pytest.raises(RuntimeError, match="not connected"):
        await queue.subscribe("t", Collector())


async def test_connecting_and_closing_twice_is_fine():
    queue = InMemoryQueue()
    await queue.connect()
    await queue.connect()
    await queue.close()
    await queue.close()


def test_max_concurrency_is_at_least_one():
    with pytest.raises(ValueError, match="at least 1"):
        InMemoryQueue(max_concurrency=0)


async def test_bytes_with_a_content_type_of_the_sender_are_sent_as_they_are(queue):
    collect = Collector()
    await queue.subscribe("t", collect)
    headers = {CONTENT_TYPE: "application/cloudevents+json; charset=utf-8"}
    await queue.publish("t", BusMessage(payload=b'{"a": 1}', headers=headers))
    await queue.publish("t", BusMessage(payload=b"plain", headers={CONTENT_TYPE: "text/plain"}))
    await wait_until(lambda: len(collect.messages) == 2)
    assert collect.payloads == [{"a": 1}, "plain"]


async def test_a_consumer_without_a_handler_is_refused(queue):
    class Nothing(MessageConsumer):
        topic = "t"

    with pytest.raises(TypeError, match="neither handle"):
        await Nothing(queue).start()


async def test_a_consumer_that_started_twice_receives_once(queue):
    got: list[Any] = []

    class Once(MessageConsumer):
        topic = "t"

        async def handle(self, message):
            got.append(message.payload)

    consumer = Once(queue)
    await consumer.start()
    await consumer.start()
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: got == [1])
    await consumer.stop()
    await consumer.stop()
    assert queue.subscriptions == []
