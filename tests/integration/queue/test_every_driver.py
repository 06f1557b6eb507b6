"""What the bus promises, sentence by sentence, on every live driver: the same calls, the same outcome.

What one driver does beside this is in its own file; what drivers promise to the runtime is in
``tests/conformance/queue``; processes are killed in ``tests/e2e/queue``.
"""

import asyncio
import secrets
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise

import anyio
import attrs
import nats
import pytest
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name
from tests.redis_keys import delete_keys

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterReason,
    DeliveryGuarantee,
    MessageTooLargeError,
)
from lexigram.contracts.queue.headers import CONTENT_TYPE
from lexigram.events import EventBus
from lexigram.hooks import HookRegistry
from lexigram.queue import (
    BusOptions,
    BusQueue,
    ConsumerOptions,
    MessageConsumer,
    MessageDeadLetteredEvent,
    QueueDrainedHook,
    RetryPolicy,
)
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.backends.sql import SqlDriver
from lexigram.queue.errors import ReplyTimeoutError
from lexigram.queue.operations.dead_letters import DeadLetterFilter, DeadLetters
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeTracer

pytestmark = pytest.mark.anyio

LEASE = 2.0
QUICK = RetryPolicy(base=0.01, cap=0.01)
SETTLED = partial(wait_until, timeout=60)
LIVE = [
    "memory",
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("redis", marks=pytest.mark.service("redis")),
    pytest.param("rabbitmq", marks=pytest.mark.service("rabbitmq")),
    pytest.param("nats", marks=pytest.mark.service("nats")),
    # On doubles. Not gcp_pubsub, which tells no depth, and whose library wants one loop for all.
    "azure_servicebus",
    "sqs",
]
# Where a message goes to others at the end of its lease, whatever its process does.
LEASED = [one for one in LIVE if one != "memory" and "rabbitmq" not in getattr(one, "values", ())]


# A fresh place on each broker; every driver made for it is as good as another process.


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


@pytest.fixture(scope="module")
def azure_servicebus():
    from tests.doubles.servicebus.places import settings  # without its libraries, it is left out

    with settings() as found:
        yield found


@pytest.fixture(scope="module")
def sqs():
    from tests.doubles.sqs.places import settings

    with settings() as found:
        yield found


@pytest.fixture(params=LIVE)
def place(request, tmp_path):
    """Which driver, and the URL of its broker; of a double, the settings."""
    kind = request.param
    if kind == "memory":
        return kind, None
    if kind in ("azure_servicebus", "sqs"):
        return kind, request.getfixturevalue(kind)
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "bus.db")
        return kind, f"sqlite:///{tmp_path}/bus.db"
    if kind in ("postgresql", "rabbitmq"):
        return kind, request.getfixturevalue({"postgresql": "postgres_url"}.get(kind, "vhost"))
    address = request.getfixturevalue("services")[kind].address
    return kind, f"{kind}://{address}"


@pytest.fixture
async def make_driver(place):
    """Makes unconnected drivers on one place."""
    kind, url = place
    if kind == "memory":
        broker = MemoryBroker(max_backlog=20_000)
        yield partial(MemoryDriver, broker, visibility_timeout=LEASE)
    elif kind in ("sqlite", "postgresql"):
        yield partial(SqlDriver, url, visibility_timeout=LEASE)
    else:
        name = unique_name()
        brokers = {"redis": on_redis, "rabbitmq": on_rabbitmq, "nats": on_nats}
        brokers |= {"azure_servicebus": on_azure_servicebus, "sqs": on_sqs}
        async for made in brokers[kind](url, name):
            yield made


async def on_redis(url, name):
    yield partial(RedisDriver, url, prefix=name, visibility_timeout=LEASE)
    await delete_keys(url, f"{name}:*")


async def on_rabbitmq(url, name):
    make = partial(RabbitMQDriver, url, exchange=name)
    yield make
    await clear(make())


async def on_nats(url, name):
    yield partial(NATSDriver, url, stream=name, visibility_timeout=LEASE)
    client = await nats.connect(url)
    for one in (name, f"{name}-records", f"{name}-dead"):
        await client.request(f"$JS.API.STREAM.DELETE.{one}")
    await client.close()


async def on_azure_servicebus(settings, name):
    from tests.doubles.servicebus.places import REAL, clear, driver_on

    make = partial(driver_on, settings, name, sessions=True)
    yield make
    if REAL:
        await clear(make())


async def on_sqs(settings, name):
    from tests.doubles.sqs.places import REAL, clear, driver_on

    make = partial(driver_on, settings, name[:20], fifo=True)
    yield make
    if REAL:
        await clear(make())


@pytest.fixture
def topic():
    """Its own for each test: PostgreSQL has one schema for all of them."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
async def open_queue(make_driver):
    """Makes connected queues on the place of this test."""
    async with AsyncExitStack() as stack:

        async def make(**options):
            queue = BusQueue(make_driver(), options=BusOptions(**{"retry": QUICK, **options}))
            stack.push_async_callback(queue.close)
            await queue.connect()
            return queue

        yield make


@pytest.fixture
async def queue(open_queue):
    return await open_queue()


class Handler:
    """Remembers what it handled; fails on ``bad`` for as long as it is told to."""

    def __init__(self, error=None):
        self.error = error
        self.attempts = []
        self.handled = []

    async def __call__(self, message):
        self.attempts.append(message.retry_count)
        if self.error is not None and message.id.startswith("bad"):
            raise self.error
        self.handled.append(message.id)


async def dead_of(queue, topic):
    return [entry for entry in await DeadLetters(queue).list() if entry.message.topic == topic]


async def the_dead(queue, topic):
    """The one dead letter, once it is there."""
    await SETTLED(lambda: dead_of(queue, topic))
    (entry,) = await dead_of(queue, topic)
    return entry


async def still_alive(queue, topic, handled, payload=None):
    """The consumer goes on with the next message."""
    await queue.publish(topic, BusMessage(id="next", payload=payload or {"number": 1}))
    await SETTLED(lambda: "next" in handled)


@attrs.frozen
class Order:
    number: int


# Failing.


async def test_four_attempts_with_growing_delays_then_one_dead_letter_and_event_and_a_redrive(
    open_queue, topic, monkeypatch
):
    queue = await open_queue(retry=RetryPolicy(base=0.02, cap=10.0))
    handler, delays, told, events = Handler(ValueError("boom")), [], [], EventBus()
    nack = queue.driver.nack

    async def noted(delivery, *, delay=0.0, message=None):
        delays.append(delay)
        await nack(delivery, delay=delay, message=message)

    monkeypatch.setattr(queue.driver, "nack", noted)
    queue.set_event_bus(events)
    events.subscribe(MessageDeadLetteredEvent, told.append)
    await queue.subscribe(topic, handler)
    await queue.publish(topic, BusMessage(id="bad", payload={"a": 1}, max_retries=3))
    entry = await the_dead(queue, topic)
    assert handler.attempts == [0, 1, 2, 3]
    assert len(delays) == 3
    assert all(one < other for one, other in pairwise(delays))
    assert (entry.reason, entry.attempts) == (DeadLetterReason.RETRIES_EXHAUSTED, 4)
    assert (entry.message.id, entry.message.payload) == ("bad", {"a": 1})
    assert entry.error == "ValueError: boom"
    assert "raise self.error" in entry.traceback
    await SETTLED(lambda: told)
    handler.error = None
    assert await DeadLetters(queue).redrive(DeadLetterFilter(topic=topic)) == 1
    await SETTLED(lambda: handler.handled == ["bad"])
    assert await dead_of(queue, topic) == []
    assert [(one.message_id, one.reason) for one in told] == [("bad", "retries_exhausted")]


async def test_a_message_handed_back_uses_up_no_retries(open_queue, topic):
    started, handler = anyio.Event(), Handler()

    async def hang(message):
        started.set()
        await anyio.sleep_forever()

    for number in range(3):
        doomed = await open_queue(drain_timeout=0.0)
        started = anyio.Event()
        await doomed.subscribe(topic, hang)
        if number == 0:
            await doomed.publish(topic, BusMessage(payload=1, max_retries=1))
        with anyio.fail_after(60):
            await started.wait()
        await doomed.close()
    queue = await open_queue()
    await queue.subscribe(topic, handler)
    await SETTLED(lambda: handler.handled)
    assert handler.attempts == [0]


async def test_at_most_once_is_never_tried_again_nor_set_aside(open_queue, topic):
    queue = await open_queue(delivery_guarantee=DeliveryGuarantee.AT_MOST_ONCE)
    handler = Handler(ValueError("boom"))
    await queue.subscribe(topic, handler)
    await queue.publish(topic, BusMessage(id="bad", payload=1))
    await SETTLED(lambda: handler.attempts)
    await still_alive(queue, topic, handler.handled)
    assert handler.attempts == [0, 0]
    await SETTLED(partial(is_empty, queue, topic))
    assert await dead_of(queue, topic) == []


async def is_empty(queue, topic):
    return await queue.driver.depth(topic, "default") == 0


# Each of these has a defined end, and none stops the consumer.


async def test_an_undecodable_body_is_set_aside_at_once(queue, topic):
    handler = Handler()
    await queue.subscribe(topic, handler)
    headers = {CONTENT_TYPE: "application/json"}
    body = b"\xff\x00 not json"
    await queue.driver.publish_many(
        [BusMessage(id="bad", topic=topic, payload=body, headers=headers)]
    )
    entry = await the_dead(queue, topic)
    assert (entry.reason, entry.attempts) == (DeadLetterReason.UNDECODABLE, 0)
    assert entry.message.payload == body
    await still_alive(queue, topic, handler.handled)
    assert handler.handled == ["next"]


@pytest.mark.parametrize(
    "body", [b'{"$type": "Nobody"}', b'{"number": "one"}'], ids=["unknown", "wrong"]
)
async def test_a_payload_of_an_unknown_or_wrong_type_is_set_aside_at_once(queue, topic, body):
    got = []

    class Typed(MessageConsumer):
        group = "default"

        async def handle(self, order: Order) -> None:
            got.append(order)

    consumer = Typed(queue)
    consumer.topic = topic
    await consumer.start()
    headers = {CONTENT_TYPE: "application/json"}
    await queue.publish(topic, BusMessage(id="bad", payload=body, headers=headers))
    entry = await the_dead(queue, topic)
    assert entry.reason is DeadLetterReason.UNDECODABLE
    assert "Order" in entry.error
    await queue.publish(topic, BusMessage(payload=Order(1)))
    await SETTLED(lambda: got == [Order(1)])


async def test_a_body_of_five_megabytes_arrives_whole_or_is_refused_whole(queue, topic):
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe(topic, handle)
    body = {"data": "x" * 5_000_000}
    limit = queue.driver.max_message_bytes
    if limit is not None and limit < 5_000_000:
        with pytest.raises(MessageTooLargeError, match=str(limit)):
            await queue.publish(topic, BusMessage(payload=body))
        body = {"data": "x" * (limit // 2)}
    await queue.publish(topic, BusMessage(payload=body))
    await queue.publish(topic, BusMessage(payload="next"))
    await SETTLED(lambda: len(got) == 2)
    assert got == [body, "next"]


async def test_an_expired_message_never_reaches_the_handler(queue, topic):
    handler = Handler()
    old = BusMessage(id="bad", payload=1, ttl=10, timestamp=time.time() - 60)
    await queue.subscribe(topic, handler)
    await queue.publish(topic, old)
    entry = await the_dead(queue, topic)
    assert entry.reason is DeadLetterReason.EXPIRED
    await still_alive(queue, topic, handler.handled)
    assert handler.handled == ["next"]


async def test_a_handler_that_hangs_is_cancelled_and_tried_again(open_queue, topic):
    queue, cancelled, handled = await open_queue(handler_timeout=0.05), [], []

    async def hang(message):
        if message.id != "bad":
            handled.append(message.id)
            return
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(message.retry_count)

    await queue.subscribe(topic, hang)
    await queue.publish(topic, BusMessage(id="bad", payload=1, max_retries=1))
    entry = await the_dead(queue, topic)
    assert cancelled == [0, 1]
    assert "took more than 0.05 s" in entry.error
    await still_alive(queue, topic, handled)


async def test_a_handler_longer_than_the_lease_is_the_only_one_with_its_message(open_queue, topic):
    """Three tries: a machine that stands still for a whole lease loses it, and that is right."""
    queues, begun, ended = [await open_queue() for _ in range(2)], [], []
    lease = queues[0].driver.visibility_timeout or LEASE  # doubles have longer ones

    async def slow(message):
        begun.append(message.id)
        await anyio.sleep(lease * 2.5)
        ended.append(message.id)

    for queue in queues:
        await queue.subscribe(topic, slow)
    for attempt in ("first", "second", "third"):
        await queues[0].publish(topic, BusMessage(id=attempt, payload=1))
        await SETTLED(lambda: attempt in ended)  # noqa: B023 - called at once
        await SETTLED(partial(is_empty, queues[0], topic))
        if begun.count(attempt) == 1:
            break
    else:
        pytest.fail(f"no lease was kept: {begun}")
    assert await dead_of(queues[0], topic) == []


@pytest.mark.parametrize("place", LEASED, indirect=True)
async def test_after_a_blocked_loop_nothing_is_begun_that_others_have(
    open_queue, make_driver, topic, blocking_calls_fail
):
    """Another process takes all over while the first handler blocks the loop."""
    queue, begun, messages = await open_queue(), [], 10

    async def take_over():
        other, taken = make_driver(), 0
        await other.connect()
        with anyio.fail_after(60):
            while taken < messages:
                found = await other.receive(topic, "default", limit=messages, wait=1.0)
                await other.ack_many(found)
                taken += len(found)
        await other.close()

    async def handle(message):
        begun.append(message.id)
        if len(begun) == 1:
            blocking_calls_fail.deactivate()  # to block is what is tested
            with ThreadPoolExecutor(1) as process:
                process.submit(asyncio.run, take_over()).result()
            blocking_calls_fail.activate()

    await queue.driver.declare(topic, "default")
    await queue.publish_many(topic, [BusMessage(id=str(n), payload=n) for n in range(messages)])
    consumer = await queue.consume(
        ConsumerOptions(topics=(topic,), concurrency=1, prefetch=messages), handle
    )
    await SETTLED(lambda: begun and consumer.in_flight == 0)
    await queue.publish(topic, BusMessage(id="next", payload=1))
    await SETTLED(lambda: "next" in begun)
    assert len(begun) == 2


# Sharing and stopping.


async def test_two_consumer_classes_get_every_message_and_three_replicas_share_them(
    open_queue, topic
):
    queues = [await open_queue() for _ in range(3)]
    got = {"billing": [], "shipping": []}

    class Billing(MessageConsumer):
        async def handle(self, message: BusMessage) -> None:
            got["billing"].append(message.payload)

    class Shipping(MessageConsumer):
        async def handle(self, message: BusMessage) -> None:
            got["shipping"].append(message.payload)

    for kind, places in ((Billing, queues), (Shipping, queues[:1])):
        kind.topic = topic
        for queue in places:
            await kind(queue).start()
    await queues[0].publish_many(topic, [BusMessage(payload=number) for number in range(60)])
    await SETTLED(lambda: all(len(numbers) >= 60 for numbers in got.values()))
    assert {name: sorted(numbers) for name, numbers in got.items()} == {
        "billing": list(range(60)),
        "shipping": list(range(60)),
    }


async def test_a_stop_under_load_acknowledges_nothing_that_was_not_handled(open_queue, topic):
    first, second = await open_queue(drain_timeout=0.05), await open_queue()
    handled, cancelled = [], []

    async def handle(message):
        try:
            await anyio.sleep(60 if message.payload == 40 and not cancelled else 0.002)
        except anyio.get_cancelled_exc_class():
            cancelled.append(message.payload)
            raise
        handled.append(message.payload)

    await first.subscribe(topic, handle)
    await first.publish_many(topic, [BusMessage(payload=number) for number in range(200)])
    await SETTLED(lambda: len(handled) >= 60)
    with anyio.fail_after(60):
        await first.close()
    at_stop = list(handled)
    assert cancelled == [40]
    await second.subscribe(topic, handle)
    await SETTLED(lambda: set(handled) == set(range(200)))
    await SETTLED(partial(is_empty, second, topic))
    assert sorted(handled) == sorted(set(handled))  # handed back, not left to time out, none twice
    assert len(at_stop) < 200


async def test_a_flood_of_one_tenant_makes_another_wait_for_a_few_rounds_only(open_queue, topic):
    """With concurrency 4, ten messages take 3 rounds alone; here they may take 9."""
    queue = await open_queue(drain_timeout=0.0)
    if not queue.can(Capability.FAIRNESS):
        pytest.skip(f"{queue.driver.name} has no fairness, as its table says")
    rounds, done, waiting = 0, {}, []

    async def handle(message):
        gate = anyio.Event()
        waiting.append(gate)
        await gate.wait()
        done.setdefault(message.headers["fairness-key"], []).append(rounds)

    await queue.driver.declare(topic, "default")
    flood = [BusMessage(payload=0, headers={"fairness-key": "a"}) for _ in range(10_000)]
    await queue.publish_many(topic, flood)
    await queue.subscribe(topic, handle)
    await SETTLED(lambda: len(waiting) == 4)
    for _ in range(10):
        await queue.publish(topic, BusMessage(payload=1), fairness_key="b")
    while len(done.get("b", ())) < 10:
        rounds += 1
        for gate in waiting[:]:
            waiting.remove(gate)
            gate.set()
        await SETTLED(lambda: len(waiting) == 4)
    assert max(done["b"]) <= 9


# The model.


async def test_a_request_gets_its_answer_from_another_process(open_queue, topic):
    asking, answering = await open_queue(), await open_queue()

    async def double(message):
        await answering.reply(message, {"twice": message.payload * 2})

    await answering.subscribe(topic, double)
    answers = [
        await asking.request(topic, BusMessage(payload=number), timeout=30) for number in (1, 2)
    ]
    assert [answer.payload for answer in answers] == [{"twice": 2}, {"twice": 4}]


async def test_a_request_nobody_answers_times_out(queue, topic):
    with pytest.raises(ReplyTimeoutError, match="no reply"):
        await queue.request(topic, BusMessage(payload=1), timeout=0.05)


async def test_a_scheduled_message_comes_when_it_is_due_and_not_before(queue, topic):
    got = []

    async def handle(message):
        got.append((message.payload, time.time()))

    await queue.subscribe(topic, handle)
    # The first messages of each kind pay for connections, which may take longer than the delay.
    await queue.publish(topic, BusMessage(payload="first"), delay=0.01)
    await queue.publish(topic, BusMessage(payload="second"))
    await SETTLED(lambda: len(got) == 2)
    got.clear()
    start = time.time()
    await queue.publish(topic, BusMessage(payload="later"), delay=2.0)
    await queue.publish(topic, BusMessage(payload="now"))
    await SETTLED(lambda: len(got) == 2)
    assert [payload for payload, _ in got] == ["now", "later"]
    assert got[1][1] - start >= 1.99  # a broker may round to milliseconds


async def test_batches_are_published_and_handled_as_batches(queue, topic):
    batches = []

    class Bulk(MessageConsumer):
        batch_size = 5
        concurrency = 1

        async def handle_batch(self, orders: list[Order]) -> None:
            batches.append(orders)

    Bulk.topic = topic
    await queue.driver.declare(topic, f"{Bulk.__module__}.{Bulk.__qualname__}")
    await queue.publish_many(topic, [BusMessage(payload=Order(number)) for number in range(12)])
    await Bulk(queue).start()
    await SETTLED(lambda: sum(map(len, batches)) == 12)
    assert sorted(order.number for batch in batches for order in batch) == list(range(12))
    assert 1 < max(map(len, batches)) <= 5


async def test_an_ordering_key_a_fairness_key_or_a_priority_is_kept_or_refused(queue, topic):
    """Never silently ignored."""
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe(topic, handle)
    if queue.can(Capability.ORDERING):
        for number in range(20):
            await queue.publish(topic, BusMessage(payload=number), ordering_key="k")
        await SETTLED(lambda: len(handled) == 20)
        assert handled == list(range(20))
    else:
        with pytest.raises(CapabilityError, match="ordering"):
            await queue.publish(topic, BusMessage(payload=1), ordering_key="k")
    if not queue.can(Capability.FAIRNESS):
        with pytest.raises(CapabilityError, match="fairness"):
            await queue.publish(topic, BusMessage(payload=1), fairness_key="tenant")
    if not queue.can(Capability.PRIORITY):
        with pytest.raises(CapabilityError, match="priority"):
            await queue.publish(topic, BusMessage(payload=1, priority=5))


async def test_filters_trace_and_hooks_go_with_a_message(open_queue, topic):
    hooks, tracer, seen, drained = HookRegistry(), FakeTracer(), [], []
    queue = await open_queue()
    queue.set_hook_registry(hooks)
    queue.set_tracer(tracer)
    hooks.on(QueueDrainedHook, drained.append)

    def publishing(message, topic):
        if message.payload == "secret":
            raise PermissionError("not over this bus")
        return BusMessage(id=message.id, payload=f"{message.payload}!")

    hooks.register_filter("message.publishing", publishing)
    hooks.register_filter(
        "message.consuming",
        lambda message, topic: BusMessage(id=message.id, payload=message.payload * 2),
    )

    async def handle(message):
        seen.append((message.payload, tracer.get_current_span().context.trace_id))

    await queue.subscribe(topic, handle)
    with pytest.raises(PermissionError):
        await queue.publish(topic, BusMessage(payload="secret"))
    with tracer.start_span("request") as request:
        sent = await queue.publish(topic, BusMessage(payload="hi"))
    assert (sent.payload, request.context.trace_id in sent.headers["traceparent"]) == ("hi!", True)
    await SETTLED(lambda: seen)
    assert seen == [("hi!hi!", request.context.trace_id)]
    await queue.close()
    assert [hook.queue_name for hook in drained] == [queue.name]
