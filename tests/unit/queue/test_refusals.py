"""What no broker can be given is refused at every way into the bus, by the name of the field.

The bounds themselves are held on every driver by the conformance suite of queues
(``lexigram.testing.conformance.queue.protocol.refusing``).
"""

from dataclasses import replace

import pytest

from lexigram.contracts.queue import (
    CORE_CAPABILITIES,
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterReason,
    InvalidMessageError,
    MessageTooLargeError,
)
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.contracts.queue.limits import MAX_SECONDS
from lexigram.hooks import HookRegistry
from lexigram.queue import BatchedPublisher, BusQueue, ConsumerOptions, RetryPolicy
from lexigram.queue.backends.kafka import KafkaDriver
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dlq import BusDeadLetters
from lexigram.queue.outbox.outbox import TransactionalOutbox
from lexigram.testing import wait_until
from lexigram.testing.conformance.queue.protocol.refusing import FIELDS, TOPICS

pytestmark = pytest.mark.anyio

BAD = BusMessage(id="", payload=1)


async def nothing(message):
    pass


@pytest.fixture
def taken(queue):
    """Payloads that the broker got, by topic."""
    return lambda: {
        name: [message.payload for message in topic.backlog]
        for name, topic in queue.driver.broker.topics.items()
    }


async def by_publish(queue, topic, message):
    await queue.publish(topic, message)


async def by_schedule(queue, topic, message):
    await queue.publish(topic, message, delay=60)


async def by_publish_many(queue, topic, message):
    await queue.publish_many(topic, [BusMessage(), message])


async def by_request(queue, topic, message):
    await queue.request(topic, message, timeout=0.01)


async def by_batch(queue, topic, message):
    BatchedPublisher(queue).stage(topic, message)


async def by_outbox(queue, topic, message):
    await TransactionalOutbox(queue, name="q").stage(topic, message)


async def by_outbox_of_a_foreign_queue(_, topic, message):
    await TransactionalOutbox(Foreign(), name="q").stage(topic, message)


WAYS = [
    by_publish,
    by_schedule,
    by_publish_many,
    by_request,
    by_batch,
    by_outbox,
    by_outbox_of_a_foreign_queue,
]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_into_the_bus_refuses_the_same(queue, taken, way):
    for topic in TOPICS:
        with pytest.raises(InvalidMessageError) as caught:
            await way(queue, topic, BusMessage(payload=1))
        assert caught.value.details["field"] == "topic", topic
    for field, wrong in FIELDS:
        if way is by_schedule and DELIVER_AT in wrong.get("headers", {}):
            continue  # the delay replaces it
        with pytest.raises(InvalidMessageError) as caught:
            await way(queue, "orders", BusMessage(payload=1, **wrong))
        assert caught.value.details["field"] == field, wrong
    assert "orders" not in taken()


@pytest.mark.parametrize("way", WAYS[:-1])
@pytest.mark.parametrize(
    "wanted",
    [{"headers": {"fairness-key": "t"}}, {"headers": {"ordering-key": "k"}}, {"priority": 1}],
)
async def test_every_way_refuses_what_the_driver_does_not_declare(open_queue, way, wanted):
    class Plain(MemoryDriver):
        capabilities = CORE_CAPABILITIES | {Capability.SCHEDULE}

    queue = await open_queue(driver=Plain())
    with pytest.raises(CapabilityError):
        await way(queue, "orders", BusMessage(payload=1, **wanted))


@pytest.mark.parametrize(
    "delay",
    [float("inf"), float("-inf"), float("nan"), 1e300, -1, -0.5, MAX_SECONDS + 1, "5", None],
    ids=repr,
)
async def test_a_delay_that_is_no_time_is_refused_by_name(queue, taken, delay):
    if delay is None:
        await queue.publish("t", BusMessage(payload=1), delay=delay)  # as without one
        assert taken() == {"t": [1]}
        return
    with pytest.raises(InvalidMessageError, match="delay") as caught:
        await queue.publish("t", BusMessage(payload=1), delay=delay)
    assert caught.value.details["field"] == "delay"
    assert taken() == {}


async def test_a_delay_within_bounds_is_taken(queue):
    for delay in (0, 1, MAX_SECONDS):
        sent = await queue.publish("t", BusMessage(payload=1), delay=delay)
        assert DELIVER_AT in sent.headers


async def test_one_bad_message_refuses_its_whole_batch_before_anything_is_sent(queue, taken):
    with pytest.raises(InvalidMessageError, match=r"^\[LEX_ERR_QUEUE_111\] id '' is empty"):
        await queue.publish_many("t", [BusMessage(payload=1), BAD])
    assert taken() == {}


async def test_what_a_filter_made_of_a_message_is_checked_too(queue, taken):
    hooks = HookRegistry()
    hooks.register_filter(
        "message.publishing", lambda message, topic: replace(message, priority=99)
    )
    queue.set_hook_registry(hooks)
    with pytest.raises(InvalidMessageError, match="priority 99"):
        await queue.publish("t", BusMessage(payload=1))
    assert taken() == {}


async def test_an_error_names_message_topic_and_fix_and_no_value_of_a_header(queue):
    with pytest.raises(InvalidMessageError) as caught:
        await queue.publish("orders", BusMessage(id="m1", headers={"authorization": "secret\n"}))
    error = caught.value
    assert error.message == "header authorization contains the character U+000A"
    assert error.hint == "remove control characters, line breaks and lone surrogates"
    assert (error.topic, error.details["message_id"]) == ("orders", "'m1'")
    assert "secret" not in f"{error} {error.details}"


async def test_retries_are_compared_with_what_the_queue_allows(open_queue):
    queue = await open_queue(max_retries=7)
    await queue.publish("t", BusMessage(payload=1, retry_count=7))
    with pytest.raises(
        InvalidMessageError, match=r"retry_count 8 is not .* 0 to 7 \(max_retries\)"
    ):
        await queue.publish("t", BusMessage(payload=1, retry_count=8))


async def test_the_batched_publisher_refuses_when_it_is_staged(queue, taken):
    batch = BatchedPublisher(queue)
    batch.stage("t", BusMessage(payload=1))
    with pytest.raises(InvalidMessageError, match="id"):
        batch.stage("t", BAD)
    with pytest.raises(InvalidMessageError, match="topic"):
        batch.stage("*", BusMessage(payload=1))
    await batch.flush()
    assert taken() == {"t": [1]}


class Foreign:
    """A complete queue of somebody else, which checks nothing."""

    async def publish(self, topic, message):
        return message


@pytest.mark.parametrize("is_foreign", [False, True])
async def test_an_outbox_refuses_when_it_is_staged_whatever_its_queue(queue, is_foreign):
    outbox = TransactionalOutbox(Foreign() if is_foreign else queue, name="q")
    with pytest.raises(InvalidMessageError, match="id"):
        await outbox.stage("t", BAD)
    with pytest.raises(InvalidMessageError, match="topic"):
        await outbox.stage("", BusMessage(payload=1))
    assert await outbox.pending() == 0


@pytest.mark.parametrize("topic", ["a\0", "a\ud800", "orders.>", "x" * 256], ids=ascii)
async def test_a_consumer_of_a_topic_that_cannot_be_is_refused(queue, topic):
    with pytest.raises(InvalidMessageError, match="topic"):
        await queue.subscribe(topic, nothing)
    assert queue.subscriptions == []


@pytest.mark.parametrize("group", ["", "a\n", "x" * 256], ids=ascii)
async def test_a_group_that_cannot_be_is_refused(queue, group):
    with pytest.raises(InvalidMessageError, match="group"):
        await queue.consume(ConsumerOptions(topics=("t",), group=group), nothing)
    assert queue.subscriptions == []


@pytest.mark.parametrize("topic", ["", "*", "a\0"], ids=ascii)
def test_a_policy_that_publishes_to_no_topic_is_refused_where_it_is_made(topic):
    with pytest.raises(InvalidMessageError, match="topic"):
        RetryPolicy(publish_to=topic)


@pytest.mark.parametrize("kind", [NATSDriver, RabbitMQDriver, KafkaDriver])
async def test_a_fairness_key_is_refused_where_the_driver_declares_none(open_queue, kind):
    class Plain(MemoryDriver):
        capabilities = kind().capabilities | {Capability.PUBLISH}

    queue = await open_queue(driver=Plain())
    with pytest.raises(CapabilityError, match="does not support fairness"):
        await queue.publish("t", BusMessage(), fairness_key="tenant")
    with pytest.raises(CapabilityError, match="does not support fairness"):
        await queue.publish("t", BusMessage(headers={"fairness-key": "tenant"}))
    with pytest.raises(CapabilityError, match="does not support fairness"):
        await TransactionalOutbox(queue).stage("t", BusMessage(headers={"fairness-key": "tenant"}))


async def test_a_letter_with_any_text_as_its_reason_is_kept(queue):
    """Reasons are texts of errors: with line breaks, sometimes with a NUL of the input."""
    letters = BusDeadLetters(BusControl({"memory": queue}))
    reason = "line one\nline two\0\ud800 100 %"
    await letters.add("id\n%41", {"n": 1}, reason, {"topic": "orders"})
    (letter,) = await letters.list_failed()
    assert (letter.message_id, letter.metadata) == ("id\n%41", {"topic": "orders"})
    assert letter.reason.startswith("line one\nline two\0")
    assert letter.reason.endswith(" 100 %")


@pytest.mark.parametrize("headers", [{}, {"letter-facts": "not JSON"}])
async def test_a_foreign_message_among_the_letters_is_listed(queue, headers):
    letters = BusDeadLetters(BusControl({"memory": queue}))
    await letters.add("mine", 1, "by hand")
    await queue.publish("lexigram.dead-letters", BusMessage(id="foreign", headers=headers))
    await letters.add("other", 2, "by hand")
    await wait_until(lambda: letters.size())
    found = {letter.message_id: letter for letter in await letters.list_failed()}
    assert set(found) == {"mine", "other", "foreign"}


async def test_a_queue_that_checks_by_itself_needs_no_broker():
    queue = BusQueue(MemoryDriver())  # not connected
    with pytest.raises(InvalidMessageError):
        await queue.publish("", BusMessage())


async def test_a_message_that_leaves_no_room_for_a_retry_is_set_aside_with_its_error(open_queue):
    """It would come again until it counts as poison, and each attempt would last a lease."""

    class Tight(MemoryDriver):
        async def nack(self, delivery, *, delay=0.0, message=None):
            raise MessageTooLargeError("9 bytes are more than it takes", backend="tight")

    queue, failed = await open_queue(driver=Tight()), []

    async def fail(message):
        failed.append(message.id)
        raise ValueError("no")

    await queue.subscribe("t", fail)
    await queue.publish("t", BusMessage(id="m"))
    await wait_until(lambda: queue.driver.count_dead("t", "default"))
    (entry,) = await queue.driver.list_dead("t", "default")
    assert (entry.error, entry.reason) == ("ValueError: no", DeadLetterReason.RETRIES_EXHAUSTED)
    assert (failed, entry.attempts) == (["m"], 1)
