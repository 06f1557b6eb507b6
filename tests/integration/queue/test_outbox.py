"""A staged message is published if, and only if, its transaction commits; to any backend."""

from typing import ClassVar

import anyio
import anyio.lowlevel
import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data import OutboxProtocol, OutboxStoreProtocol
from lexigram.contracts.queue import (
    BusMessage,
    DeliveryGuarantee,
    InvalidMessageError,
    MessageTooLargeError,
    QueueError,
    QueueProtocol,
)
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.di import Module, module
from lexigram.di.errors import ProviderError
from lexigram.queue import (
    BusOptions,
    MessageConsumer,
    NamedQueueConfig,
    QueueConfig,
    QueueDriverRegistry,
    QueueModule,
    RetryPolicy,
)
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.backends.sql import SqlQueue
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import OutboxConfig
from lexigram.queue.outbox.outbox import OutboxRelay, TransactionalOutbox
from lexigram.queue.outbox.store import SqlOutboxStore
from lexigram.sql import Database, SqlConfig, SqlModule, TransactionScopeError
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeMetrics

pytestmark = pytest.mark.anyio

INSTALLED = QueueDriverRegistry.with_defaults()  # read here: it blocks the first time
ONCE = DeliveryGuarantee.EXACTLY_ONCE
PATIENT = OutboxConfig(poll_interval=60.0)  # only wake-ups can be in time


class Shaky(MemoryDriver):
    """A broker that can be away, and that has a largest message."""

    is_away = False
    max_message_bytes = None
    refuses = 1000  # bytes

    async def publish_many(self, messages):
        if self.is_away:
            raise QueueError("nobody there", backend="shaky")
        if any(len(message.payload) > self.refuses for message in messages):
            raise MessageTooLargeError("too large", backend="shaky")
        await super().publish_many(messages)


class Bus:
    """A queue on such a broker, and what its consumer got."""

    def __init__(self):
        self.driver = Shaky()
        self.queue = BusQueue(self.driver, options=BusOptions(retry=RetryPolicy(base=0.01)))
        self.got = []

    async def open(self):
        await self.queue.connect()

        async def handle(message):
            self.got.append(message)

        await self.queue.subscribe("orders", handle)
        return self

    @property
    def payloads(self):
        return [message.payload for message in self.got]


@pytest.fixture
async def bus():
    made = await Bus().open()
    yield made
    await made.queue.close()


@pytest.fixture
async def outbox(bus, database):
    made = TransactionalOutbox(bus.queue, database, name="events", config=PATIENT)
    yield made
    await made.stop()


async def test_a_committed_message_is_published_by_the_relay_at_the_commit(outbox, bus, database):
    await outbox.start()
    async with database.transaction():
        await outbox.stage("orders", BusMessage(id="m1", payload={"n": 1}))
        await database.execute_insert("effects", {"number": 1})
        assert bus.got == []
    await wait_until(lambda: bus.payloads == [{"n": 1}])
    assert bus.got[0].id == "m1"
    await wait_until(lambda: empty(outbox))


async def empty(outbox):
    return await outbox.pending() == 0


async def test_a_rolled_back_message_is_never_published(outbox, bus, database):
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            await outbox.stage("orders", BusMessage(payload="no"))
            raise ZeroDivisionError
    await outbox.stage("orders", BusMessage(payload="yes"))  # a transaction of its own
    await outbox.flush()
    await wait_until(lambda: bus.got)
    assert bus.payloads == ["yes"]


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("orders", BusMessage(id="")),
        ("orders", BusMessage(priority=2**63)),
        ("orders", BusMessage(headers={"deliver-at": "inf"})),
        ("*", BusMessage()),
    ],
)
async def test_a_message_out_of_bounds_is_refused_in_the_transaction_that_stages_it(
    outbox, database, topic, message
):
    with pytest.raises(InvalidMessageError):
        async with database.transaction():
            await database.execute_insert("effects", {"number": 1})
            await outbox.stage(topic, message)
    assert (await database.execute_query("SELECT * FROM effects")).rows == []
    async with database.transaction():  # one that goes on without the message is whole
        await database.execute_insert("effects", {"number": 2})
        with pytest.raises(InvalidMessageError):
            await outbox.stage(topic, message)
    assert (await database.execute_query("SELECT number FROM effects")).rows == [{"number": 2}]
    assert await outbox.pending() == 0


async def test_flush_waits_until_the_broker_confirmed(outbox, bus):
    for number in range(450):
        await outbox.stage("orders", BusMessage(payload=number))
    await outbox.flush()
    assert await outbox.pending() == 0
    await wait_until(lambda: len(bus.got) == 450)
    assert sorted(bus.payloads) == list(range(450))
    await outbox.flush()  # nothing to do


async def test_flush_says_what_was_not_confirmed_and_keeps_it(outbox, bus):
    bus.driver.is_away = True
    await outbox.stage("orders", BusMessage(id="a", payload=1))
    await outbox.stage("orders", BusMessage(id="b", payload=2))
    with pytest.raises(QueueError, match="2 messages of the outbox were not confirmed") as caught:
        await outbox.flush()
    assert caught.value.details["unconfirmed"] == ["a", "b"]
    (first, _) = await outbox.store.fetch_pending()
    assert (first["attempts"], "nobody there" in first["error"]) == (1, True)
    bus.driver.is_away = False
    await outbox.flush()
    await wait_until(lambda: bus.payloads == [1, 2])


async def test_flush_is_refused_inside_a_transaction(outbox, database):
    async with database.transaction():
        with pytest.raises(TransactionScopeError, match="flushing the outbox"):
            await outbox.flush()


async def test_clear_drops_what_this_object_staged(outbox, bus, database):
    other = TransactionalOutbox(bus.queue, database, name="events")
    await outbox.stage("orders", BusMessage(payload="mine"))
    await other.stage("orders", BusMessage(payload="theirs"))
    await outbox.clear()
    await other.flush()
    await wait_until(lambda: bus.got)
    assert bus.payloads == ["theirs"]


async def test_the_relay_goes_on_when_the_broker_is_back(outbox, bus):
    bus.driver.is_away = True
    metrics = outbox.relay.metrics = FakeMetrics()
    await outbox.start()
    await outbox.stage("orders", BusMessage(payload=1))
    await wait_until(lambda: metrics.counted("queue.outbox.failed") >= 2)
    bus.driver.is_away = False
    await wait_until(lambda: bus.payloads == [1])
    await wait_until(lambda: metrics.counted("queue.outbox.relayed") == 1)


async def test_a_refused_message_holds_up_its_key_only(outbox, bus):
    key = {ORDERING_KEY: "k"}
    await outbox.stage("orders", BusMessage(payload="before"))
    await outbox.stage("orders", BusMessage(id="big", payload="x" * 2000, headers=key))
    await outbox.stage("orders", BusMessage(payload="blocked", headers=key))
    await outbox.stage("orders", BusMessage(payload="after"))
    with pytest.raises(QueueError, match="too large"):
        await outbox.flush()
    await wait_until(lambda: len(bus.got) == 2)
    assert bus.payloads == ["before", "after"]
    bus.driver.refuses = 10_000
    await outbox.flush()
    await wait_until(lambda: len(bus.got) == 4)
    assert [len(payload) for payload in bus.payloads[2:]] == [2000, len("blocked")]


async def test_order_is_kept_per_key_with_several_relays(database):
    sent = []

    async def send(messages):
        await anyio.lowlevel.checkpoint()
        sent.extend(messages)

    store = SqlOutboxStore(database, "events")
    relays = [
        OutboxRelay(store, send, config=OutboxConfig(batch=7, poll_interval=60)) for _ in range(3)
    ]
    for relay in relays:
        await relay.start()
    for number in range(60):
        key = {ORDERING_KEY: f"k{number % 3}"}
        await store.append_batch([BusMessage(topic="t", payload=b"%d" % number, headers=key)])
    await wait_until(lambda: len(sent) >= 60)
    for relay in relays:
        await relay.stop()
    for key in range(3):
        mine = [int(m.payload) for m in sent if m.headers[ORDERING_KEY] == f"k{key}"]
        assert mine == sorted(mine)
    assert len(sent) == 60


async def test_what_a_dead_relay_had_is_published_by_another_with_the_same_id(database):
    sent = []

    async def send(messages):
        sent.extend(message.id for message in messages)

    store = SqlOutboxStore(database, "events")
    await store.append_batch([BusMessage(id="m", topic="t", payload=b"1")])
    # Claimed and published, and then the process is gone: the row stays.
    (taken,) = await store.claim("dead", limit=10, lease=0.05)
    await send([taken.message])
    await anyio.sleep(0.06)
    relay = OutboxRelay(store, send)
    await relay.flush()
    assert sent == ["m", "m"]
    # The dead one comes back: it has no right to the row any more.
    await store.delete("dead", [taken])
    assert await store.count() == 0


async def test_the_store_serves_a_relay_of_ones_own(database):
    store = SqlOutboxStore(database, "events")
    assert isinstance(store, OutboxStoreProtocol)
    message = BusMessage(id="a", topic="orders", payload=b"1", headers={"x": "y"}, ttl=5.0)
    await store.append_batch([message, BusMessage(id="b", topic="orders", payload=b"2")])
    await store.append_batch([])
    first, second = await store.fetch_pending()
    assert first["message"] == message
    await store.mark_failed(first["event_id"], "boom")
    await store.mark_failed("unknown", "boom")
    await store.mark_delivered(second["event_id"])
    await store.mark_delivered(second["event_id"])
    (left,) = await store.fetch_pending(limit=10)
    assert (left["event_id"], left["attempts"], left["error"]) == (first["event_id"], 1, "boom")


async def test_without_sql_flush_is_one_batch_and_keeps_what_was_not_confirmed(bus):
    outbox = TransactionalOutbox(bus.queue)
    assert isinstance(outbox, OutboxProtocol)
    bus.driver.is_away = True
    await outbox.stage("orders", BusMessage(id="a", payload=1))
    await outbox.stage("other", BusMessage(id="b", payload=2))
    with pytest.raises(QueueError) as caught:
        await outbox.flush()
    assert caught.value.details["unconfirmed"] == ["a", "b"]
    assert await outbox.pending() == 2
    bus.driver.is_away = False
    await outbox.flush()
    await wait_until(lambda: bus.payloads == [1])
    assert await outbox.pending() == 0
    await outbox.stage("orders", BusMessage(payload=3))
    await outbox.clear()
    await outbox.flush()
    assert bus.payloads == [1]
    with pytest.raises(ConfigurationError, match="has no database"):
        _ = outbox.store


class ForeignQueue:
    """A complete queue of somebody else: QueueProtocol and no more."""

    def __init__(self):
        self.sent = []
        self.is_full = False

    async def connect(self): ...
    async def close(self): ...
    async def subscribe(self, topic, handler, *, group="default"): ...

    async def publish(self, topic, message):
        if self.is_full:
            raise QueueError("full")
        self.sent.append((topic, message))
        return message

    async def health_check(self, timeout=5.0):
        return HealthCheckResult("foreign")


async def test_it_relays_to_a_queue_of_others(database):
    queue = ForeignQueue()
    assert isinstance(queue, QueueProtocol)
    outbox = TransactionalOutbox(queue, database)
    queue.is_full = True
    await outbox.stage("orders", BusMessage(id="a", payload={"n": 1}, headers={"x": "y"}))
    with pytest.raises(QueueError):
        await outbox.flush()
    queue.is_full = False
    await outbox.flush()
    ((topic, message),) = queue.sent
    assert (topic, message.id, message.payload) == ("orders", "a", {"n": 1})
    assert message.headers == {"x": "y"}


async def test_the_relay_publishes_to_the_sql_driver_too(database):
    queue = SqlQueue(database)
    await queue.connect()
    await queue.driver.declare("orders", "g")
    outbox = TransactionalOutbox(queue, database)
    await outbox.stage("orders", BusMessage(payload=1))
    await outbox.flush()
    assert await queue.driver.depth("orders", "g") == 1
    await queue.close()


class Billing(MessageConsumer):
    """Exactly once: its effect and its message commit together."""

    topic = "orders"
    delivery_guarantee = ONCE
    retry = RetryPolicy(base=0.01)
    failures = 0

    async def handle(self, message: BusMessage, db: Database, outbox: OutboxProtocol) -> None:
        await db.execute_insert("effects", {"number": message.payload})
        await outbox.stage("bills", BusMessage(payload=message.payload))
        if Billing.failures:
            Billing.failures -= 1
            raise ValueError("not this time")


class Mailing(MessageConsumer):
    topic = "bills"
    got: ClassVar[list[int]] = []

    async def handle(self, message: BusMessage) -> None:
        Mailing.got.append(message.payload)


def application(url):
    queue = QueueConfig(
        backends=[NamedQueueConfig(name="events", driver="memory")], outbox=OutboxConfig()
    )
    sql = [SqlModule.configure(SqlConfig(url=url))] if url else []

    @module(imports=[QueueModule.scope(Billing, Mailing)])
    class Shop(Module):
        pass

    return Application("shop", modules=[*sql, QueueModule.configure(queue), Shop])


@pytest.mark.quick
async def test_in_an_application_handler_effect_and_outbox_are_one_transaction(
    database, database_url
):
    Billing.failures, Mailing.got = 2, []
    app = application(database_url)
    async with app:
        assert isinstance(await app.container.resolve(OutboxStoreProtocol), SqlOutboxStore)
        queue = await app.container.resolve(QueueProtocol)
        await queue.publish("orders", BusMessage(id="once", payload=5))
        await wait_until(lambda: Mailing.got == [5])
        await queue.publish("orders", BusMessage(id="once", payload=5))
        await queue.publish("orders", BusMessage(payload=6))
        await wait_until(lambda: Mailing.got == [5, 6])
    found = await database.execute_query("SELECT number FROM effects ORDER BY number")
    assert [row["number"] for row in found.rows] == [5, 6]


class Careful(MessageConsumer):
    topic = "orders"
    delivery_guarantee = ONCE

    async def handle(self, message: BusMessage) -> None: ...


class Careless(MessageConsumer):
    topic = "orders"

    async def handle(self, message: BusMessage) -> None: ...


@pytest.mark.parametrize(
    ("consumer", "backend"), [(Careful, {}), (Careless, {"delivery_guarantee": ONCE})]
)
async def test_exactly_once_without_sql_is_refused_at_boot(consumer, backend):
    config = QueueConfig(backends=[NamedQueueConfig(name="events", **backend)])

    @module(imports=[QueueModule.scope(consumer)])
    class Shop(Module):
        pass

    app = Application("shop", modules=[QueueModule.configure(config), Shop])
    with pytest.raises(ProviderError, match="wants exactly_once, which needs SQL"):
        await app.start()
