"""The nats driver beside what a suite for all drivers cannot ask: its streams, servers and errors."""

import json
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import anyio
import nats
import pytest
from tests.e2e.queue.nats_server import nats_server  # noqa: F401 - a fixture
from tests.names import unique_name
from tests.queue_drivers import make as make_driver

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.queue import BusOptions, BusQueue, ConsumerOptions
from lexigram.queue.backends.nats import NATSDriver, NATSQueue, build
from lexigram.queue.backends.services import Services
from lexigram.queue.config import NamedQueueConfig, NATSDriverConfig
from lexigram.queue.errors import NATSQueueError, QueueLibraryError
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.service("nats")]


@pytest.fixture
def url(services):
    return f"nats://{services['nats'].address}"


@pytest.fixture
async def raw(url):
    """The client library alone: what a foreign program has."""
    client = await nats.connect(url)
    yield client
    await client.close()


@pytest.fixture
async def stream(raw):
    name = unique_name()
    yield name
    for one in (name, f"{name}-records", f"{name}-dead"):
        await raw.request(f"$JS.API.STREAM.DELETE.{one}")


@pytest.fixture
async def open_driver(url, stream):
    async with AsyncExitStack() as stack:

        async def make(**settings):
            driver = make_driver(
                NATSDriver, NATSDriverConfig, **{"url": url, "stream": stream, **settings}
            )
            stack.push_async_callback(driver.close)
            await driver.connect()
            return driver

        yield make


@pytest.fixture
async def driver(open_driver):
    return await open_driver(visibility_timeout=1.0)


@pytest.fixture
async def open_queue(open_driver):
    async with AsyncExitStack() as stack:

        async def make(*, options=None, **settings):
            queue = BusQueue(await open_driver(**settings), options=BusOptions(**(options or {})))
            stack.push_async_callback(queue.close)
            await queue.connect()
            return queue

        yield make


async def api(client, name, body=None):
    text = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{name}", text)).data)


async def becomes_empty(client, stream):
    async def is_empty():
        return not (await api(client, f"STREAM.INFO.{stream}"))["state"]["messages"]

    await wait_until(is_empty, timeout=60)


async def one_of(driver, topic, group, wait=5.0):
    """Receive one delivery; a hang is a failure."""
    with anyio.fail_after(60):
        while True:
            if found := await driver.receive(topic, group, limit=1, wait=wait):
                return found[0]


# Programs of others.


async def test_a_message_of_a_foreign_producer_is_delivered_under_one_id(driver, raw, stream):
    await driver.declare("orders.created", "g")
    await raw.request(f"{stream}.orders.created", b"plain")
    first = await one_of(driver, "orders.created", "g")
    assert (first.message.topic, first.message.payload) == ("orders.created", b"plain")
    assert first.message.headers == {}
    await driver.nack(first)
    again = await one_of(driver, "orders.created", "g")
    assert again.message.id == first.message.id


async def test_headers_and_id_of_a_foreign_producer_are_taken_as_they_are(driver, raw, stream):
    await driver.declare("orders", "g")
    headers = {"Nats-Msg-Id": "theirs", "discount": "100%25", "tenant": "Zürich"}
    await raw.request(f"{stream}.orders", b"{}", headers=headers)
    got = (await one_of(driver, "orders", "g")).message
    assert got.id == "theirs"
    assert got.headers == {"discount": "100%25", "tenant": "Zürich"}


async def test_a_foreign_consumer_reads_the_bare_body_and_cloudevents_headers(driver, raw, stream):
    await driver.declare("orders.created", "g")
    js = raw.jetstream()
    theirs = await js.pull_subscribe(f"{stream}.orders.created", durable="theirs", stream=stream)
    sent = BusMessage(topic="orders.created", payload=b'{"total": 1}', headers={"tenant": "t1"})
    await driver.publish_many([sent])
    (got,) = await theirs.fetch(1, timeout=5)
    assert got.data == b'{"total": 1}'
    assert got.headers["ce-id"] == sent.id
    assert got.headers["ce-type"] == "orders.created"
    assert got.headers["ce-specversion"] == "1.0"
    assert got.headers["tenant"] == "t1"
    await got.ack()


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Rollup": "all", "nats-msg-id": "x", "Nats-Expected-Stream": "other"},
        {"Status": "503", "Description": "no", "Lex-Group": "nobody"},
        {"with: colon": " edges ", "Grüße": "a\r\nb\tc", "": "no name", "empty": "", "sp": "   "},
    ],
    ids=["of the server", "of statuses", "odd text"],
)
async def test_headers_of_an_application_never_steer_the_server(driver, headers):
    await driver.declare("t", "g")
    sent = BusMessage(topic="t", payload=b"", headers=headers)
    await driver.publish_many([sent])
    held = await one_of(driver, "t", "g")
    assert held.message == sent
    await driver.nack(held, message=replace(held.message, retry_count=1))
    held = await one_of(driver, "t", "g")
    assert held.message == replace(sent, retry_count=1)
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="x", group="g"))
    (entry,) = await driver.list_dead("t", "g")
    assert entry.message.headers == headers


@pytest.mark.parametrize("topic", ["a..b", ".", "", "ü ö", "100%", "a>b", "%41", "x" * 200])
async def test_a_topic_may_be_any_text(driver, topic):
    await driver.declare(topic, "g")
    await driver.publish_many([BusMessage(topic=topic, payload=b"1")])
    got = await one_of(driver, topic, "g")
    assert (got.topic, got.message.topic) == (topic, topic)


# What the stream holds.


async def test_what_all_groups_acknowledged_leaves_the_stream(driver, raw, stream):
    await driver.declare("t", "a")
    await driver.declare("t", "b")
    await driver.publish_many([BusMessage(topic="t", payload=b"%d" % n) for n in range(20)])
    for group in ("a", "b"):
        for _ in range(20):
            await driver.ack_many([await one_of(driver, "t", group)])
    await becomes_empty(raw, stream)


async def test_a_record_of_a_retry_goes_with_its_message(driver, raw, stream):
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    held = await one_of(driver, "t", "g")
    await driver.nack(held, message=replace(held.message, retry_count=1))
    state = (await api(raw, f"STREAM.INFO.{stream}-records"))["state"]
    assert state["messages"] == 1
    await driver.ack_many([await one_of(driver, "t", "g")])
    await becomes_empty(raw, f"{stream}-records")


async def test_a_retry_may_replace_the_body(driver):
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"old")])
    for body in (b"new", b"new", b"old", b"", b""):
        held = await one_of(driver, "t", "g")
        await driver.nack(held, message=replace(held.message, payload=body))
        again = await one_of(driver, "t", "g")
        assert again.message.payload == body
        await driver.nack(again)
    assert (await one_of(driver, "t", "g")).message.payload == b""


async def test_a_dropped_topic_keeps_messages_for_its_next_group(driver):
    await driver.declare("t", "first")
    await driver.publish_many([BusMessage(topic="t", payload=b"gone")])
    await driver.drop("t", "first")
    await driver.publish_many([BusMessage(topic="t", payload=b"kept")])
    await driver.declare("t", "second")
    assert (await one_of(driver, "t", "second")).message.payload == b"kept"
    assert await driver.depth("t", "second") == 1


async def test_a_temporary_group_leaves_nothing_behind(driver, raw, stream):
    before = (await api(raw, f"STREAM.INFO.{stream}"))["state"]["consumer_count"]
    await driver.declare("replies", "g", temporary=True)
    await driver.publish_many([BusMessage(topic="replies", payload=b"1")])
    await driver.drop("replies", "g")
    state = (await api(raw, f"STREAM.INFO.{stream}"))["state"]
    assert (state["consumer_count"], state["messages"]) == (before, 0)


async def test_a_message_that_fits_can_become_a_dead_letter(driver):
    await driver.declare("t", "g")
    body = b"x" * driver.max_message_bytes
    await driver.publish_many([BusMessage(topic="t", payload=body)])
    held = await one_of(driver, "t", "g")
    entry = DeadLetterEntry(
        message=held.message, error="日" * 2000, traceback="本" * 20_000, group="g"
    )
    await driver.dead_letter(held, entry)
    (kept,) = await driver.list_dead("t", "g")
    assert kept.message == held.message
    with pytest.raises(MessageTooLargeError):
        await driver.publish_many([BusMessage(topic="t", payload=body + b"x")])


async def test_hundreds_of_dead_letters_are_listed_and_redriven(open_driver):
    driver = await open_driver()
    await driver.declare("t", "g")
    sent = [BusMessage(topic="t", payload=b"%d" % n) for n in range(600)]
    await driver.publish_many(sent)
    left = len(sent)
    while left:
        for held in await driver.receive("t", "g", limit=100, wait=5):
            await driver.dead_letter(
                held, DeadLetterEntry(message=held.message, error="boom", group="g")
            )
            left -= 1
    page = await driver.list_dead("t", "g", limit=10, offset=500)
    assert [one.message.payload for one in page] == [b"%d" % n for n in range(500, 510)]
    assert await driver.redrive("t", "g") == 600
    assert await driver.depth("t", "g") == 600


async def test_a_scheduled_message_is_in_no_hurry_after_a_restart(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(nats_server)
    driver = NATSDriver(server.url, visibility_timeout=1.0)
    await driver.connect()
    await driver.declare("t", "g")
    due = time.time() + 4
    await driver.publish_many(
        [BusMessage(topic="t", payload=b"later", headers={DELIVER_AT: repr(due)})]
    )
    assert list(await driver.receive("t", "g", limit=1, wait=0.1)) == []
    await anyio.to_thread.run_sync(server.stop)
    await anyio.to_thread.run_sync(server.start)
    await driver.connect()
    held = await one_of(driver, "t", "g")
    assert time.time() >= due
    assert held.message.payload == b"later"
    await driver.close()


# Lost connections.


async def test_a_restarted_server_is_found_again_and_nothing_is_lost(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(nats_server)
    seen = set()

    async def handle(message):
        seen.add(message.payload)

    async with NATSQueue(server.url) as queue:
        await queue.subscribe("t", handle)
        await queue.publish("t", BusMessage(payload=1))
        await wait_until(lambda: seen == {1}, timeout=60)
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        with pytest.raises(QueueError):
            await queue.publish("t", BusMessage(payload=2))
        assert (await queue.health_check()).status is HealthStatus.UNHEALTHY
        await anyio.to_thread.run_sync(server.start)
        with anyio.fail_after(60):
            while True:
                try:
                    await queue.publish("t", BusMessage(payload=3))
                    break
                except QueueError:
                    await anyio.sleep(0.05)
        await wait_until(lambda: 3 in seen, timeout=60)
        assert (await queue.health_check()).status is HealthStatus.HEALTHY


async def test_who_waits_is_told_when_the_server_goes(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(nats_server)
    driver = NATSDriver(server.url)
    await driver.connect()
    await driver.declare("t", "g")
    told = []

    async def wait():
        try:
            await driver.receive("t", "g", limit=1, wait=200)
        except NATSQueueError as error:
            told.append(error)

    with anyio.fail_after(60):  # far less than the wait
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.2)
            await anyio.to_thread.run_sync(server.stop)
    assert "lost" in told[0].message
    with pytest.raises(NATSQueueError):
        await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    await driver.close()


# Errors.


async def test_a_wrong_password_is_told_and_never_shown(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(
        lambda: nats_server('authorization: {user: "app", password: "right"}')
    )
    place = server.url.replace("//", "//app:s3cr3t@")
    driver = NATSDriver(place)
    with pytest.raises(NATSQueueError) as caught:
        await driver.connect()
    assert "user and password" in caught.value.hint
    shown = f"{caught.value} {caught.value.to_dict()} {driver!r} {await driver.health_check()}"
    assert "s3cr3t" not in shown
    good = NATSDriver(server.url.replace("//", "//app:right@"))
    await good.connect()
    health = await good.health_check()
    assert health.status is HealthStatus.HEALTHY
    assert "right" not in f"{health} {good!r}"
    await good.close()


@pytest.mark.parametrize("place", ["http://x", "nats://", "", "nats://h:port", "localhost:4222"])
async def test_a_wrong_url_is_told(place):
    with pytest.raises(NATSQueueError) as caught:
        await NATSDriver(place).connect()
    assert "nats://user:password@localhost:4222" in caught.value.hint


async def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(QueueLibraryError) as caught:
        await NATSDriver().connect()
    assert caught.value.hint == 'pip install "lexigram-queue[nats]"'


async def test_an_unreachable_host_is_told_in_time():
    with anyio.fail_after(60):
        with pytest.raises(NATSQueueError) as caught:
            await NATSDriver(
                "nats://127.0.0.1:1", config=NATSDriverConfig(connect_timeout=1.0)
            ).connect()
    assert "127.0.0.1:1" in caught.value.message
    assert "server runs" in caught.value.hint


async def test_a_server_without_jetstream_is_told(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(lambda: nats_server("jetstream: false"))
    with pytest.raises(NATSQueueError) as caught:
        await NATSDriver(server.url).connect()
    assert "nats-server -js" in caught.value.hint


async def test_a_missing_permission_is_told_with_its_subject(nats_server):  # noqa: F811
    server = await anyio.to_thread.run_sync(
        lambda: nats_server(
            'authorization: {users: [{user: "app", password: "p", permissions: {'
            'publish: {deny: ["lexigram.secret"]}}}]}'
        )
    )
    driver = NATSDriver(server.url.replace("//", "//app:p@"))
    await driver.connect()
    await driver.declare("secret", "g")
    with anyio.fail_after(60):
        with pytest.raises(NATSQueueError) as caught:
            await driver.publish_many([BusMessage(topic="secret", payload=b"1")])
    assert "lexigram.secret" in caught.value.message
    assert "allow the user" in caught.value.hint
    await driver.publish_many([BusMessage(topic="open", payload=b"1")])
    await driver.close()


async def test_the_rights_in_the_docs_are_enough(nats_server):  # noqa: F811
    publish = ["$JS.API.>", "$JS.ACK.>", "lexigram.>", "lexigram-records.>", "lexigram-dead.>"]
    subscribe = ["_INBOX.>", "lexigram-records.paused.*"]
    rights = json.dumps({"publish": {"allow": publish}, "subscribe": {"allow": subscribe}})
    server = await anyio.to_thread.run_sync(
        lambda: nats_server(
            f'authorization: {{users: [{{user: "app", password: "p", permissions: {rights}}}]}}'
        )
    )
    driver = NATSDriver(server.url.replace("//", "//app:p@"))
    await driver.connect()
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    held = await one_of(driver, "t", "g")
    await driver.nack(held, message=replace(held.message, retry_count=1))
    held = await one_of(driver, "t", "g")
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="x", group="g"))
    await driver.set_paused("t", "g", True)
    assert await driver.redrive("t", "g") == 1
    assert list(await driver.receive("t", "g", limit=1, wait=0)) == []
    await driver.set_paused("t", "g", False)
    await driver.ack_many([await one_of(driver, "t", "g")])
    await driver.drop("t", "g")
    await driver.close()


async def test_a_full_stream_is_a_full_queue(driver, raw, stream):
    await driver.declare("t", "g")
    config = (await api(raw, f"STREAM.INFO.{stream}"))["config"]
    await api(raw, f"STREAM.UPDATE.{stream}", config | {"max_msgs": 3, "discard": "new"})
    sent = [BusMessage(topic="t", payload=b"%d" % n) for n in range(5)]
    with pytest.raises(QueueFullError) as caught:
        await driver.publish_many(sent)
    assert caught.value.details["unconfirmed"] == [one.id for one in sent[3:]]


async def test_a_stream_of_somebody_else_is_left_alone(raw, url, stream):
    await api(raw, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
    with pytest.raises(NATSQueueError, match="keeps messages by limits"):
        await NATSDriver(url, stream=stream).connect()


# Settings.


async def test_the_settings_of_the_configuration_are_obeyed(url, raw, stream):
    entry = NamedQueueConfig(
        name="events",
        driver="nats",
        visibility_timeout=7.0,
        dedup_window=300.0,
        nats=NATSDriverConfig(url=url, stream=stream, max_ack_pending=5),
    )
    driver = build(entry, Services())
    await driver.connect()
    await driver.declare("t", "g")
    config = (await api(raw, f"STREAM.INFO.{stream}"))["config"]
    assert config["duplicate_window"] == 300 * 10**9
    (group,) = [
        one["config"]
        for one in (await api(raw, f"CONSUMER.LIST.{stream}"))["consumers"]
        if '"group"' in one["config"]["description"]
    ]
    assert (group["max_ack_pending"], group["ack_wait"]) == (5, 7_250_000_000)
    await driver.close()


async def test_a_changed_lease_is_told_to_the_server(open_driver):
    await (await open_driver(visibility_timeout=60.0)).declare("t", "g")
    driver = await open_driver(visibility_timeout=0.5)
    await driver.declare("t", "g")
    await driver.publish_many([BusMessage(topic="t", payload=b"1")])
    await one_of(driver, "t", "g")
    assert (await one_of(driver, "t", "g")).delivery_count == 2


# Under the runtime.


async def test_two_groups_get_all_and_three_members_share(open_queue):
    got = {"a": [], "b": []}
    queues = [await open_queue() for _ in range(3)]
    for queue in queues:
        await queue.consume(ConsumerOptions(topics=("t",), group="a"), _keep(got["a"]))
    await queues[0].consume(ConsumerOptions(topics=("t",), group="b"), _keep(got["b"]))
    await queues[1].publish_many("t", [BusMessage(payload=n) for n in range(200)])
    await wait_until(lambda: len(got["a"]) == len(got["b"]) == 200, timeout=60)
    assert sorted(got["a"]) == sorted(got["b"]) == list(range(200))


async def test_a_stop_under_load_acknowledges_nothing_that_was_not_handled(open_queue):
    handled = []

    async def handle(message):
        await anyio.sleep(0.005)
        handled.append(message.payload)

    queue = await open_queue()
    await queue.consume(ConsumerOptions(topics=("t",), group="g"), handle)
    await queue.publish_many("t", [BusMessage(payload=n) for n in range(500)])
    await wait_until(lambda: len(handled) > 100, timeout=60)
    await queue.close()
    first = len(handled)
    assert first < 500
    again = await open_queue()
    assert await again.driver.depth("t", "g") == 500 - first
    await again.consume(ConsumerOptions(topics=("t",), group="g"), handle)
    await wait_until(lambda: set(handled) == set(range(500)), timeout=60)


def _keep(found):
    async def handle(message):
        found.append(message.payload)

    return handle
