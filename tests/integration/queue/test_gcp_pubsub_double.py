"""The double of Pub/Sub, driven by the vendor's client alone: it behaves as the vendor says.

The pages it follows are named beside its code (tests/doubles/pubsub).
"""

import asyncio
import time
from datetime import timedelta
from uuid import uuid4

import anyio
import grpc
import pytest
from google.api_core import exceptions
from google.api_core.exceptions import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    MethodNotImplemented,
    NotFound,
    ResourceExhausted,
    ServiceUnavailable,
    Unauthenticated,
)
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from tests.doubles.pubsub.server import PubSubDouble, demand_pubsub, settle_calls

demand_pubsub()

pytestmark = pytest.mark.anyio

PROJECT = "projects/lexigram-test"
SOON = 0.3  # seconds in which nothing comes
HANG_GUARD = 15.0  # seconds
SIZE = [("grpc.max_receive_message_length", -1)]
TRANSPORTS = (PublisherGrpcAsyncIOTransport, SubscriberGrpcAsyncIOTransport)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def double():
    with PubSubDouble() as running:
        yield running


class Bus:
    """The vendor's two clients, and a topic of its own."""

    def __init__(self, channel, into, out):
        self.channel = channel
        self.into = PublisherAsyncClient(transport=into)
        self.out = SubscriberAsyncClient(transport=out)
        self.topic = f"{PROJECT}/topics/t-{uuid4().hex[:8]}"

    async def subscribe(self, topic=None, **settings):
        name = f"{PROJECT}/subscriptions/s-{uuid4().hex[:8]}"
        request = {"name": name, "topic": topic or self.topic, **settings}
        await self.out.create_subscription(request=request)
        return name

    async def publish(self, *bodies, topic=None, **fields):
        messages = [{"data": body, **fields} for body in bodies]
        answer = await self.into.publish(topic=topic or self.topic, messages=messages, retry=None)
        return list(answer.message_ids)

    async def pull(self, name, most=10, timeout=HANG_GUARD):
        request = {"subscription": name, "max_messages": most}
        try:
            answer = await self.out.pull(request=request, timeout=timeout, retry=None)
        except DeadlineExceeded:
            return []
        return list(answer.received_messages)

    async def nothing(self, name):
        assert await self.pull(name, timeout=SOON) == []

    async def ack(self, name, *received):
        ids = [one.ack_id for one in received]
        await self.out.acknowledge(subscription=name, ack_ids=ids)

    async def modify(self, name, seconds, *received):
        ids = [one.ack_id for one in received]
        await self.out.modify_ack_deadline(
            subscription=name, ack_ids=ids, ack_deadline_seconds=seconds, retry=None
        )


@pytest.fixture(scope="module")
async def clients(double, anyio_backend):
    """One loop and one channel for all: gRPC does not bear a loop that is closed soon."""
    yield double.host
    await settle_calls()


@pytest.fixture
async def bus(clients):
    channel = grpc.aio.insecure_channel(clients, options=SIZE)
    into, out = (kind(channel=channel) for kind in TRANSPORTS)
    # The clients look for files when they are made.
    made = await anyio.to_thread.run_sync(Bus, channel, into, out)
    await made.into.create_topic(name=made.topic)
    yield made
    await made.channel.close()


def bodies(received):
    return [one.message.data for one in received]


# Delivery.


async def test_every_subscription_gets_every_message_with_its_attributes(bus):
    one, other = await bus.subscribe(), await bus.subscribe()
    (message_id,) = await bus.publish(b"1", attributes={"tenant": "Zürich"})
    for name in (one, other):
        (got,) = await bus.pull(name)
        assert (got.message.data, got.message.message_id) == (b"1", message_id)
        assert dict(got.message.attributes) == {"tenant": "Zürich"}
        assert got.message.publish_time.timestamp() > 0
        assert got.delivery_attempt == 0  # without a dead-letter policy


async def test_a_subscription_begins_with_its_creation(bus):
    await bus.publish(b"early")
    name = await bus.subscribe()
    await bus.publish(b"late")
    assert bodies(await bus.pull(name)) == [b"late"]


async def test_a_pull_gives_at_most_what_was_asked_for_and_waits_for_the_first(bus):
    name = await bus.subscribe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.publish, b"0")
        assert bodies(await bus.pull(name)) == [b"0"]
    await bus.publish(b"1", b"2", b"3")
    assert bodies(await bus.pull(name, 2)) == [b"1", b"2"]


async def test_what_was_acknowledged_does_not_come_again_and_twice_is_fine(bus):
    name = await bus.subscribe()
    await bus.publish(b"1")
    (got,) = await bus.pull(name)
    await bus.ack(name, got)
    await bus.ack(name, got)
    await bus.modify(name, 0, got)
    await bus.nothing(name)


async def test_what_is_out_is_given_to_nobody_until_its_deadline(bus):
    name = await bus.subscribe()
    await bus.publish(b"1")
    (got,) = await bus.pull(name)
    await bus.modify(name, 1, got)  # of ten seconds at least by itself
    await bus.nothing(name)
    assert bodies(await bus.pull(name)) == [b"1"]


async def test_a_deadline_that_is_moved_on_keeps_the_message(bus):
    name = await bus.subscribe()
    await bus.publish(b"1")
    (got,) = await bus.pull(name)
    await bus.modify(name, 1, got)
    await anyio.sleep(0.5)
    await bus.modify(name, 2, got)
    await anyio.sleep(0.8)
    await bus.nothing(name)
    await bus.ack(name, got)


async def test_a_nacked_message_comes_at_once_and_its_deliveries_are_counted(bus):
    dead = bus.topic + "-dead"
    await bus.into.create_topic(name=dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    name = await bus.subscribe(dead_letter_policy=policy)
    await bus.publish(b"1")
    for number in (1, 2, 3):
        (got,) = await bus.pull(name)
        assert got.delivery_attempt == number
        await bus.modify(name, 0, got)


@pytest.mark.parametrize("seconds", [0, 1], ids=["nacked", "over"])
async def test_a_retry_policy_holds_back_what_was_not_acknowledged_for_longer_each_time(
    bus, seconds
):
    policy = {"minimum_backoff": timedelta(seconds=1), "maximum_backoff": timedelta(seconds=2)}
    name = await bus.subscribe(retry_policy=policy)
    found = await bus.out.get_subscription(subscription=name)
    assert found.retry_policy.maximum_backoff == timedelta(seconds=2)
    await bus.publish(b"1")
    (got,) = await bus.pull(name)
    for pause in (1, 2, 2):
        begun = time.monotonic()
        await bus.modify(name, seconds, got)
        await bus.publish(b"other")
        (other,) = await bus.pull(name)  # the policy holds up this message and no other
        assert other.message.data == b"other"
        await bus.ack(name, other)
        (got,) = await bus.pull(name)
        assert (got.message.data, time.monotonic() - begun >= seconds + pause) == (b"1", True)
    found.retry_policy = None
    mask = {"paths": ["retry_policy"]}
    await bus.out.update_subscription(request={"subscription": found, "update_mask": mask})
    assert "retry_policy" not in await bus.out.get_subscription(subscription=name)


async def test_after_the_last_attempt_it_is_in_the_dead_letter_topic_with_its_origin(bus):
    dead = bus.topic + "-dead"
    await bus.into.create_topic(name=dead)
    aside = await bus.subscribe(dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    name = await bus.subscribe(dead_letter_policy=policy)
    await bus.publish(b"poison", attributes={"a": "b"})
    for _ in range(5):
        (got,) = await bus.pull(name)
        await bus.modify(name, 0, got)
    await bus.nothing(name)
    (got,) = await bus.pull(aside)
    assert got.message.data == b"poison"
    found = dict(got.message.attributes)
    assert found["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert found["CloudPubSubDeadLetterSourceSubscription"] == name.rsplit("/")[-1]
    assert found["a"] == "b"


async def test_a_pull_that_is_given_up_takes_nothing_along(bus):
    name = await bus.subscribe()
    # Not a scope of anyio: a cancelled call of the library does not say who cancelled it.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await bus.pull(name)
    await anyio.sleep(0.1)  # the server hears of it
    await bus.publish(b"1")
    assert bodies(await bus.pull(name)) == [b"1"]


# Ordering.


async def test_one_batch_of_a_key_is_out_at_a_time(bus):
    name = await bus.subscribe(enable_message_ordering=True)
    await bus.publish(b"1", b"2", b"3", ordering_key="k")
    first = await bus.pull(name, 2)
    assert bodies(first) == [b"1", b"2"]
    await bus.nothing(name)
    await bus.publish(b"other", ordering_key="l")
    assert bodies(await bus.pull(name)) == [b"other"]
    await bus.ack(name, *first)
    assert bodies(await bus.pull(name)) == [b"3"]


async def test_a_nack_brings_all_later_ones_of_the_key_again_acknowledged_ones_too(bus):
    name = await bus.subscribe(enable_message_ordering=True)
    await bus.publish(b"1", b"2", b"3", ordering_key="k")
    batch = await bus.pull(name)
    await bus.ack(name, batch[1])
    await bus.modify(name, 0, batch[0])
    again = await bus.pull(name)
    assert bodies(again) == [b"1", b"2", b"3"]
    await bus.ack(name, *again)
    await bus.nothing(name)


async def test_without_ordering_a_key_means_nothing(bus):
    name = await bus.subscribe()
    await bus.publish(b"1", b"2", ordering_key="k")
    assert bodies(await bus.pull(name, 1)) == [b"1"]
    assert bodies(await bus.pull(name, 1)) == [b"2"]


async def test_a_request_has_one_ordering_key(bus):
    messages = [{"data": b"1", "ordering_key": "a"}, {"data": b"2", "ordering_key": "b"}]
    with pytest.raises(InvalidArgument, match="ordering key"):
        await bus.into.publish(topic=bus.topic, messages=messages)


# Filters, snapshots.


async def test_a_filter_lets_pass_what_it_does_not_match(bus):
    mine = await bus.subscribe(filter='NOT attributes:only OR attributes.only = "me"')
    nobody = await bus.subscribe(filter="NOT attributes:only")
    prefixed = await bus.subscribe(filter='hasPrefix(attributes.only, "y") AND attributes:only')
    await bus.publish(b"all")
    await bus.publish(b"me", attributes={"only": "me"})
    await bus.publish(b"you", attributes={"only": "you"})
    assert bodies(await bus.pull(mine)) == [b"all", b"me"]
    assert bodies(await bus.pull(nobody)) == [b"all"]
    assert bodies(await bus.pull(prefixed)) == [b"you"]


@pytest.mark.parametrize(
    "text",
    [
        "attributes",
        'attributes.a ~ "b"',
        "attributes:a OR attributes:b AND attributes:c",
        "x" * 300,
    ],
)
async def test_what_is_no_filter_is_refused(bus, text):
    with pytest.raises(InvalidArgument):
        await bus.subscribe(filter=text)


async def test_a_subscription_sought_to_a_snapshot_has_its_backlog_and_what_came_since(bus):
    kept = await bus.subscribe()
    await bus.publish(b"acked", b"kept")
    await bus.ack(kept, (await bus.pull(kept, 1))[0])
    late = await bus.subscribe()
    await bus.publish(b"both")
    name = f"{PROJECT}/snapshots/snap-{uuid4().hex[:8]}"
    made = await bus.out.create_snapshot(request={"name": name, "subscription": kept})
    assert made.topic == bus.topic
    await bus.publish(b"since")
    await bus.out.seek(request={"subscription": late, "snapshot": name})
    assert bodies(await bus.pull(late)) == [b"kept", b"both", b"since"]
    await bus.out.delete_snapshot(snapshot=name)
    with pytest.raises(NotFound):
        await bus.out.seek(request={"subscription": late, "snapshot": name})


# Refusals.


async def test_what_is_not_there_is_not_found(bus):
    nothing = f"{PROJECT}/subscriptions/nothing"
    with pytest.raises(NotFound):
        await bus.publish(b"1", topic=f"{PROJECT}/topics/nothing")
    with pytest.raises(NotFound):
        await bus.subscribe(f"{PROJECT}/topics/nothing")
    with pytest.raises(NotFound):
        await bus.pull(nothing)
    with pytest.raises(NotFound):
        await bus.out.get_subscription(subscription=nothing)
    with pytest.raises(NotFound):
        await bus.out.delete_subscription(subscription=nothing)


async def test_what_is_there_is_not_made_again(bus):
    with pytest.raises(AlreadyExists):
        await bus.into.create_topic(name=bus.topic)
    name = await bus.subscribe()
    with pytest.raises(AlreadyExists):
        await bus.out.create_subscription(request={"name": name, "topic": bus.topic})


async def test_a_subscription_outlives_its_topic(bus):
    name = await bus.subscribe()
    await bus.publish(b"1")
    await bus.into.delete_topic(topic=bus.topic)
    found = await bus.out.get_subscription(subscription=name)
    assert found.topic == "_deleted-topic_"
    assert bodies(await bus.pull(name)) == [b"1"]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"data": b"x" * 10_000_001},
        {"attributes": {f"a{number}": "" for number in range(101)}},
        {"attributes": {"a" * 257: ""}},
        {"attributes": {"googley": ""}},
        {"attributes": {"a": "x" * 1025}},
        {"data": b"1", "ordering_key": "k" * 1025},
        {"data": b"1", "message_id": "mine"},
    ],
    ids=["empty", "large", "many", "long-name", "goog", "long-value", "long-key", "id"],
)
async def test_a_message_beyond_the_limits_is_refused(bus, message):
    with pytest.raises(InvalidArgument):
        await bus.into.publish(topic=bus.topic, messages=[message])


@pytest.mark.parametrize(
    "settings",
    [
        {"ack_deadline_seconds": 9},
        {"ack_deadline_seconds": 601},
        {"message_retention_duration": timedelta(minutes=9)},
        {"message_retention_duration": timedelta(days=32)},
        {"expiration_policy": {"ttl": timedelta(hours=23)}},
        {"labels": {"a": "Upper"}},
        {"retry_policy": {"minimum_backoff": timedelta(seconds=601)}},
        {"retry_policy": {"maximum_backoff": timedelta(seconds=9)}},  # the least is 10 by default
        {"push_config": {"push_endpoint": "https://example.com"}},
        {"enable_exactly_once_delivery": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_a_subscription_the_double_does_not_know_is_refused(bus, settings):
    with pytest.raises(InvalidArgument):
        await bus.subscribe(**settings)


async def test_a_dead_letter_topic_must_be_there_and_attempts_are_5_to_100(bus):
    with pytest.raises(NotFound):
        await bus.subscribe(dead_letter_policy={"dead_letter_topic": bus.topic + "-none"})
    for number in (4, 101):
        policy = {"dead_letter_topic": bus.topic, "max_delivery_attempts": number}
        with pytest.raises(InvalidArgument):
            await bus.subscribe(dead_letter_policy=policy)


async def test_deadlines_and_ids_of_deliveries_are_checked(bus):
    name = await bus.subscribe()
    await bus.publish(b"1")
    (got,) = await bus.pull(name)
    with pytest.raises(InvalidArgument):
        await bus.modify(name, 601, got)
    with pytest.raises(InvalidArgument):
        await bus.out.acknowledge(subscription=name, ack_ids=["made up"])
    with pytest.raises(InvalidArgument):
        await bus.out.acknowledge(subscription=name, ack_ids=[])


async def test_only_some_settings_can_be_changed(bus):
    name = await bus.subscribe(labels={"a": "b"})
    changed = {"name": name, "ack_deadline_seconds": 20, "labels": {"c": "d"}}
    paths = {"paths": ["ack_deadline_seconds", "labels"]}
    request = {"subscription": changed, "update_mask": paths}
    found = await bus.out.update_subscription(request=request)
    assert (found.ack_deadline_seconds, dict(found.labels)) == (20, {"c": "d"})
    request = {"subscription": {"name": name, "filter": "x"}, "update_mask": {"paths": ["filter"]}}
    with pytest.raises(InvalidArgument):
        await bus.out.update_subscription(request=request)


async def test_subscriptions_are_listed_in_pages(bus):
    names = {await bus.subscribe() for _ in range(3)}
    request = {"topic": bus.topic, "page_size": 2}
    found = await bus.into.list_topic_subscriptions(request=request)
    assert {name async for name in found} == names
    pages = await bus.out.list_subscriptions(request={"project": PROJECT, "page_size": 2})
    assert names <= {one.name async for one in pages}


async def test_a_call_the_double_does_not_know_is_unimplemented(bus):
    name = await bus.subscribe()
    with pytest.raises(MethodNotImplemented):
        await bus.out.modify_push_config(subscription=name, push_config={})
    with pytest.raises(InvalidArgument):  # seeking to a time
        await bus.out.seek(request={"subscription": name, "time": {"seconds": 1}})


# Faults it can be asked for.


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("UNAVAILABLE", ServiceUnavailable),
        ("RESOURCE_EXHAUSTED", ResourceExhausted),
        ("UNAUTHENTICATED", Unauthenticated),
        ("PERMISSION_DENIED", exceptions.PermissionDenied),
        ("FAILED_PRECONDITION", FailedPrecondition),
    ],
)
async def test_a_fault_is_told_as_often_as_asked_for(bus, double, code, error):
    await double.fault(Publish=[code, 1])
    with pytest.raises(error):
        await bus.publish(b"1")
    assert await bus.publish(b"2")
