"""Whatever goes wrong with a message has a defined end, and none of it stops the consumer."""

import anyio
import attrs
import pytest
from tests.retries import HOPELESS

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterReason,
    DeliveryGuarantee,
    MessageRejectedError,
)
from lexigram.contracts.queue.headers import CONTENT_TYPE
from lexigram.events import EventBus
from lexigram.queue import ConsumerOptions, MessageDeadLetteredEvent, RateLimit, RetryPolicy
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


@attrs.frozen
class Order:
    number: int


class Recorder(MemoryDriver):
    """A memory driver that notes the delays of retries."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.delays = []

    async def nack(self, delivery, *, delay=0.0, message=None):
        self.delays.append(delay)
        await super().nack(delivery, delay=delay, message=message)


def dead_of(queue, topic="t", group="default"):
    return list(queue.driver.broker.groups[topic, group].dead.values())


async def still_alive(queue, handled):
    """The consumer goes on with the next message."""
    await queue.publish("t", BusMessage(id="next", payload={"number": 1}))
    await wait_until(lambda: "next" in handled)


def remember(handled, failing=None):
    async def handle(message):
        if failing is not None and message.id == "bad":
            raise failing
        handled.append(message.id)

    return handle


async def test_three_retries_are_four_attempts_with_growing_delays_then_one_dead_letter_and_event(
    open_queue, time
):
    driver = Recorder()
    queue, events, told, attempts = await open_queue(driver=driver), EventBus(), [], []
    queue.set_event_bus(events)
    events.subscribe(MessageDeadLetteredEvent, told.append)

    async def fail(message):
        attempts.append(message.retry_count)
        raise ValueError("boom")

    await queue.subscribe("t", fail)
    sent = await queue.publish("t", BusMessage(payload={"a": 1}, max_retries=3))
    while not dead_of(queue):
        time.advance(10)
        await anyio.sleep(0.005)
    assert attempts == [0, 1, 2, 3]
    assert len(driver.delays) == 3
    assert driver.delays == sorted(driver.delays)
    assert 0.5 <= driver.delays[0] <= 1 <= driver.delays[1] <= 2 <= driver.delays[2] <= 4
    (entry,) = dead_of(queue)
    assert entry.message.id == sent.id
    assert (entry.retry_count, entry.attempts) == (3, 4)
    assert entry.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert entry.error == "ValueError: boom"
    assert 'raise ValueError("boom")' in entry.traceback
    assert entry.group == "default"
    await wait_until(lambda: told)
    assert [(event.message_id, event.reason) for event in told] == [(sent.id, "retries_exhausted")]


async def test_a_redriven_message_succeeds_after_the_fix(open_queue, time):
    queue, broken, handled = await open_queue(), [True], []

    async def handle(message):
        if broken:
            raise ValueError
        handled.append((message.id, message.retry_count))

    await queue.subscribe("t", handle)
    sent = await queue.publish("t", BusMessage(payload=1, max_retries=0))
    await wait_until(lambda: dead_of(queue))
    broken.clear()
    assert await queue.driver.redrive("t", "default") == 1
    await wait_until(lambda: handled == [(sent.id, 0)])
    assert dead_of(queue) == []


async def test_a_crash_uses_up_no_retries(open_queue):
    broker = MemoryBroker()
    doomed = await open_queue(broker, visibility_timeout=0.05)
    started = anyio.Event()

    async def hang(message):
        started.set()
        await anyio.sleep_forever()

    for _ in range(3):
        crashing = await open_queue(broker, visibility_timeout=0.05, drain_timeout=0.0)
        started = anyio.Event()
        await crashing.subscribe("t", hang)
        if await crashing.driver.depth("t", "default") == 0:
            await crashing.publish("t", BusMessage(payload=1))
        await started.wait()
        await crashing.close()
    counts = []

    async def handle(message):
        counts.append(message.retry_count)

    await doomed.subscribe("t", handle)
    await wait_until(lambda: counts)
    assert counts == [0]


async def test_an_undecodable_body_becomes_a_dead_letter_at_once(queue):
    handled = []
    await queue.subscribe("t", remember(handled))
    await queue.driver.publish_many([BusMessage(id="bad", topic="t", payload=b"\xff not json")])
    await wait_until(lambda: dead_of(queue))
    (entry,) = dead_of(queue)
    assert entry.reason is DeadLetterReason.UNDECODABLE
    assert entry.message.payload == b"\xff not json"
    assert entry.attempts == 0
    assert handled == []
    await still_alive(queue, handled)


@pytest.mark.parametrize("body", [b'{"$type": "Nobody"}', b'{"number": "one"}', b"[]"], ids=str)
async def test_an_unknown_or_wrong_type_becomes_a_dead_letter_at_once(queue, body):
    handled = []
    await queue.consume(ConsumerOptions(topics=("t",), payload_type=Order), remember(handled))
    headers = {CONTENT_TYPE: "application/json"}
    await queue.publish("t", BusMessage(id="bad", payload=body, headers=headers))
    await wait_until(lambda: dead_of(queue))
    (entry,) = dead_of(queue)
    assert entry.reason is DeadLetterReason.UNDECODABLE
    assert "Order" in entry.error
    await still_alive(queue, handled)


async def test_a_body_of_five_megabytes_arrives_whole(queue):
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("t", handle)
    body = {"data": "x" * 5_000_000}
    await queue.publish("t", BusMessage(payload=body))
    await wait_until(lambda: got)
    assert got == [body]


@pytest.mark.parametrize(("policy", "letters"), [("dead_letter", 1), ("drop", 0)])
async def test_an_expired_message_never_reaches_the_handler(open_queue, time, policy, letters):
    queue, handled = await open_queue(expired=policy), []
    stamp = time.timestamp()
    await queue.publish("t", BusMessage(id="bad", payload=1, ttl=10, timestamp=stamp))
    time.advance(11)
    await queue.subscribe("t", remember(handled))
    await still_alive(queue, handled)
    await wait_until(lambda: queue.driver.broker.groups["t", "default"].count == 0)
    assert [entry.reason for entry in dead_of(queue)] == [DeadLetterReason.EXPIRED] * letters
    assert handled == ["next"]


async def test_a_handler_that_hangs_is_cancelled_and_the_message_tried_again(open_queue, time):
    queue, cancelled, handled = await open_queue(handler_timeout=0.02), [], []

    async def hang(message):
        if message.id != "bad":
            handled.append(message.id)
            return
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(message.retry_count)
            raise

    await queue.subscribe("t", hang)
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=1))
    while not dead_of(queue):
        time.advance(1)
        await anyio.sleep(0.005)
    assert cancelled == [0, 1]
    (entry,) = dead_of(queue)
    assert "took more than 0.02 s" in entry.error
    await still_alive(queue, handled)


async def test_a_handler_longer_than_the_visibility_timeout_keeps_its_message(
    open_queue, monkeypatch
):
    broker, calls, until = MemoryBroker(), [], []
    queues = [await open_queue(broker, visibility_timeout=1.0) for _ in range(2)]

    async def slow(message):
        calls.append(message.id)
        begun = anyio.current_time()
        await wait_until(lambda: until and until[-1] > begun + 2.0)  # twice its lease

    for queue in queues:
        monkeypatch.setattr(queue.driver, "extend_many", extending(queue.driver, until))
        await queue.subscribe("t", slow)
    await queues[0].publish("t", BusMessage(payload=1))
    group = broker.groups["t", "default"]
    await wait_until(lambda: group.count == 0)
    assert len(calls) == 1


def extending(driver, until):
    """``extend_many`` of the driver, which notes when it was called."""
    extend = driver.extend_many

    async def noted(*arguments, **options):
        until.append(anyio.current_time())
        return await extend(*arguments, **options)

    return noted


async def test_a_rejected_message_is_not_tried_again(queue):
    handled = []
    await queue.subscribe("t", remember(handled, MessageRejectedError("no such customer")))
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=5))
    await wait_until(lambda: dead_of(queue))
    (entry,) = dead_of(queue)
    assert (entry.reason, entry.attempts) == (DeadLetterReason.REJECTED, 1)
    await still_alive(queue, handled)


async def test_the_policy_of_a_consumer_outranks_that_of_the_message(open_queue, time):
    queue, tries = await open_queue(), []

    async def fail(message):
        tries.append(message.retry_count)
        raise ValueError

    policy = RetryPolicy(max_retries=1, base=0.0, cap=0.0)
    await queue.consume(ConsumerOptions(topics=("t",), retry=policy), fail)
    await queue.publish("t", BusMessage(payload=1, max_retries=10))
    await wait_until(lambda: dead_of(queue))
    assert tries == [0, 1]


async def test_an_exhausted_message_may_go_to_another_topic(queue):
    got = []

    async def fail(message):
        raise ValueError

    async def collect(message):
        got.append((message.id, message.topic, message.payload))

    policy = RetryPolicy(max_retries=0, publish_to="manual")
    await queue.consume(ConsumerOptions(topics=("t",), retry=policy), fail)
    await queue.subscribe("manual", collect)
    await queue.publish("t", BusMessage(id="bad", payload={"a": 1}))
    await wait_until(lambda: got)
    assert got == [("bad", "manual", {"a": 1})]
    assert dead_of(queue) == []


async def test_at_most_once_is_acknowledged_before_the_handler_and_never_tried_again(open_queue):
    broker, calls = MemoryBroker(), []
    queue = await open_queue(broker, delivery_guarantee=DeliveryGuarantee.AT_MOST_ONCE)
    depth_inside = []

    async def fail(message):
        calls.append(message.id)
        depth_inside.append(broker.groups["t", "default"].count)
        raise ValueError

    await queue.subscribe("t", fail)
    await queue.publish("t", BusMessage(id="1", payload=1))
    await queue.publish("t", BusMessage(id="2", payload=1))
    await wait_until(lambda: calls == ["1", "2"])
    assert depth_inside[-1] == 0
    assert dead_of(queue) == []


async def test_a_failing_batch_that_is_delivered_at_most_once_is_never_tried_again(
    open_queue, time
):
    broker, calls = MemoryBroker(), []
    queue = await open_queue(broker, delivery_guarantee=DeliveryGuarantee.AT_MOST_ONCE)

    async def fail(messages):
        calls.extend(message.id for message in messages)
        raise ValueError

    await queue.consume(ConsumerOptions(topics=("t",), batch_size=10), fail)
    await queue.publish("t", BusMessage(id="1", payload=1, max_retries=0))
    await queue.publish("t", BusMessage(id="2", payload=1))
    await wait_until(lambda: calls == ["1", "2"])
    time.advance(600)
    await queue.publish("t", BusMessage(id="last", payload=1))
    await wait_until(lambda: "last" in calls)
    assert calls == ["1", "2", "last"]
    assert dead_of(queue) == []


async def test_exactly_once_without_sql_is_refused(queue):
    options = ConsumerOptions(
        topics=("t",), delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE, consumer_id="billing"
    )
    with pytest.raises(ConfigurationError, match="billing wants exactly_once, which needs SQL"):
        await queue.consume(options, remember([]))


async def test_a_message_that_asks_for_exactly_once_is_handled_once_within_a_window(queue):
    handled = []
    await queue.subscribe("t", remember(handled))
    twice = BusMessage(id="1", payload=1, delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE)
    await queue.publish("t", twice)
    await wait_until(lambda: handled == ["1"])
    await queue.publish("t", twice)
    await still_alive(queue, handled)
    assert handled == ["1", "next"]


async def test_a_failing_batch_is_tried_again_message_by_message_or_whole(open_queue, time):
    queue, sizes, fail = await open_queue(concurrency=1), [], [True]

    async def handle(messages):
        sizes.append(len(messages))
        if fail:
            fail.clear()
            raise ValueError

    for number in range(3):
        await queue.publish("t", BusMessage(payload=number))
    await queue.consume(ConsumerOptions(topics=("t",), batch_size=10), handle)
    while queue.driver.broker.groups["t", "default"].count:
        time.advance(5)
        await anyio.sleep(0.005)
    assert sum(sizes) == 6
    assert dead_of(queue) == []


async def test_an_undecodable_message_does_not_spoil_its_batch(queue):
    got = []

    async def handle(messages):
        got.extend(message.payload for message in messages)

    await queue.driver.declare("t", "default")
    await queue.publish("t", BusMessage(payload={"number": 1}))
    await queue.driver.publish_many([BusMessage(topic="t", payload=b"\xff")])
    await queue.publish("t", BusMessage(payload={"number": 2}))
    options = ConsumerOptions(topics=("t",), batch_size=10, payload_type=Order)
    await queue.consume(options, handle)
    await wait_until(lambda: got == [Order(1), Order(2)])
    assert [entry.reason for entry in dead_of(queue)] == [DeadLetterReason.UNDECODABLE]


async def test_dead_letters_in_memory_are_bounded_and_counted(open_queue):
    queue = await open_queue(MemoryBroker(max_dead_letters=3))
    await queue.subscribe("t", remember([], ValueError()))

    async def fail(message):
        raise ValueError

    await queue.subscribe("u", fail)
    for number in range(5):
        await queue.publish("u", BusMessage(id=str(number), payload=1, max_retries=0))
    group = queue.driver.broker.groups["u", "default"]
    await wait_until(lambda: group.count == 0)
    assert len(group.dead) == 3
    assert group.evicted == 2


async def test_a_rate_limit_holds_the_handlers_back(open_queue, time):
    queue, handled = await open_queue(), []
    limit = RateLimit(rate=2, per=3600, burst=2)
    await queue.consume(ConsumerOptions(topics=("t",), rate_limit=limit), remember(handled))
    for number in range(5):
        await queue.publish("t", BusMessage(id=str(number), payload=1))
    await wait_until(lambda: len(handled) == 2)
    await anyio.wait_all_tasks_blocked()
    assert len(handled) == 2


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_is_a_dead_letter_after_one_attempt(
    open_queue, make, batch_size
):
    queue, calls = await open_queue(), []
    policy = RetryPolicy(max_retries=3, base=0.0, cap=0.0, publish_to="exhausted")

    async def fail(_):
        calls.append(1)
        raise make()

    options = ConsumerOptions(topics=("t",), retry=policy, batch_size=batch_size)
    await queue.consume(options, fail)
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=5))
    await wait_until(lambda: dead_of(queue))
    (entry,) = dead_of(queue)
    assert (entry.reason, entry.attempts, len(calls)) == (DeadLetterReason.NOT_RETRYABLE, 1, 1)
    assert entry.error.startswith(type(make()).__name__)
