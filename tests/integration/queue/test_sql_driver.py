"""What the sql driver promises beyond the suite: storage, races, and clear refusals."""

from collections import Counter
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.queue import (
    BusMessage,
    CapabilityError,
    DeadLetterEntry,
    InvalidMessageError,
)
from lexigram.contracts.queue.headers import FAIRNESS_KEY, ORDERING_KEY
from lexigram.queue.backends.sql import SqlDriver, SqlQueue
from lexigram.queue.backends.sql.store import UNUSED_SECONDS
from lexigram.queue.errors import SqlQueueError
from lexigram.queue.outbox.outbox import TransactionalOutbox
from lexigram.sql import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def members(database):
    made = [SqlDriver(database, visibility_timeout=30.0) for _ in range(4)]
    for one in made:
        await one.connect()
    yield made
    for one in made:
        await one.close()


@pytest.fixture
def driver(members):
    return members[0]


def batch(number, **fields):
    return [BusMessage(id=f"m{n}", topic="t", payload=b"%d" % n, **fields) for n in range(number)]


async def rows(database, table):
    found = await database.execute_query(f"SELECT count(*) AS n FROM lexigram_bus_{table}")
    return found.rows[0]["n"]


async def test_two_claimers_never_get_one_row(members):
    await members[0].declare("t", "g")
    await members[0].publish_many(batch(400))
    taken = Counter()

    async def take(member):
        while got := await member.receive("t", "g", limit=7, wait=0):
            taken.update(one.message.id for one in got)
            await anyio.lowlevel.checkpoint()
            await member.ack_many(got)

    async with anyio.create_task_group() as tasks:
        for member in members:
            tasks.start_soon(take, member)
    assert len(taken) == 400
    assert set(taken.values()) == {1}


async def test_a_body_is_stored_once_and_goes_with_the_last_group(members, database):
    groups = ["a", "b", "c", "d"]
    for group in groups:
        await members[0].declare("t", group)
    await members[0].publish_many(batch(50))
    assert await rows(database, "messages") == 50
    assert await rows(database, "deliveries") == 200

    async def finish(member, group):
        while got := await member.receive("t", group, limit=5, wait=0):
            await member.ack_many(got)

    async with anyio.create_task_group() as tasks:  # all groups at once count down
        for member, group in zip(members, groups, strict=True):
            tasks.start_soon(finish, member, group)
    assert await rows(database, "deliveries") == 0
    assert await rows(database, "messages") == 0


async def test_dropping_purging_and_dead_letters_leave_no_body_behind(driver, database):
    for group in ("a", "b"):
        await driver.declare("t", group)
    await driver.publish_many(batch(10))
    (held,) = await driver.receive("t", "a", limit=1, wait=0)
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="x", group="a"))
    assert await driver.purge("t", "a") == 9
    assert await rows(database, "messages") == 10
    await driver.drop("t", "b")
    assert await rows(database, "messages") == 1
    assert await driver.purge_dead("t", "a") == 1
    assert await rows(database, "messages") == 0


async def test_keys_keep_their_order_with_many_members(members):
    await members[0].declare("t", "g")
    sent = [
        BusMessage(topic="t", payload=b"%d" % n, headers={ORDERING_KEY: f"k{n % 5}"})
        for n in range(150)
    ]
    await members[0].publish_many(sent)
    order, running = {}, Counter()

    async def take(member):
        empty = 0
        while empty < 20:
            got = await member.receive("t", "g", limit=3, wait=0.02)
            empty = 0 if got else empty + 1
            for one in got:
                key = one.message.headers[ORDERING_KEY]
                running[key] += 1
                assert running[key] == 1
            await anyio.lowlevel.checkpoint()
            for one in got:
                key = one.message.headers[ORDERING_KEY]
                order.setdefault(key, []).append(int(one.message.payload))
                running[key] -= 1
            await member.ack_many(got)

    async with anyio.create_task_group() as tasks:
        for member in members:
            tasks.start_soon(take, member)
    assert {key: sorted(numbers) for key, numbers in order.items()} == order
    assert sum(map(len, order.values())) == 150


async def test_the_next_of_a_key_comes_when_the_one_before_it_is_done_not_at_the_next_look(
    database,
):
    """Nobody looks by himself here: without a word from who settles, this would wait for ever."""
    members = [SqlDriver(database, visibility_timeout=3600, poll_interval=3600) for _ in range(2)]
    for one in members:
        await one.connect()
    waiting, working = members
    await working.declare("t", "g")
    key = {ORDERING_KEY: "k"}
    await working.publish_many([BusMessage(topic="t", payload=b"", headers=key) for _ in range(3)])
    (first,) = await working.receive("t", "g", limit=10, wait=0)
    got = []

    async def wait_for_two():
        for _ in range(2):
            got.extend(await waiting.receive("t", "g", limit=10, wait=200))
            await waiting.dead_letter(got[-1], DeadLetterEntry(message=got[-1].message, error="x"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_two)
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0.2)  # until it listens
            await working.ack_many([first])
    assert len(got) == 2
    for one in members:
        await one.close()


async def test_a_long_queue_of_one_key_does_not_hide_others(driver):
    await driver.declare("t", "g")
    key = {ORDERING_KEY: "hot"}
    await driver.publish_many([BusMessage(topic="t", payload=b"", headers=key)] * 3000)
    (first,) = await driver.receive("t", "g", limit=10, wait=0)
    await driver.publish_many([BusMessage(topic="t", payload=b"", headers={ORDERING_KEY: "cold"})])
    await driver.publish_many([BusMessage(topic="t", payload=b"plain")])
    got = await driver.receive("t", "g", limit=10, wait=0)
    assert [one.message.headers.get(ORDERING_KEY) for one in got] == ["cold", None]
    await driver.ack_many([first])


async def test_tenants_take_turns(driver):
    await driver.declare("t", "g")
    for tenant, number in (("a", 6), ("b", 3), ("c", 1)):
        headers = {FAIRNESS_KEY: tenant}
        await driver.publish_many([BusMessage(topic="t", payload=b"", headers=headers)] * number)
    got = await driver.receive("t", "g", limit=10, wait=0)
    assert "".join(one.message.headers[FAIRNESS_KEY] for one in got) == "abcabab" + "aaa"


async def test_cancelled_receiving_leaves_no_lease_without_a_holder(driver, database):
    await driver.declare("t", "g")
    got = []
    for number in range(30):
        await driver.publish_many(batch(3))
        with anyio.move_on_after(0.0005 * (number % 10)):
            got += await driver.receive("t", "g", limit=3, wait=1)
    leased = await database.execute_query(
        "SELECT count(*) AS n FROM lexigram_bus_deliveries WHERE state = 'leased'"
    )
    assert leased.rows[0]["n"] == len(got)


async def test_a_temporary_group_that_nobody_uses_is_dropped(driver, database):
    await driver.declare("reply.1", "reply", temporary=True)
    await driver.declare("t", "g")
    await database.execute(
        "UPDATE lexigram_bus_groups SET used_at = used_at - ?", (UNUSED_SECONDS + 1,)
    )
    await driver.receive("t", "g", limit=1, wait=0)  # its first look sweeps
    assert list(await driver.groups()) == [("t", "g")]


async def test_what_a_transaction_published_before_the_first_group_is_adopted(database):
    """PostgreSQL: the group is committed while the publisher's transaction is still open."""
    if database.dialect == "sqlite":
        return  # it has one writer: one of the two comes first
    publisher, consumer = SqlDriver(database), SqlDriver(database.config.url)
    await publisher.connect()
    await consumer.connect()
    async with database.transaction():
        await publisher.publish_many(batch(3))
        await consumer.declare("t", "g")
    with anyio.fail_after(60):
        got = []
        while len(got) < 3:
            got += await consumer.receive("t", "g", limit=10, wait=1)
    await consumer.close()
    await publisher.close()


async def test_a_database_without_the_tables_is_refused_with_the_command(tmp_path):
    async with Database(f"sqlite:///{tmp_path}/empty.db") as empty:
        with pytest.raises(SqlQueueError, match="tables of the bus") as caught:
            await SqlDriver(empty).connect()
    assert "lexigram db upgrade" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "message",
    [
        BusMessage(id="a\0b", topic="t"),
        BusMessage(topic="t\0"),
        BusMessage(topic="t", headers={ORDERING_KEY: "k\0"}),
        BusMessage(topic="t", headers={"name": "\ud800"}),
        BusMessage(id="\ud800", topic="t"),
    ],
    ids=["id", "topic", "key", "header", "surrogate"],
)
async def test_text_that_no_database_stores_is_refused_and_spoils_no_other_message(
    message, database
):
    queue = SqlQueue(database)
    await queue.connect()
    await queue.driver.declare("t", "g")
    with pytest.raises(CapabilityError, match="no text a database stores"):
        await queue.driver.publish_many([replace(message, payload=b"")])
    async with anyio.create_task_group() as tasks:  # sent together with good ones

        async def bad():
            with pytest.raises(InvalidMessageError):
                await queue.publish(message.topic, message)

        tasks.start_soon(queue.publish, "t", BusMessage(payload=1))
        tasks.start_soon(bad)
        tasks.start_soon(queue.publish, "t", BusMessage(payload=2))
    assert await queue.driver.depth("t", "g") == 2
    with pytest.raises(InvalidMessageError):
        await TransactionalOutbox(queue, database).stage(message.topic, message)
    await queue.close()


@pytest.mark.parametrize(
    ("pattern", "matches", "other"),
    [
        ("a_b*", "a_b1", "axb1"),
        ("a%*", "a%1", "ab1"),
        ("a[12]*", "a[12]x", "a1x"),
        ("a?c*", "a?c", "abc"),
        ("a\\*", "a\\b", "ab"),
        ("Order*", "Order1", "order1"),
        ("*.x.*", "a.x.b", "a.y.b"),
    ],
)
async def test_only_the_star_of_a_pattern_stands_for_other_text(driver, pattern, matches, other):
    await driver.declare(pattern, "g")
    await driver.publish_many(
        [BusMessage(topic=matches, payload=b"yes"), BusMessage(topic=other, payload=b"no")]
    )
    got = await driver.receive(pattern, "g", limit=10, wait=0)
    assert [one.message.payload for one in got] == [b"yes"]
