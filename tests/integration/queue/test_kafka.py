"""The kafka driver on librdkafka's mock cluster: what its suite cannot ask: offsets, faults, others."""

import json
from concurrent.futures import Future
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace

import anyio
import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.kafka.places import SETTINGS, driver_on, place_name
from tests.doubles.kafka.server import KafkaDouble
from tests.hostile import hostile_body, hostile_headers
from tests.queue_drivers import make as make_driver

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import BusMessage, DeadLetterEntry, MessageTooLargeError
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.kafka import KafkaDriver, KafkaQueue, build
from lexigram.queue.backends.kafka._admin import make_topics
from lexigram.queue.backends.kafka._control import offsets_of
from lexigram.queue.backends.kafka._names import RETRIES
from lexigram.queue.backends.kafka._partition import (
    MARK,
    MAX_BEGUN,
    WINDOW,
    CommitNote,
    Part,
    pack,
    unpack,
)
from lexigram.queue.backends.kafka._poller import Poller
from lexigram.queue.backends.kafka._wire import NOT_BEFORE
from lexigram.queue.backends.services import Services
from lexigram.queue.config import KafkaDriverConfig, NamedQueueConfig
from lexigram.queue.errors import KafkaQueueError
from lexigram.testing import wait_until
from lexigram.testing.integration.fixtures import kafka_producer, kafka_servers

__all__ = ["kafka_producer", "kafka_servers"]  # fixtures

pytestmark = pytest.mark.anyio

PRODUCE, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT = 0, 8, 9, 12  # numbers of the protocol
NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED, MSG_SIZE_TOO_LARGE = 19, 29, 10
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED = 22, 27, 30


@pytest.fixture(scope="module")
def double():
    with KafkaDouble() as running:
        yield running


@pytest.fixture
async def make(double):
    """Drivers of one place, connected, closed at the end."""
    group_id, made = place_name(), []

    async def make(**settings):
        made.append(driver_on(double.servers, group_id, **settings))
        await made[-1].connect()
        return made[-1]

    yield make
    for driver in made:
        await driver.close()


@pytest.fixture
def topic():
    return f"orders.{place_name()}"


def messages(topic, *bodies, **fields):
    return [BusMessage(topic=topic, payload=body, **fields) for body in bodies]


async def take(driver, topic, number=1):
    got = []
    with anyio.fail_after(30):
        while len(got) < number:
            got += await driver.receive(topic, "g", limit=number - len(got), wait=1)
    return got


def bodies(deliveries):
    return [one.message.payload for one in deliveries]


# Offsets.


async def test_what_was_settled_out_of_order_does_not_come_to_the_next_owner(make, topic):
    first, second = await make(), await make()
    await first.declare(topic, "g")
    await first.publish_many(messages(topic, b"0", b"1", b"2", b"3", b"4"))
    held = await take(first, topic, 5)
    await first.ack_many([held[1], held[3]])
    assert await second.depth(topic, "g") == 3
    await first.close()
    again = await take(second, topic, 3)
    assert bodies(again) == [b"0", b"2", b"4"]
    await second.ack_many(again)
    assert await second.depth(topic, "g") == 0
    assert list(await second.receive(topic, "g", limit=5, wait=0.2)) == []


async def test_a_mark_that_is_not_written_is_not_counted(make, topic, monkeypatch):
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"0"))
    [held] = await take(driver, topic, 1)

    async def fail(*parts):
        raise TimeoutError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(held.receipt.member, "_commit", fail)
        with pytest.raises(KafkaQueueError):
            await driver.mark_begun(held)
    assert await driver.mark_begun(held) == 1


@given(
    st.integers(0, 2**40),
    st.sets(st.integers(1, WINDOW + 2000)),
    st.integers(0, WINDOW),
    st.dictionaries(st.integers(0, WINDOW), st.integers(1, 10_000), max_size=MAX_BEGUN),
)
def test_what_is_settled_and_begun_beyond_the_commit_fits_into_its_metadata(
    base, ahead, reserved, begun
):
    done = {base + one for one in ahead}
    counts = {base + one: number for one, number in begun.items()}
    packed = pack(base, done, base + reserved, counts)
    note = CommitNote(done, base + reserved if reserved else 0, counts)
    assert unpack(base, packed) == note
    assert len(packed) <= 4096


@pytest.mark.parametrize(
    "text",
    [None, "", "of others", f"{MARK}!", f"{MARK}AAAA", f"{MARK};;", f"{MARK}1;;!", f"{MARK}-1;;"],
)
def test_metadata_of_others_mean_nothing(text):
    assert unpack(7, text) == CommitNote()


@given(st.data())
def test_what_was_settled_and_not_written_still_holds_when_the_partition_comes_back(data):
    base = data.draw(st.integers(0, 50))
    here = data.draw(st.sets(st.integers(base, base + 40)))
    old = Part(("t", 0), None, base, set(), base, next=base)
    for offset in range(base, base + 41):
        old.came(offset)
    for offset in here:
        old.settle(offset)
    # Meanwhile others had it: they committed a later place, and something behind it.
    start = base + data.draw(st.integers(0, 60))
    there = data.draw(st.sets(st.integers(start + 1, start + 40)))
    new = Part(("t", 0), None, start, set(there), start, next=start)
    new.recall(old)
    settled = {one for one in here if one >= start} | there
    assert set(range(start, new.base)) | new.done == settled
    assert new.base not in new.done
    assert new.is_dirty == ({one for one in here if one >= start} != set())


def test_what_was_settled_holds_although_the_group_has_never_committed():
    old = Part(("t", 0), None, None, set())
    for offset in (3, 4, 5, 6):
        old.came(offset)
    for offset in (3, 5):
        old.settle(offset)
    new = Part(("t", 0), None, None, set())
    new.recall(old)
    assert (new.base, new.done, new.is_dirty) == (4, {5}, True)


def test_a_group_that_was_set_back_by_its_operator_begins_there():
    old = Part(("t", 0), None, 100, set(), 100, next=100)
    old.came(100)
    old.settle(100)
    new = Part(("t", 0), None, 7, set(), 7, next=7)
    new.recall(old)
    assert (new.base, new.done, new.is_dirty) == (7, set(), False)


async def test_three_members_share_the_partitions_and_lag_is_told_by_partition(make, topic):
    members = [await make() for _ in range(3)]
    await members[0].declare(topic, "g")
    keyed = [
        BusMessage(topic=topic, payload=b"%d" % n, headers={ORDERING_KEY: str(n)})
        for n in range(60)
    ]
    await members[0].publish_many(keyed)
    lag = await members[0].lag_by_partition(topic, "g")
    assert sum(lag.values()) == 60
    assert all(lag.values())
    got = {}

    async def consume(member):
        while len(got) < 60:
            held = await member.receive(topic, "g", limit=2, wait=0.5)
            await anyio.sleep(0.02)
            await member.ack_many(held)
            got.update((one.message.payload, member) for one in held)

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for member in members:
                tasks.start_soon(consume, member)
    assert len(got) == 60
    assert sum((await members[0].lag_by_partition(topic, "g")).values()) == 0


# Members.


@asynccontextmanager
async def consuming(*drivers, topic):
    """Each driver receives and settles until the end; yields what came, by driver."""
    came = {driver: [] for driver in drivers}

    async def consume(driver):
        while True:
            held = await driver.receive(topic, "g", limit=20, wait=0.5)
            await driver.ack_many(held)
            came[driver] += bodies(held)

    async with anyio.create_task_group() as tasks:
        for driver in drivers:
            tasks.start_soon(consume, driver)
        yield came
        tasks.cancel_scope.cancel()


def owned(driver, topic):
    """The partitions a member has, by topic of Kafka."""
    found = {}
    member = driver._there().members.get((topic, "g"))
    for name, number in member.parts if member is not None else ():
        found.setdefault(name, set()).add(number)
    return found


async def test_members_have_equal_parts_of_the_topic_and_its_retries_follow(make, double, topic):
    double.command("topic", topic, 6)
    members = [await make() for _ in range(3)]
    await members[0].declare(topic, "g")
    async with consuming(*members, topic=topic):
        await wait_until(
            lambda: [len(owned(one, topic).get(topic, ())) for one in members] == [2, 2, 2],
            timeout=60,
        )
        for member in members:
            found = owned(member, topic)
            # Four partitions are what the double makes by itself.
            followed = {number for number in found.pop(topic) if number < 4}
            assert list(found.values()) == [followed] * (len(RETRIES) if followed else 0)


async def test_retries_go_where_the_owners_of_the_topic_read_them(make, double, topic):
    double.command("topic", topic, 2)  # its topics for retries have four
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, *(b"%d" % n for n in range(60))))
    for held in await take(driver, topic, 60):
        await driver.nack(held)
    again = await take(driver, topic, 60)
    assert {int(one.message.payload) for one in again} == set(range(60))
    await driver.ack_many(again)
    assert await driver.depth(topic, "g") == 0


async def test_an_acknowledgement_that_was_not_written_before_the_partition_went_is_told_once(
    make, double, topic
):
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"1"))
    held = await take(driver, topic)
    async with consuming(driver, topic=topic) as came:
        # The group goes on without this member, and takes no commit of it.
        double.command("errors", OFFSET_COMMIT, REBALANCE_IN_PROGRESS, 10_000)
        double.command("errors", HEARTBEAT, ILLEGAL_GENERATION, 1)
        try:
            with pytest.raises(KafkaQueueError, match="went to another member before the commit"):
                await driver.ack_many(held)
        finally:
            double.command("no_errors", OFFSET_COMMIT)
        await driver.ack_many(held)  # as with every delivery that is lost: nothing to do
        # It comes back to the one that had handled it: that one still knows, and writes it now.
        with anyio.fail_after(60):
            while await driver.depth(topic, "g"):  # noqa: ASYNC110 - a broker tells nobody
                await anyio.sleep(0.05)
    assert came[driver] == []


async def test_an_acknowledgement_waits_until_a_rebalance_is_over(make, double, topic):
    driver, other = await make(), await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"1"))
    held = await take(driver, topic)
    double.command("errors", OFFSET_COMMIT, REBALANCE_IN_PROGRESS, 3)
    await driver.ack_many(held)
    assert await other.depth(topic, "g") == 0


async def test_nothing_more_is_handed_out_while_what_was_handled_cannot_be_committed(
    make, double, topic
):
    driver, other = await make(), await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"1", b"2", b"3"))
    held = await take(driver, topic)
    member = held[0].receipt.member
    await wait_until(lambda: sum(part.waiting for part in member.parts.values()) == 2, timeout=60)
    double.command("errors", OFFSET_COMMIT, REBALANCE_IN_PROGRESS, 10_000)
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(driver.ack_many, held)
            await wait_until(lambda: member.is_behind, timeout=60)
            assert list(await driver.receive(topic, "g", limit=2, wait=0.1)) == []
        finally:
            double.command("no_errors", OFFSET_COMMIT)
    assert await other.depth(topic, "g") == 2  # it is written
    again = await take(driver, topic, 2)
    assert bodies(again) == [b"2", b"3"]
    await driver.ack_many(again)


async def test_a_member_that_was_thrown_out_does_not_wait_for_its_handlers(make, double, topic):
    first = await make(rebalance_timeout=600.0)
    second = await make()
    await first.declare(topic, "g")
    keyed = [
        BusMessage(topic=topic, payload=b"%d" % n, headers={ORDERING_KEY: str(n)})
        for n in range(40)
    ]
    await first.publish_many(keyed)
    held = await take(first, topic, 40)
    async with consuming(second, topic=topic) as came:
        # The second one joins; what the first is to give up waits for its handlers.
        await wait_until(
            lambda: any(one.receipt.record.part.is_closing for one in held), timeout=60
        )
        double.command("errors", OFFSET_COMMIT, ILLEGAL_GENERATION, 1)
        await wait_until(lambda: came[second], timeout=60)
    assert {one.message.payload for one in held if one.receipt.record.part.is_gone} >= set(
        came[second]
    )


async def test_a_member_that_may_not_know_where_its_group_stands_says_the_fix_and_begins_anew(
    make, double, topic
):
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"1"))
    double.command("errors", OFFSET_FETCH, GROUP_AUTHORIZATION_FAILED, 1)
    with pytest.raises(KafkaQueueError, match="allow Read on groups"):
        await take(driver, topic)
    assert bodies(await take(driver, topic)) == [b"1"]


class Committed:
    """The part of a client that tells where a group stands: once not, then it does."""

    def __init__(self):
        error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        self.answers = [SimpleNamespace(error=error), SimpleNamespace(error=None, offset=7)]

    def committed(self, places, timeout):
        return [self.answers.pop(0)]


def test_a_place_the_brokers_cannot_tell_yet_is_not_the_beginning():
    poller = SimpleNamespace(_about=SimpleNamespace(timeout=5.0))
    (known,) = Poller._fetch_committed(poller, Committed(), [None])
    assert known.offset == 7


# Keys.


async def test_keys_of_one_partition_run_beside_each_other(make, topic):
    driver = await make()
    await driver.declare(topic, "g")
    # Two keys of one partition: the partitioner is that of all clients.
    for body, key in [(b"a0", "a"), (b"b0", "b"), (b"a1", "a"), (b"b1", "b")]:
        await driver.publish_many(messages(topic, body, headers={ORDERING_KEY: key}))
    held = await take(driver, topic, 2)
    assert sorted(bodies(held)) == [b"a0", b"b0"]
    assert list(await driver.receive(topic, "g", limit=5, wait=0.2)) == []
    await driver.ack_many([one for one in held if one.message.payload == b"b0"])
    assert bodies(await take(driver, topic)) == [b"b1"]


async def test_a_key_waits_for_its_retry(make, topic):
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"0", b"1", headers={ORDERING_KEY: "k"}))
    await driver.publish_many(messages(topic, b"free"))
    held = await take(driver, topic, 2)
    first = next(one for one in held if one.message.payload == b"0")
    await driver.nack(first, delay=0.5)
    assert list(await driver.receive(topic, "g", limit=5, wait=0.1)) == []
    (again,) = await take(driver, topic)
    assert again.message.payload == b"0"
    await driver.ack_many([again])
    assert bodies(await take(driver, topic)) == [b"1"]


# Others on the cluster.


async def test_a_message_of_a_foreign_producer_is_a_message(kafka_servers, kafka_producer):
    # This cluster waits three seconds for more members, and forgets whose session is shorter.
    driver = driver_on(kafka_servers, place_name(), session_timeout=6.0)
    await driver.connect()
    try:
        await driver.declare("orders", "g")
        kafka_producer.produce("orders", b"bare", key=b"k", headers=[("tenant", b"t1")])
        await anyio.to_thread.run_sync(kafka_producer.flush)
        (held,) = await take(driver, "orders")
        assert held.message.payload == b"bare"
        assert held.message.headers == {"tenant": "t1"}
        assert held.message.id.startswith("orders:")
        await driver.ack_many([held])
    finally:
        await driver.close()


def read_all(servers, topic):
    """What a program that knows nothing of the bus sees."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "foreign", "auto.offset.reset": "earliest"}
    )
    parts = consumer.list_topics(topic, timeout=5).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in parts])
    try:
        while True:
            found = consumer.poll(10)
            assert found is not None
            if not found.error():
                return found
    finally:
        consumer.close()


async def test_a_foreign_consumer_reads_body_key_and_headers_of_cloudevents(make, double, topic):
    driver = await make()
    await driver.declare(topic, "g")
    sent = messages(topic, b'{"a": 1}', headers={ORDERING_KEY: "k1", "tenant": "t1"})
    await driver.publish_many(sent)
    found = await anyio.to_thread.run_sync(read_all, double.servers, topic)
    headers = dict(found.headers())
    assert (found.value(), found.key()) == (b'{"a": 1}', b"k1")
    assert headers["ce_id"] == sent[0].id.encode()
    assert headers["tenant"] == b"t1"


async def test_a_dead_letter_tells_where_it_came_from(make, double, topic):
    driver = await make()
    await driver.declare(topic, "g")
    await driver.publish_many(messages(topic, b"bad"))
    (held,) = await take(driver, topic)
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="boom", group="g"))
    dead = f"{topic}.{driver.group_id}.g.dlq"
    found = await anyio.to_thread.run_sync(read_all, double.servers, dead)
    headers = dict(found.headers())
    assert headers["lex-origin-topic"] == topic.encode()
    assert headers["lex-origin-offset"] == b"0"
    assert headers["dead-error"] == b"boom"


# What goes wrong.


async def test_nothing_is_lost_while_the_brokers_are_away(topic):
    with KafkaDouble() as double:
        driver = driver_on(double.servers, place_name(), timeout=2.0)
        await driver.connect()
        await driver.declare(topic, "g")
        await driver.publish_many(messages(topic, b"before"))
        double.command("down", 1)
        sent = messages(topic, b"during")
        with pytest.raises(KafkaQueueError) as caught:
            await driver.publish_many(sent)
        assert caught.value.details["unconfirmed"] == [sent[0].id]
        assert "bootstrap_servers" in str(caught.value)
        assert (await driver.health_check(timeout=0.5)).status is HealthStatus.UNHEALTHY
        double.command("up", 1)
        with anyio.fail_after(30):
            while True:
                try:
                    await driver.connect()
                    await driver.publish_many(sent)
                    break
                except KafkaQueueError:
                    await anyio.sleep(0.1)
        assert set(bodies(await take(driver, topic, 2))) == {b"before", b"during"}
        await driver.close()


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"bootstrap_servers": "127.0.0.1:1"}, "bootstrap_servers"),
        ({"properties": {"no.such.setting": "1"}}, "kafka.properties"),
        (
            {
                "properties": {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "shop",
                    "sasl.password": "hunter2",
                }
            },
            "sasl.username and sasl.password",
        ),
    ],
    ids=["unreachable", "unknown setting", "wrong credentials"],
)
async def test_a_connection_that_cannot_be_made_says_the_fix(double, settings, fix):
    driver = make_driver(
        KafkaDriver,
        KafkaDriverConfig,
        **{"bootstrap_servers": double.servers, "timeout": 1.0} | settings,
    )
    with pytest.raises(KafkaQueueError) as caught:
        await driver.connect()
    assert fix in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (TOPIC_AUTHORIZATION_FAILED, "allow Read, Write, Describe and Create on topic"),
        (MSG_SIZE_TOO_LARGE, "max.message.bytes"),
    ],
    ids=["forbidden", "too large for the topic"],
)
async def test_a_refusal_of_the_brokers_is_typed_and_nothing_is_lost(
    make, double, topic, code, fix
):
    driver = await make()
    await driver.declare(topic, "g")
    double.command("errors", PRODUCE, code, 1)
    sent = messages(topic, b"1")
    with pytest.raises(KafkaQueueError) as caught:
        await driver.publish_many(sent)
    assert fix in str(caught.value)
    assert caught.value.details["unconfirmed"] == [sent[0].id]
    if code != TOPIC_AUTHORIZATION_FAILED:  # the client asks again for its rights after 30 s
        await driver.publish_many(sent)
        assert bodies(await take(driver, topic)) == [b"1"]


async def test_what_passes_by_itself_is_tried_again_by_the_client(make, double, topic):
    driver = await make()
    await driver.declare(topic, "g")
    double.command("errors", PRODUCE, NOT_ENOUGH_REPLICAS, 2)
    await driver.publish_many(messages(topic, b"1"))
    assert bodies(await take(driver, topic)) == [b"1"]


async def test_an_oversized_message_is_refused_before_anything_is_sent(make, topic):
    driver = await make(max_message_bytes=200_000)
    await driver.declare(topic, "g")
    with pytest.raises(MessageTooLargeError, match=r"kafka\.max_message_bytes"):
        await driver.publish_many(messages(topic, b"small", b"x" * 200_000))
    assert await driver.depth(topic, "g") == 0


class Admin:
    """The part of an administrator that the mock cluster has not."""

    def __init__(self):
        self.topics, self.made = {}, []

    def list_topics(self, topic=None, timeout=-1):
        return SimpleNamespace(topics=self.topics, controller_id=1, brokers={1: None})

    def create_topics(self, new, **_):
        answers = {}
        for one in new:
            self.made.append(one)
            partitions = dict.fromkeys(range(one.num_partitions))
            self.topics[one.topic] = SimpleNamespace(error=None, partitions=partitions)
            answers[one.topic] = Future()
            answers[one.topic].set_result(None)
        return answers


def test_topics_for_retries_have_as_many_partitions_as_their_topic():
    config, admin = KafkaDriverConfig(partitions=3), Admin()
    found = make_topics(admin, ["orders.a.g.retry.5s", "orders.a.g.dlq"], config, partitions=12)
    assert found == {"orders.a.g.retry.5s": 12, "orders.a.g.dlq": 1}


def test_topics_are_made_as_configured_where_the_brokers_let_us():
    config, admin = KafkaDriverConfig(partitions=3, replicas=2), Admin()
    found = make_topics(admin, ["orders", "orders.a.g.dlq"], config)
    assert found == {"orders": 3, "orders.a.g.dlq": 1}
    plain, dead = admin.made
    assert (plain.replication_factor, plain.config) == (2, {})
    assert dead.config == {"cleanup.policy": "compact"}


# The whole queue.


async def test_a_configured_queue_retries_and_sets_aside(double, topic):
    queue = KafkaQueue(
        double.servers,
        group_id=place_name(),
        config=KafkaDriverConfig(**SETTINGS),
        options=BusOptions(retry=RetryPolicy(base=0.01, cap=0.01)),
    )
    calls = []

    async def fail(message):
        calls.append(message.retry_count)
        raise ValueError("never")

    await queue.connect()
    try:
        await queue.subscribe(topic, fail, group="g")
        await queue.publish(topic, BusMessage(payload={"a": 1}, max_retries=2))

        async def dead():
            return await queue.driver.count_dead(topic, "g")

        await wait_until(lambda: len(calls) == 3, timeout=30)
        with anyio.fail_after(30):
            while not await dead():  # noqa: ASYNC110 - a broker tells nobody
                await anyio.sleep(0.05)
        (entry,) = await queue.driver.list_dead(topic, "g")
        assert (calls, entry.attempts, json.loads(entry.message.payload)) == (
            [0, 1, 2],
            3,
            {"a": 1},
        )
    finally:
        await queue.close()


def test_the_configuration_reaches_the_driver():
    own = KafkaDriverConfig(bootstrap_servers="a:1,b:2", group_id="shop", partitions=12)
    entry = NamedQueueConfig(name="bus", driver="kafka", kafka=own, max_backlog=7)
    driver = build(entry, Services())
    assert repr(driver) == "KafkaDriver(a:1,b:2, group_id='shop')"
    assert driver._config.partitions == 12
    assert driver._publisher._max_backlog == 7


# What others write to the topics of the driver.

OFFSETS = [None, "5", 1.5, True, -1, -2, -1001, 2**63, 10**30, [], {}]
MARKS = [
    *(None, 7, "x", [], [1], {"t": None}, {"t": 5}, {"t": [1]}, {"t": {"x": 1}}, {"t": {"-1": 1}}),
    *({"t": {"9" * 40: 1}}, *({"t": {"0": offset}} for offset in OFFSETS)),
]
KEYS = [
    *(None, b"", b"\xff\xfe", b"null", b"[]", b"[" * 50_000, b'"group"', b'["group"]'),
    *(b'["group", 1, 2]', b'["group", "t", null]', b'["pause", "t", "g"]', b'["group", "t", "g"]'),
]
BODIES = [
    *(None, b"", b"\xff", b"null", b"true", b"1e999", b"{", b"{" * 50_000, b"9" * 5_000),
    *(json.dumps({"marks": marks, "temporary": False}).encode() for marks in MARKS),
    *(json.dumps({"marks": marks, "dropped": True}).encode() for marks in MARKS),
    b'{"temporary": 1, "marks": {}}',
]


async def test_what_others_write_to_the_control_topic_stops_no_driver(double, make, topic):
    driver = await make()
    producer = confluent_kafka.Producer({"bootstrap.servers": double.servers})
    # The first one is taken for a declaration of this group, with an offset that is none.
    marks = {topic: {str(number): 10**30 for number in range(4)}}
    body = json.dumps({"marks": marks, "temporary": False})
    producer.produce(driver._there().control, body, json.dumps(["group", topic, "g"]))
    for key in KEYS:
        producer.produce(driver._there().control, BODIES[-1], key)
    for body in BODIES:
        producer.produce(driver._there().control, body, b'["group", "t", "g"]')
    await anyio.to_thread.run_sync(producer.flush)
    other = await make()
    for one in (driver, other):
        await one.declare(topic, "g")
    await driver.publish_many(messages(topic, b"good"))
    got = await take(other, topic)
    assert bodies(got) == [b"good"]
    await other.ack_many(got)
    assert await driver.depth(topic, "g") == 0


@pytest.mark.parametrize("offset", OFFSETS, ids=repr)
def test_an_offset_in_the_control_topic_that_is_none_is_no_offset(offset):
    assert offsets_of({"0": offset, "1": 7}) == {1: 7}


async def test_what_others_write_to_the_topics_of_a_group_is_read_and_stops_nobody(
    double, make, topic
):
    driver = await make()
    await driver.declare(topic, "g")
    place = driver._place(topic, "g")
    producer, chance = confluent_kafka.Producer({"bootstrap.servers": double.servers}), Random(14)
    keys = [b"\xff\xfe", b"", b"k", "é".encode(), b"\x00", b"x" * 500]
    for number in range(36):
        headers = [
            (name.decode("utf-8", "replace"), chance.choice([value, None]))
            for name, value in hostile_headers(chance).items()
        ]
        key, body = keys[number % 6] + b"%d" % (number // 6), hostile_body(chance)
        # None as a key: compacted topics of brokers refuse it, the double does not.
        producer.produce(place.dead, body, chance.choice([key, key, None]), 0, headers=headers)
        due = (NOT_BEFORE, chance.choice([b"inf", b"nan", b"-1", b"1e300", b"\xff", b"0", b"soon"]))
        producer.produce(place.now, body, key, 0, headers=[*headers, due])
    await anyio.to_thread.run_sync(producer.flush)
    number = await driver.count_dead(topic, "g")
    assert len(await driver.list_dead(topic, "g", limit=100)) == number
    assert len(await driver.peek(topic, "g", limit=100)) == 36
    assert await driver.redrive(topic, "g") == number
    await driver.publish_many(messages(topic, b"good"))
    got = await take(driver, topic, 36 + number + 1)
    assert b"good" in bodies(got)
    await driver.ack_many(got)
    assert await driver.depth(topic, "g") == await driver.count_dead(topic, "g") == 0
