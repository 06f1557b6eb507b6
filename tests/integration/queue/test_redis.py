"""The redis driver beside what a suite for all drivers cannot ask: its streams, lanes and errors."""

import json
import signal
from contextlib import AsyncExitStack

import anyio
import pytest
from redis.asyncio import Redis
from tests.e2e.queue.redis_server import RedisServer, need_redis_server
from tests.names import unique_name
from tests.queue_drivers import make as make_driver

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    CapabilityError,
    DeadLetterEntry,
    QueueError,
    QueueFullError,
)
from lexigram.queue import BusOptions, BusQueue, ConsumerOptions
from lexigram.queue.backends.redis import LANES, RedisDriver, RedisQueue, lane_of
from lexigram.queue.config import RedisDriverConfig
from lexigram.queue.errors import RedisQueueError
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.service("redis")]


@pytest.fixture
def url(services):
    return f"redis://{services['redis'].address}/0"


@pytest.fixture
async def raw(url):
    """The client library alone: what a foreign program has."""
    client = Redis.from_url(url)
    yield client
    await client.aclose()


@pytest.fixture
async def prefix(raw):
    name = unique_name()
    yield name
    async for key in raw.scan_iter(f"{name}:*", count=1000):
        await raw.delete(key)


@pytest.fixture
async def open_driver(url, prefix):
    async with AsyncExitStack() as stack:

        async def make(**settings):
            driver = make_driver(
                RedisDriver, RedisDriverConfig, **{"url": url, "prefix": prefix, **settings}
            )
            stack.push_async_callback(driver.close)
            await driver.connect()
            return driver

        yield make


@pytest.fixture
async def driver(open_driver):
    return await open_driver()


@pytest.fixture
async def open_queue(open_driver):
    async with AsyncExitStack() as stack:

        async def make(*, driver=None, options=None, **settings):
            queue = BusQueue(
                driver or await open_driver(**settings), options=BusOptions(**(options or {}))
            )
            stack.push_async_callback(queue.close)
            await queue.connect()
            return queue

        yield make


@pytest.fixture
async def server(tmp_path):
    """A Redis of this test alone."""
    need_redis_server()
    made = RedisServer(tmp_path / "data")
    await anyio.to_thread.run_sync(made.start)
    yield made
    made.kill()


@pytest.fixture
async def admin(server):
    """The operator of that Redis."""
    client = Redis.from_url(server.url)
    yield client
    await client.aclose()


def message(body=b"{}", **headers):
    return BusMessage(topic="t", payload=body, headers=headers)


async def take(driver, number=1, *, topic="t", group="g"):
    taken = []
    with anyio.fail_after(60):
        while len(taken) < number:
            limit = number - len(taken)
            taken += await driver.receive(topic, group, limit=limit, wait=0.5)
    return taken


def bodies(deliveries):
    return [one.message.payload for one in deliveries]


# Others on the same stream.


async def test_a_foreign_producer_needs_only_xadd(driver, raw, prefix):
    await driver.declare("t", "g")
    sent = await raw.xadd(f"{prefix}:topic:t", {"body": '{"n": 1}', "tenant": "t1"})
    (got,) = await take(driver)
    assert (got.message.payload, got.message.headers) == (b'{"n": 1}', {"tenant": "t1"})
    assert got.message.id == f"t/{sent.decode()}"
    await driver.nack(got, delay=0.01)
    (again,) = await take(driver)
    assert again.message.id == got.message.id  # also as a retry, which is another entry


async def test_a_foreign_entry_without_a_body_is_a_message_of_its_fields(driver, raw, prefix):
    await driver.declare("t", "g")
    await raw.xadd(f"{prefix}:topic:t", {"data": "only"})
    await raw.xadd(f"{prefix}:topic:t", {"a": "1", "b": b"\xff"})
    one, flat = await take(driver, 2)
    assert one.message.payload == b"only"
    assert json.loads(flat.message.payload) == {"a": "1", "b": "�"}


async def test_a_foreign_consumer_reads_a_bare_body_and_plain_headers(driver, raw, prefix):
    stream = f"{prefix}:topic:t"
    await raw.xgroup_create(stream, "theirs", mkstream=True)
    await driver.declare("t", "g")
    sent = BusMessage(id="i1", topic="t", payload=b'{"n": 1}', headers={"tenant": "t1"})
    await driver.publish_many([sent])
    ((_, ((entry, fields),)),) = await raw.xreadgroup("theirs", "me", {stream: ">"})
    assert fields[b"body"] == b'{"n": 1}'
    assert (fields[b"ce-id"], fields[b"ce-type"], fields[b"tenant"]) == (b"i1", b"t", b"t1")
    # What they have not acknowledged is kept for them although our group is done with it.
    await driver.ack_many(await take(driver))
    assert await raw.xlen(stream) == 1
    await raw.xack(stream, "theirs", entry)


async def test_what_a_foreign_group_acknowledged_last_is_removed_by_and_by(driver, raw, prefix):
    stream = f"{prefix}:topic:t"
    await raw.xgroup_create(stream, "theirs", mkstream=True)
    await driver.declare("t", "g")
    await driver.publish_many([message(), message()])
    await driver.ack_many(await take(driver, 2))
    ((_, entries),) = await raw.xreadgroup("theirs", "me", {stream: ">"})
    await raw.xack(stream, "theirs", *(entry for entry, _ in entries))
    driver._members["t", "g"].look_at = driver._members["t", "g"].tidy_at = 0.0  # a minute later
    await driver.receive("t", "g", limit=1, wait=0)
    assert await raw.xlen(stream) == 0


async def test_a_header_called_body_stays_a_header(driver):
    await driver.declare("t", "g")
    sent = BusMessage(topic="t", payload=b"the body", headers={"body": "the header"})
    await driver.publish_many([sent])
    (got,) = await take(driver)
    assert (got.message.payload, got.message.headers) == (b"the body", {"body": "the header"})


async def test_a_read_from_two_streams_gives_no_more_than_the_limit_and_loses_nothing(open_driver):
    driver, peer = await open_driver(), await open_driver()
    await driver.declare("t", "g")
    await driver.publish_many([message(b"0")])
    (held,) = await take(peer)
    assert list(await driver.receive("t", "g", limit=1, wait=0)) == []  # has just looked
    await peer.nack(held)  # to the group's own stream
    await peer.publish_many([message(b"1"), message(b"2")])  # to the topic's
    got = []
    with anyio.fail_after(60):
        while len(got) < 3:
            found = await driver.receive("t", "g", limit=1, wait=0.5)
            assert len(found) <= 1
            got += bodies(found)
            await driver.ack_many(found)
    assert sorted(got) == [b"0", b"1", b"2"]
    assert await driver.depth("t", "g") == 0


async def test_an_empty_ordering_key_is_no_key(driver):
    await driver.declare("t", "g")
    odd = {"ordering-key": "", "fairness-key": "a"}
    await driver.publish_many([message(b"%d" % n, **odd) for n in range(3)])
    assert bodies(await take(driver, 3)) == [b"0", b"1", b"2"]


# Nothing piles up.


async def test_handled_messages_leave_redis(open_driver, raw, prefix):
    driver = await open_driver()
    for group in ("a", "b"):
        await driver.declare("t", group)
    await driver.publish_many([message() for _ in range(50)])
    await driver.ack_many(await take(driver, 50, group="a"))
    assert await raw.xlen(f"{prefix}:topic:t") == 50
    await driver.ack_many(await take(driver, 50, group="b"))
    assert await raw.xlen(f"{prefix}:topic:t") == 0
    await driver.drop("t", "a")
    await driver.drop("t", "b")
    assert [key async for key in raw.scan_iter(f"{prefix}:*")] in (
        [],
        [f"{prefix}:number".encode()],
    )


async def test_dropping_a_group_removes_what_only_it_had_not_handled(driver, raw, prefix):
    await driver.declare("t", "a")
    await driver.declare("t", "b")
    await driver.publish_many([message(), message()])
    await driver.ack_many(await take(driver, 2, group="a"))
    await driver.drop("t", "b")
    assert await raw.xlen(f"{prefix}:topic:t") == 0
    assert await driver.depth("t", "a") == 0


async def test_a_closed_member_is_forgotten_and_what_it_held_is_free_at_once(
    open_driver, raw, prefix
):
    first, second = await open_driver(), await open_driver()
    await first.declare("t", "g")
    await first.publish_many([message(b"1"), message(b"2")])
    await take(first, 2)
    await first.close()
    assert bodies(await take(second, 2)) == [b"1", b"2"]
    names = {one["name"] for one in await raw.xinfo_consumers(f"{prefix}:topic:t", "g")}
    assert first._me.encode() not in names


async def test_a_temporary_group_nobody_receives_from_is_dropped(open_driver, raw, prefix):
    gone, driver = await open_driver(), await open_driver()
    await gone.declare("reply", "g", temporary=True)
    await gone.close()
    await raw.zadd(f"{prefix}:temporary", {"reply\ng": 1})  # last seen in 1970
    await driver.declare("t", "g")
    await driver.receive("t", "g", limit=1, wait=0)
    assert list(await driver.groups()) == [("t", "g")]
    assert await raw.exists(f"{prefix}:topic:reply") == 0


# Lanes.


def keys_of_different_lanes(number):
    found = {}
    for candidate in range(1000):
        found.setdefault(lane_of(f"k{candidate}"), f"k{candidate}")
    return list(found.values())[:number]


async def test_a_flood_of_one_tenant_makes_another_wait_for_a_few_rounds_only(open_queue):
    """With concurrency 4, ten messages take 3 rounds alone; here they may take 9."""
    flooding, late = keys_of_different_lanes(2)
    queue = await open_queue(options={"drain_timeout": 0.0}, max_backlog=20_000)
    rounds, done, waiting = 0, {}, []

    async def handle(got):
        # Four handlers run at a time; a round ends when all of them may go on.
        gate = anyio.Event()
        waiting.append(gate)
        await gate.wait()
        done.setdefault(got.headers["fairness-key"], []).append(rounds)

    flood = [BusMessage(payload=0, headers={"fairness-key": flooding}) for _ in range(10_000)]
    await queue.publish_many("t", flood)
    await queue.subscribe("t", handle)
    await wait_until(lambda: len(waiting) == 4)
    for _ in range(10):
        await queue.publish("t", BusMessage(payload=1), fairness_key=late)
    while len(done.get(late, ())) < 10:
        rounds += 1
        for gate in waiting[:]:
            waiting.remove(gate)
            gate.set()
        await wait_until(lambda: len(waiting) == 4)
    assert max(done[late]) <= 9


async def test_keys_have_sixteen_lanes_and_those_of_one_lane_share_it(driver, raw, prefix):
    await driver.declare("t", "g")
    await driver.publish_many([message(**{"fairness-key": f"k{n}"}) for n in range(200)])
    subs = await raw.smembers(f"{prefix}:subs:topic:t")
    assert subs == {f"lane{n}".encode() for n in range(LANES)}
    assert await raw.xlen(f"{prefix}:topic:t") == 0


async def test_the_next_of_a_key_waits_while_the_one_before_it_is_retried(driver):
    await driver.declare("t", "g")
    key = {"ordering-key": "c1"}
    await driver.publish_many([message(b"%d" % n, **key) for n in range(3)])
    (first,) = await take(driver)
    await driver.nack(first, delay=1.0)
    assert list(await driver.receive("t", "g", limit=10, wait=0.2)) == []
    (again,) = await take(driver)
    assert again.message.payload == b"0"
    assert list(await driver.receive("t", "g", limit=10, wait=0.1)) == []
    await driver.ack_many([again])
    for body in (b"1", b"2"):
        (held,) = await take(driver)
        assert held.message.payload == body
        await driver.ack_many([held])


async def test_order_holds_when_the_member_with_the_first_message_dies(open_driver):
    dying, other = [await open_driver(visibility_timeout=0.5) for _ in range(2)]
    await dying.declare("t", "g")
    await dying.publish_many([message(b"%d" % n, **{"ordering-key": "c1"}) for n in range(2)])
    await take(dying)  # and never heard of again
    (again,) = await take(other)
    assert (again.message.payload, again.delivery_count) == (b"0", 2)
    await other.ack_many([again])
    assert bodies(await take(other)) == [b"1"]


async def test_a_dead_letter_lets_the_next_of_its_key_go_on(driver):
    await driver.declare("t", "g")
    await driver.publish_many([message(b"%d" % n, **{"ordering-key": "c1"}) for n in range(2)])
    (held,) = await take(driver)
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="no", group="g"))
    (second,) = await take(driver)
    assert second.message.payload == b"1"
    # A redriven one takes its turn like a new one.
    assert await driver.redrive("t", "g") == 1
    assert list(await driver.receive("t", "g", limit=10, wait=0.1)) == []
    await driver.ack_many([second])
    assert bodies(await take(driver)) == [b"0"]


async def test_a_lane_whose_message_somebody_else_removed_is_free_again(driver, raw, prefix):
    await driver.declare("t", "g")
    await driver.publish_many([message(b"%d" % n, **{"ordering-key": "c1"}) for n in range(2)])
    (held,) = await take(driver)
    stream, entry, _, _ = held.receipt
    await raw.xack(stream, "g", entry)  # an operator by hand
    assert bodies(await take(driver)) == [b"1"]


async def test_many_keys_and_members_keep_the_order_of_each_key(open_queue):
    queues = [await open_queue(options={"concurrency": 8, "prefetch": 20}) for _ in range(3)]
    seen = {}

    async def handle(got):
        await anyio.sleep(0.001)
        seen.setdefault(got.headers["ordering-key"], []).append(got.payload)

    for queue in queues:
        await queue.subscribe("t", handle)
    batch = [BusMessage(payload=n, headers={"ordering-key": f"k{n % 30}"}) for n in range(300)]
    await queues[0].publish_many("t", batch)
    await wait_until(lambda: sum(map(len, seen.values())) == 300, timeout=60)
    assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_a_priority_together_with_a_key_is_refused_and_nothing_is_sent(driver):
    await driver.declare("t", "g")
    both = BusMessage(topic="t", payload=b"{}", priority=5, headers={"fairness-key": "a"})
    with pytest.raises(CapabilityError, match="a priority or a fairness or ordering key, not both"):
        await driver.publish_many([message(), both])
    assert list(await driver.receive("t", "g", limit=10, wait=0.1)) == []


async def test_urgent_messages_come_before_a_backlog_to_a_consumer_that_waits(open_queue):
    queue = await open_queue(options={"concurrency": 1, "prefetch": 1})
    got, gate = [], anyio.Event()

    async def handle(found):
        got.append(found.payload)
        await gate.wait()

    await queue.subscribe("t", handle)
    await queue.publish("t", BusMessage(payload="first"))
    await wait_until(lambda: got == ["first"])
    await queue.publish_many("t", [BusMessage(payload="low") for _ in range(20)])
    await queue.publish("t", BusMessage(payload="high", priority=9))
    gate.set()
    await wait_until(lambda: len(got) == 22)
    assert got.index("high") <= 2  # one may have been on its way


# Retries, leases, groups, stops: the whole bus.


async def test_two_groups_get_all_and_three_replicas_share(open_queue):
    queues = [await open_queue() for _ in range(3)]
    billing, mailing = [], []

    async def bill(got):
        billing.append(got.payload)

    async def mail(got):
        mailing.append(got.payload)

    for queue in queues:
        await queue.subscribe("t", bill, group="billing")
    await queues[0].subscribe("t", mail, group="mailing")
    await queues[1].publish_many("t", [BusMessage(payload=n) for n in range(100)])
    await wait_until(lambda: len(billing) >= 100 and len(mailing) >= 100)
    assert sorted(billing) == sorted(mailing) == list(range(100))


async def test_a_stop_under_load_acknowledges_nothing_that_was_not_handled(open_queue):
    queue = await open_queue(options={"drain_timeout": 5.0})
    handled = []

    async def handle(got):
        await anyio.sleep(0.001)
        handled.append(got.payload)

    subscription = await queue.consume(ConsumerOptions(topics=("t",)), handle)
    await queue.publish_many("t", [BusMessage(payload=n) for n in range(500)])
    await wait_until(lambda: len(handled) > 20)
    await subscription.stop()
    before = len(handled)
    assert await queue.driver.depth("t", "default") == 500 - before
    await queue.subscribe("t", handle)
    await wait_until(lambda: len(handled) >= 500, timeout=60)
    assert sorted(handled) == list(range(500))


async def test_what_is_published_before_the_consumer_is_handled(open_queue):
    queue, got = await open_queue(), []

    async def handle(found):
        got.append(found.payload)

    await queue.publish("t", BusMessage(payload=1))
    await queue.subscribe("t", handle)
    await wait_until(lambda: got == [1])


async def test_a_flood_runs_no_more_handlers_than_concurrency(open_queue):
    queue, running, most, handled = await open_queue(), 0, 0, 0

    async def handle(found):
        nonlocal running, most, handled
        running += 1
        most = max(most, running)
        await anyio.sleep(0.0001)
        running -= 1
        handled += 1

    await queue.subscribe("t", handle)
    await queue.publish_many("t", [BusMessage(payload=n) for n in range(2000)])
    await wait_until(lambda: handled == 2000, timeout=60)
    assert most == 4


# What goes wrong.


async def test_connections_killed_by_the_server_are_replaced_and_nothing_is_lost(server, admin):
    async with RedisQueue(server.url) as queue:
        handled = set()

        async def handle(got):
            handled.add(got.payload)

        await queue.subscribe("t", handle)
        for number in range(60):
            if number % 20 == 10:
                await admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with anyio.fail_after(60):
                while True:
                    try:
                        await queue.publish("t", BusMessage(id=f"m{number}", payload=number))
                        break
                    except QueueError:
                        await anyio.sleep(0.05)
        await wait_until(lambda: handled == set(range(60)), timeout=60)


async def test_a_redis_that_forgot_everything_is_set_up_again(server, admin):
    async with RedisQueue(server.url) as queue:
        handled = []

        async def handle(got):
            handled.append(got.payload)

        await queue.subscribe("t", handle)
        await admin.flushall()
        await admin.script_flush()
        await wait_until(lambda: _has_group(admin), timeout=60)
        await queue.publish("t", BusMessage(payload=1))
        await wait_until(lambda: handled == [1], timeout=60)


async def _has_group(admin):
    return await admin.hexists("lexigram:groups", "t\ndefault")


async def test_a_redis_that_hangs_is_an_error_and_never_a_hang(server):
    driver = RedisDriver(server.url, config=RedisDriverConfig(socket_timeout=0.5))
    await driver.connect()
    await driver.declare("t", "g")
    server.process.send_signal(signal.SIGSTOP)
    try:
        with anyio.fail_after(60):
            for call in (
                driver.publish_many([message(b"1")]),
                driver.receive("t", "g", limit=1, wait=0.1),
                driver.connect(),
            ):
                with pytest.raises(RedisQueueError, match="no answer in time"):
                    await call
            assert (await driver.health_check(0.2)).status is HealthStatus.UNHEALTHY
    finally:
        server.process.send_signal(signal.SIGCONT)
    await driver.connect()
    await driver.publish_many([message(b"2")])
    got = set()
    with anyio.fail_after(60):
        while b"2" not in got:
            got.update(bodies(await driver.receive("t", "g", limit=10, wait=0.5)))
    assert got <= {b"1", b"2"}  # what was not confirmed may have arrived all the same
    await driver.close()


async def test_scripts_that_redis_forgot_are_brought_again(server, admin):
    driver = RedisDriver(server.url)
    await driver.connect()
    await driver.declare("t", "g")
    await admin.script_flush()
    await driver.publish_many([message(b"1")])
    assert bodies(await take(driver)) == [b"1"]
    await driver.close()


async def refused(url):
    driver = RedisDriver(url, config=RedisDriverConfig(socket_timeout=1.0))
    with pytest.raises(RedisQueueError) as caught:
        await driver.connect()
    health = await driver.health_check()
    assert health.status is HealthStatus.UNHEALTHY
    shown = f"{caught.value} {caught.value.__cause__} {driver!r} {health}"
    assert "hunter2" not in shown
    await driver.close()
    return caught.value


@pytest.mark.parametrize(
    "wrong", ["amqp://:hunter2@host", "redis://:hunter2@host:port/0", "hunter2"]
)
async def test_a_wrong_url_says_how_one_looks(wrong):
    error = await refused(wrong)
    assert "redis://user:password@host:6379/0" in error.hint


async def test_an_unreachable_host_says_what_to_check():
    error = await refused("redis://:hunter2@127.0.0.1:1/0")
    assert "127.0.0.1:1/0 does not answer" in error.message
    assert "host and port" in error.hint


async def test_a_wrong_password_and_a_missing_one_are_told(server, admin):
    await admin.config_set("requirepass", "right")
    address = server.url.removeprefix("redis://")
    for url in (f"redis://:hunter2@{address}", server.url):
        assert "refused the user or password" in (await refused(url)).message


async def test_a_missing_permission_is_told_with_the_command_that_gives_it(server, admin):
    await admin.execute_command("ACL", "SETUSER", "shop", "on", ">hunter2", "~other:*", "+@all")
    url = f"redis://shop:hunter2@{server.url.removeprefix('redis://')}"
    error = await refused(url)
    assert "does not permit it" in error.message
    rights = error.hint.partition("ACL SETUSER <user> ")[2].split()
    await admin.execute_command("ACL", "SETUSER", "shop", "reset", "on", ">hunter2", *rights)
    driver = RedisDriver(url)  # and the hint is right
    await driver.connect()
    await driver.declare("t", "g")
    await driver.publish_many([message(b"1")])
    (held,) = await take(driver)
    await driver.nack(held, delay=0.01)
    (held,) = await take(driver)
    await driver.dead_letter(held, DeadLetterEntry(message=held.message, error="no", group="g"))
    assert await driver.redrive("t", "g") == 1
    await driver.ack_many(await take(driver))
    await driver.drop("t", "g")
    await driver.close()


async def test_a_redis_without_memory_is_a_full_queue(server, admin):
    driver = RedisDriver(server.url)
    await driver.connect()
    await driver.declare("t", "g")
    await admin.config_set("maxmemory", "1mb")
    with pytest.raises(QueueFullError, match="no memory left"):
        await driver.publish_many([message(b"x" * 2_000_000)])
    await admin.config_set("maxmemory", "0")
    await driver.publish_many([message(b"1")])
    assert bodies(await take(driver)) == [b"1"]
    await driver.close()


async def test_more_consumers_than_connections_do_not_starve_the_commands(open_queue):
    queue = await open_queue(max_connections=1)
    got = set()

    async def handle(found):
        got.add(found.topic)

    for number in range(8):
        await queue.subscribe(f"t{number}", handle)
    for number in range(8):
        await queue.publish(f"t{number}", BusMessage(payload=1))
    await wait_until(lambda: len(got) == 8)


async def test_a_consumer_that_waits_hears_of_what_another_process_gives_back_or_delays(
    open_driver,
):
    waiting, other = await open_driver(), await open_driver()
    await waiting.declare("t", "g")
    await other.publish_many([message(b"1")])
    (held,) = await take(other)
    got = []

    async def wait():
        while not got:
            got.extend(bodies(await waiting.receive("t", "g", limit=10, wait=5)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.05)
        await other.release_many([held])
    assert got == [b"1"]


async def test_depth_and_lag_are_right_after_a_restart_from_the_append_only_file(server):
    """Redis keeps there where a group is, and not how many it has read."""
    async with AsyncExitStack() as stack:
        driver = RedisDriver(server.url)
        stack.push_async_callback(driver.close)
        await driver.connect()
        groups = {"done": 500, "behind": 120, "ahead": 380, "new": 0}
        for group in groups:
            await driver.declare("t", group)
        await driver.publish_many([message(b"%d" % number) for number in range(500)])
        for group, number in groups.items():
            taken = await take(driver, number, group=group)
            await driver.ack_many(taken[:-1] if group == "behind" else taken)
        expected = {"done": (0, 0), "behind": (381, 380), "ahead": (120, 120), "new": (500, 500)}

        async def figures():
            return {
                group: (await driver.depth("t", group), await driver.lag("t", group))
                for group in groups
            }

        assert await figures() == expected
        server.kill()
        await anyio.to_thread.run_sync(server.start)
        assert await figures() == expected
        await driver.publish_many([message()])
        await take(driver, 11, group="ahead")  # Redis counts on from what was counted
        assert (await driver.depth("t", "ahead"), await driver.lag("t", "ahead")) == (121, 110)
        await take(driver, 500, group="new")
        assert (await driver.depth("t", "new"), await driver.lag("t", "new")) == (501, 1)
