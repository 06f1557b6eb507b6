"""The gcp_pubsub driver on a double: what its suite cannot ask: errors, faults, foreign programs."""

import asyncio
import json
import os
import sys
from dataclasses import replace

import anyio
import grpc
import pytest
from google.pubsub_v1 import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from tests.doubles.pubsub import secrets
from tests.doubles.pubsub.places import LEASE, PROJECT, driver_on, place_name
from tests.doubles.pubsub.server import PubSubDouble, settle_calls

from lexigram import clock
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    MessageTooLargeError,
    QueueError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, ORDERING_KEY
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.backends.gcp_pubsub import (
    GCPPubSubDriver,
    _dead_letters,
    _receiver,
    _topology,
    _wire,
    build,
)
from lexigram.queue.backends.gcp_pubsub._space import Space
from lexigram.queue.backends.registry import QueueDriverRegistry
from lexigram.queue.backends.services import Services
from lexigram.queue.config import GCPPubSubDriverConfig, NamedQueueConfig
from lexigram.queue.errors import GCPPubSubQueueError
from lexigram.queue.options import DeadLetterPolicy
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend):
    """See ``places.OneLoop``."""
    yield
    await settle_calls()


@pytest.fixture(scope="module")
def double():
    with PubSubDouble() as running:
        yield running


def settings_of(double):
    return {"project_id": PROJECT, "emulator_host": double.host}


@pytest.fixture
async def driver(double):
    made = driver_on(settings_of(double), place_name(), timeout=3.0)
    await made.connect()
    yield made
    await double.fault()
    await made.close()


async def publish(driver, *bodies, topic="orders", **fields):
    messages = [BusMessage(topic=topic, payload=body, **fields) for body in bodies]
    await driver.publish_many(messages)
    return messages


async def take(driver, number=1, topic="orders", group="g", limit=None):
    got = []
    with anyio.fail_after(20):
        while len(got) < number:
            wanted = limit or number - len(got)
            got += await driver.receive(topic, group, limit=wanted, wait=1)
    return got


def bodies(deliveries):
    return [one.message.payload for one in deliveries]


# Errors say what to do.


@pytest.mark.parametrize(
    ("status", "fix"),
    [("UNAUTHENTICATED", "credentials_file"), ("PERMISSION_DENIED", "roles/pubsub.editor")],
)
async def test_wrong_credentials_are_a_typed_error_with_the_fix(double, status, fix):
    driver = driver_on(settings_of(double), "x")
    await double.fault(ALL=[status, 100])
    with pytest.raises(GCPPubSubQueueError) as caught:
        await driver.connect()
    await double.fault()
    assert caught.value.code == "LEX_ERR_QUEUE_007"
    assert fix in caught.value.hint
    assert (await driver.health_check()).status is HealthStatus.UNHEALTHY
    await driver.connect()  # once they are right
    assert (await driver.health_check()).status is HealthStatus.HEALTHY
    await driver.close()


SECURED = """
import asyncio, sys
from lexigram.contracts.queue import BusMessage, QueueError
from lexigram.queue.backends.gcp_pubsub import GCPPubSubDriver
from lexigram.queue.config import GCPPubSubDriverConfig

async def main(endpoint, file):
    driver = GCPPubSubDriver(
        config=GCPPubSubDriverConfig(endpoint=endpoint, credentials_file=file)
    )
    try:
        await driver.connect()
        await driver.declare("orders", "g")
        await driver.publish_many([BusMessage(topic="orders", payload=b"secret")])
        got = await driver.receive("orders", "g", limit=1, wait=10)
        print("got", got[0].message.payload, "in", driver.project_id)
    except QueueError as error:
        print(error.code, error, "|", error.hint)
    await driver.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_key_of_a_service_account_opens_the_bus_over_tls_and_a_wrong_one_is_a_typed_error(
    tmp_path,
):
    folder = await anyio.to_thread.run_sync(secrets.make, tmp_path, PROJECT)
    # In a process of its own: the library reads the certificates it trusts once.
    trusting = os.environ | {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(folder / "server.crt")}

    async def run(file):
        command = [sys.executable, "-c", SECURED, f"localhost:{secured.port}", str(folder / file)]
        done = await anyio.run_process(command, env=trusting)
        return done.stdout.decode()

    with PubSubDouble(folder) as secured:
        assert await run("right.json") == f"got b'secret' in {PROJECT}\n"
        refused = await run("wrong.json")
    assert "LEX_ERR_QUEUE_007" in refused
    assert "credentials_file" in refused.split("|")[1]


async def test_a_credentials_file_that_is_none_is_a_typed_error_with_the_fix(tmp_path):
    missing = GCPPubSubDriver(
        "p", config=GCPPubSubDriverConfig(credentials_file=str(tmp_path / "missing.json"))
    )
    with pytest.raises(GCPPubSubQueueError) as caught:
        await missing.connect()
    assert "credentials_file" in caught.value.hint
    (tmp_path / "wrong.json").write_text(json.dumps({"type": "service_account"}))
    wrong = GCPPubSubDriver(
        "p", config=GCPPubSubDriverConfig(credentials_file=str(tmp_path / "wrong.json"))
    )
    with pytest.raises(GCPPubSubQueueError) as caught:
        await wrong.connect()
    assert "credentials" in caught.value.hint


async def test_a_service_that_does_not_answer_is_a_typed_error():
    driver = GCPPubSubDriver(
        "p", config=GCPPubSubDriverConfig(emulator_host="127.0.0.1:1", timeout=1.0)
    )
    with pytest.raises(GCPPubSubQueueError, match=r"127\.0\.0\.1:1"):
        await driver.connect()


async def test_without_a_project_it_says_so(double):
    with pytest.raises(GCPPubSubQueueError) as caught:
        await GCPPubSubDriver(config=GCPPubSubDriverConfig(emulator_host=double.host)).connect()
    assert "project_id" in caught.value.hint


async def test_a_missing_group_is_a_typed_error_with_the_fix(driver):
    with pytest.raises(GCPPubSubQueueError) as caught:
        await driver.receive("orders", "nobody", limit=1, wait=0)
    assert "declare" in caught.value.hint


async def test_a_subscription_deleted_under_a_consumer_is_an_error_and_a_declaration_repairs_it(
    driver,
):
    await driver.declare("orders", "g")
    await driver.receive("orders", "g", limit=1, wait=0.1)
    name = driver._place("orders", "g").subscription
    await driver._space.out.delete_subscription(subscription=name)
    with pytest.raises(GCPPubSubQueueError), anyio.fail_after(20):
        while True:
            await driver.receive("orders", "g", limit=1, wait=0.2)
    await driver.declare("orders", "g")
    await publish(driver, b"again")
    assert bodies(await take(driver)) == [b"again"]


async def test_a_topic_deleted_under_a_publisher_is_made_again_and_keeps_for_the_first_group(
    driver,
):
    await driver.declare("orders", "g")
    await publish(driver, b"lost with its subscription")
    place = driver._place("orders", "g")
    await driver._space.out.delete_subscription(subscription=place.subscription)
    await driver._space.into.delete_topic(topic=place.entity)
    await publish(driver, b"kept")
    await driver.declare("orders", "g")
    assert bodies(await take(driver)) == [b"kept"]


async def test_a_group_whose_topic_was_deleted_is_a_typed_error_with_the_fix(driver):
    await driver.declare("orders", "g")
    await driver._space.into.delete_topic(topic=driver._place("orders", "g").entity)
    with pytest.raises(GCPPubSubQueueError) as caught:
        await driver.declare("orders", "g")
    assert "delete the subscription" in caught.value.hint


async def test_a_body_that_is_too_large_is_refused_before_anything_is_sent(driver):
    await driver.declare("orders", "g")
    with pytest.raises(MessageTooLargeError) as caught:
        await publish(driver, b"small", b"x" * 10_000_000)
    assert "reference" in caught.value.hint
    with pytest.raises(MessageTooLargeError):
        await publish(driver, b"1", headers={f"h{number}": "x" for number in range(100)})
    assert list(await driver.receive("orders", "g", limit=10, wait=0.3)) == []


async def test_large_batches_are_cut_to_what_one_request_takes(driver):
    await driver.declare("orders", "g")
    large = [bytes([number]) * 4_000_000 for number in range(5)]
    await publish(driver, *large)
    assert bodies(await take(driver, 5)) == large
    await publish(driver, *(b"%d" % number for number in range(2_500)))
    got = await take(driver, 2_500, limit=1_000)
    assert [int(body) for body in bodies(got)] == list(range(2_500))
    await driver.ack_many(got)


@pytest.mark.parametrize("status", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])  # 429, 503
async def test_throttled_calls_are_tried_again_and_nothing_is_lost(driver, double, status):
    await driver.declare("orders", "g")
    await publish(driver, b"0")
    await double.fault(Publish=[status, 2])  # waited for
    await publish(driver, b"1")
    await double.fault(Publish=[status, 1000])
    with pytest.raises(GCPPubSubQueueError) as caught:
        await publish(driver, b"2", id="unsent")
    await double.fault()
    assert caught.value.details["unconfirmed"] == ["unsent"]
    assert "tried again" in caught.value.hint
    got = await take(driver, 2)
    assert bodies(got) == [b"0", b"1"]
    await double.fault(Acknowledge=[status, 1], ModifyAckDeadline=[status, 1])
    assert list(await driver.extend_many(got, LEASE)) == []
    await driver.ack_many(got)


async def test_a_throttled_pull_is_an_error_for_the_runtime_and_nothing_is_lost(driver, double):
    await driver.declare("orders", "g")
    await publish(driver, b"1")
    await double.fault(Pull=["RESOURCE_EXHAUSTED", 1])
    with pytest.raises(GCPPubSubQueueError, match="RESOURCE_EXHAUSTED"):
        await driver.receive("orders", "g", limit=1, wait=1)
    assert bodies(await take(driver)) == [b"1"]


async def test_a_cancelled_call_ends_its_own_scope_only(driver):
    await driver.declare("orders", "g")
    for milliseconds in range(10):
        with anyio.move_on_after(milliseconds / 1000):
            await publish(driver, b"x" * 1_000_000)
    assert not asyncio.current_task().cancelling()


def test_settings_the_service_cannot_keep_are_refused_at_once():
    with pytest.raises(ValueError, match="600 seconds"):
        GCPPubSubDriver("p", visibility_timeout=600)
    for prefix in ("1x", "google", "Not Good", "x" * 41):
        with pytest.raises(ValueError, match="topic_id"):
            GCPPubSubDriver("p", topic_id=prefix)
    for least, most in ((-1, 1), (2, 1), (1, 601)):
        with pytest.raises(ValueError, match="m.._backoff"):
            GCPPubSubDriver("p", config=GCPPubSubDriverConfig(min_backoff=least, max_backoff=most))


def test_a_configuration_makes_the_driver():
    entry = NamedQueueConfig(
        name="events",
        driver="gcp_pubsub",
        visibility_timeout=60,
        gcp_pubsub=GCPPubSubDriverConfig(project_id="shop", topic_id="bus", subscription_id="app"),
    )
    driver = build(entry, Services())
    assert (driver.prefix, driver.subscription_prefix) == ("bus", "app")
    assert driver.visibility_timeout == 60
    assert repr(driver) == "GCPPubSubDriver(shop at pubsub.googleapis.com, topic_id='bus')"
    assert "gcp_pubsub" in QueueDriverRegistry.with_defaults().names()


# What the service does not do by itself.


async def test_long_and_awkward_headers_survive_in_pieces(driver):
    await driver.declare("orders", "g")
    headers = {"long": "ü" * 3_000, "plain": "x" * 1_025, "goog-x": "1", "~t": "2", "empty": ""}
    (sent,) = await publish(driver, b"1", headers=headers)
    (got,) = await take(driver)
    assert got.message == sent
    entry = DeadLetterEntry(
        message=got.message, error="é" * 2_000, traceback="ü" * 8_000, group="g"
    )
    await driver.dead_letter(got, entry)
    assert list(await driver.list_dead("orders", "g")) == [entry]


async def test_a_dead_letter_with_too_many_headers_loses_its_traceback_only(driver):
    await driver.declare("orders", "g")
    headers = {f"h{number}": str(number) for number in range(80)}
    await publish(driver, b"1", headers=headers)
    (got,) = await take(driver)
    entry = DeadLetterEntry(message=got.message, error="é" * 2_000, traceback="ü" * 8_000)
    await driver.dead_letter(got, entry)
    (found,) = await driver.list_dead("orders", "g")
    assert (found.message, found.traceback) == (got.message, None)
    assert found.error == "é" * 256


async def test_a_message_that_waits_for_long_is_published_anew_before_the_service_sets_it_aside(
    driver, monkeypatch
):
    monkeypatch.setattr(_receiver, "RENEWED_AFTER", 2)
    monkeypatch.setattr(_receiver, "LONGEST_DELAY", 1)
    monkeypatch.setattr(_wire, "LONGEST_DELAY", 1)
    await driver.declare("orders", "g")
    await driver.declare("orders", "other")
    due = clock.timestamp() + 3.5
    (sent,) = await publish(driver, b"later", headers={DELIVER_AT: str(due)})
    (got,) = await take(driver)
    assert clock.timestamp() >= due
    assert (got.message, got.delivery_count) == (sent, 1)
    (other,) = await take(driver, group="other")
    assert other.message == sent
    await driver.ack_many([got])
    assert list(await driver.receive("orders", "g", limit=1, wait=0.3)) == []


async def test_what_the_service_set_aside_is_a_dead_letter_and_can_be_redriven(driver, monkeypatch):
    monkeypatch.setattr(_topology, "MOST_DELIVERIES", 5)
    await driver.declare("orders", "g")
    (sent,) = await publish(driver, b"poison")
    for number in range(1, 6):
        (got,) = await take(driver)
        assert got.delivery_count == number
        await driver.release_many([got])
    (entry,) = await driver.list_dead("orders", "g")
    assert (entry.message, entry.reason, entry.attempts) == (sent, DeadLetterReason.POISON, 5)
    assert await driver.redrive("orders", "g") == 1
    (again,) = await take(driver)
    assert (again.message, again.delivery_count) == (sent, 1)


async def test_a_retry_policy_is_that_of_the_settings_also_when_they_change(driver, double):
    """It is for what nobody settled; by default there is none."""

    async def policy(**settings):
        made = driver_on(settings_of(double), driver.prefix, **settings)
        await made.connect()
        await made.declare("orders", "g")
        found = await made._space.find(made._place("orders", "g").subscription)
        await made.close()
        return found.retry_policy if "retry_policy" in found else None

    assert await policy() is None
    found = await policy(min_backoff=1.0, max_backoff=2.0)
    assert (found.minimum_backoff.seconds, found.maximum_backoff.seconds) == (1, 2)
    assert (await policy(min_backoff=1.0)).maximum_backoff.seconds == 600
    assert await policy() is None


async def test_with_a_retry_policy_what_nobody_settled_pauses_and_our_retries_do_not(
    driver, double
):
    patient = driver_on(settings_of(double), driver.prefix, min_backoff=2.0, max_backoff=2.0)
    await patient.connect()
    await patient.declare("orders", "g")
    await publish(patient, b"1")
    (got,) = await take(patient)
    await patient.release_many([got])
    begun = asyncio.get_running_loop().time()
    (got,) = await take(patient)
    assert asyncio.get_running_loop().time() - begun >= 1.9  # the service began to wait before
    assert got.delivery_count == 2
    await patient.nack(got, message=replace(got.message, retry_count=1))
    # A copy was published: it has never been delivered, so there is no pause to wait for.
    (again,) = await patient.receive("orders", "g", limit=1, wait=1.5)
    assert (again.message.retry_count, again.delivery_count) == (1, 1)
    await patient.close()


async def aside(driver, number):
    """So many dead letters."""
    await driver.declare("orders", "g")
    await publish(driver, *(b"%d" % one for one in range(number)))
    for one in await take(driver, number):
        await driver.dead_letter(one, DeadLetterEntry(message=one.message, error="x", group="g"))


async def test_dead_letters_are_counted_up_to_a_limit_and_are_all_there_afterwards(double):
    driver = driver_on(settings_of(double), place_name(), counted=5)
    await driver.connect()
    await aside(driver, 4)
    assert await driver.count_dead("orders", "g") == 4
    await aside(driver, 4)
    assert await driver.count_dead("orders", "g") == 5
    assert len(await driver.list_dead("orders", "g")) == 8
    assert await driver.redrive("orders", "g") == 8
    await driver.close()


def test_a_policy_that_keeps_many_dead_letters_can_see_that_there_are_too_many():
    policy = DeadLetterPolicy(max_entries=5_000)
    entry = NamedQueueConfig(name="events", driver="gcp_pubsub", dead_letters=policy)
    assert build(entry, Services())._counted == 5_001
    assert build(NamedQueueConfig(name="a"), Services())._counted == 1_000


async def test_dead_letters_go_back_when_looking_at_them_fails(driver, double, monkeypatch):
    monkeypatch.setattr(_dead_letters, "PAGE", 2)
    await aside(driver, 3)
    pull, calls = Space.pull, []

    async def fails_at_last(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            await double.fault(Pull=["PERMISSION_DENIED", 1])
        return await pull(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Space, "pull", fails_at_last)
        with pytest.raises(GCPPubSubQueueError):
            await driver.list_dead("orders", "g")
    # At once: otherwise they would be out for a minute.
    assert len(await driver.list_dead("orders", "g")) == 3


async def test_one_of_a_key_is_handed_out_at_a_time_although_a_batch_came(driver):
    await driver.declare("orders", "g")
    key = {ORDERING_KEY: "customer-1"}
    await publish(driver, *(b"%d" % number for number in range(5)), headers=key)
    for number in range(5):
        (got,) = await driver.receive("orders", "g", limit=10, wait=5)
        assert (got.message.payload, got.delivery_count) == (b"%d" % number, 1)
        assert list(await driver.receive("orders", "g", limit=10, wait=0)) == []
        await driver.ack_many([got])


async def test_what_waits_behind_its_key_is_kept_as_long_as_the_first_one(driver):
    await driver.declare("orders", "g")
    await publish(driver, b"0", b"1", headers={ORDERING_KEY: "k"})
    (first,) = await driver.receive("orders", "g", limit=10, wait=5)
    for _ in range(6):
        await anyio.sleep(LEASE / 2)
        assert list(await driver.extend_many([first], LEASE)) == []
    await driver.ack_many([first])
    (second,) = await take(driver, limit=10)
    assert (second.message.payload, second.delivery_count) == (b"1", 1)


async def test_a_retry_of_a_key_goes_behind_and_the_next_comes(driver):
    await driver.declare("orders", "g")
    await publish(driver, b"0", b"1", headers={ORDERING_KEY: "k"})
    (first,) = await driver.receive("orders", "g", limit=10, wait=5)
    await driver.nack(first, message=replace(first.message, retry_count=1))
    (second,) = await take(driver, limit=10)
    assert second.message.payload == b"1"
    await driver.ack_many([second])
    (again,) = await take(driver, limit=10)
    assert (again.message.payload, again.message.retry_count) == (b"0", 1)


async def test_what_nobody_takes_any_more_is_given_to_others_at_once(driver, double):
    """A pull outlives its receive by a moment; what it brings then is given back."""
    await driver.declare("orders", "g")
    peer = driver_on(settings_of(double), driver.prefix)
    await peer.connect()
    await driver.receive("orders", "g", limit=1, wait=0)  # its pull still waits
    await publish(peer, b"1")
    with anyio.fail_after(LEASE * 4):
        assert bodies(await take(peer)) == [b"1"]
    await peer.close()


async def test_topics_made_before_their_first_group_keep_order_and_everything(driver):
    await publish(driver, b"0", b"1")
    await publish(driver, b"2")
    await asyncio.gather(*(driver.declare("orders", "g") for _ in range(3)))
    await publish(driver, b"3")
    assert bodies(await take(driver, 4)) == [b"0", b"1", b"2", b"3"]
    place = driver._place("orders", "g")
    assert await driver._space.find(place.keeper) is None


async def test_a_keeper_whose_topic_was_deleted_is_made_again(driver):
    await publish(driver, b"lost with its topic")
    await driver._space.into.delete_topic(topic=driver._place("orders", "").entity)
    await publish(driver, b"kept")
    await driver.declare("orders", "g")
    assert bodies(await take(driver)) == [b"kept"]


async def test_settling_after_the_connection_was_closed_does_nothing(driver):
    await driver.declare("orders", "g")
    await publish(driver, b"1")
    got = await take(driver)
    await driver.close()
    await driver.ack_many(got)
    await driver.nack(got[0], delay=1)
    await driver.release_many(got)
    await driver.dead_letter(got[0], DeadLetterEntry(message=got[0].message, error="late"))
    assert list(await driver.extend_many(got, LEASE)) == got
    await driver.connect()
    assert bodies(await take(driver)) == [b"1"]


async def test_applications_with_subscriptions_of_their_own_share_topics_and_not_retries(
    driver, double
):
    other = driver_on(settings_of(double), driver.prefix, subscription_id="another")
    await other.connect()
    await publish(driver, b"early")
    await other.declare("orders", "g")  # takes over what the first application kept
    await driver.declare("orders", "g")
    assert bodies(await take(other)) == [b"early"]
    await publish(driver, b"1")
    assert bodies(await take(driver)) == [b"1"]
    (got,) = await take(other)
    await other.nack(got, message=replace(got.message, retry_count=1))
    assert (await take(other))[0].message.retry_count == 1
    assert list(await driver.receive("orders", "g", limit=10, wait=0.3)) == []
    assert list(await driver.groups()) == list(await other.groups()) == [("orders", "g")]
    await other.close()


# The runtime on it.


async def test_a_handler_longer_than_the_ack_deadline_is_not_repeated(double):
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


async def test_consumers_go_on_after_the_service_was_away(double):
    retry = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))
    queue = BusQueue(driver_on(settings_of(double), place_name(), timeout=1.0), options=retry)
    await queue.connect()
    got = []

    async def handle(message):
        got.append(message.payload)

    await queue.subscribe("orders", handle)
    await queue.publish("orders", BusMessage(payload=1))
    await wait_until(lambda: 1 in got, timeout=30)
    await double.fault(ALL=["UNAVAILABLE", 100])
    with pytest.raises(QueueError):
        await queue.publish("orders", BusMessage(payload=2))
    await double.fault()
    await queue.publish("orders", BusMessage(payload=3))
    await wait_until(lambda: 3 in got, timeout=30)
    await queue.close()


# Programs of others.


async def test_a_message_of_a_foreign_program_is_delivered_with_its_native_fields(driver, double):
    await driver.declare("orders", "g")
    channel = grpc.aio.insecure_channel(double.host)
    transport = PublisherGrpcAsyncIOTransport(channel=channel)
    client = await anyio.to_thread.run_sync(lambda: PublisherAsyncClient(transport=transport))
    message = {
        "data": b'{"number": 1}',
        "attributes": {"tenant": "t1", "content-type": "application/json"},
        "ordering_key": "k",
    }
    entity = driver._place("orders", "g").entity
    answer = await client.publish(topic=entity, messages=[message])
    (got,) = await take(driver)
    assert (got.message.id, got.message.topic) == (answer.message_ids[0], "orders")
    assert got.message.payload == b'{"number": 1}'
    assert got.message.headers == {
        "tenant": "t1",
        "content-type": "application/json",
        ORDERING_KEY: "k",
    }
    await channel.close()
