"""What operators do, on memory, SQLite and a running Redis: the same calls, the same outcome."""

import shutil
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from tests.names import unique_name

from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterReason,
    QueueError,
)
from lexigram.queue import BusOptions, InMemoryQueue, RetryPolicy, SqlQueue
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetterFilter, DeadLetters
from lexigram.queue.operations.dlq import RETRIED_TOPIC, BusDeadLetters
from lexigram.queue.operations.sampling import Sampled, Sampler
from lexigram.queue.options import DeadLetterPolicy
from lexigram.testing import wait_until
from lexigram.testing.conformance.tasks import DLQConformance

pytestmark = pytest.mark.anyio

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))
DRIVERS = ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.service("redis"))]


@pytest.fixture
async def queue(unopened, request):
    """A connected queue on a fresh place."""
    await unopened.connect()
    yield unopened
    await unopened.close()
    if unopened.driver.name == "redis":
        await _clean(request, unopened.driver.prefix)


@pytest.fixture(params=DRIVERS)
def unopened(request, tmp_path):
    if request.param == "memory":
        return InMemoryQueue(options=QUICK)
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "bus.db")
        return SqlQueue(f"sqlite:///{tmp_path}/bus.db", options=QUICK)
    from lexigram.queue.backends.redis import RedisQueue

    address = request.getfixturevalue("services")["redis"].address
    prefix = unique_name()
    return RedisQueue(f"redis://{address}/0", prefix=prefix, options=QUICK)


async def _clean(request, prefix):
    from redis.asyncio import Redis

    client = Redis.from_url(f"redis://{request.getfixturevalue('services')['redis'].address}/0")
    async for key in client.scan_iter(f"{prefix}:*", count=1000):
        await client.delete(key)
    await client.aclose()


@pytest.fixture
def control(queue):
    return BusControl({"events": queue}, health=queue.health_check)


@pytest.fixture
def letters(queue):
    return DeadLetters(queue)


class Handler:
    """Fails until it is repaired; remembers what it handled."""

    def __init__(self):
        self.is_broken = True
        self.handled = []

    async def __call__(self, message):
        if self.is_broken:
            raise ValueError(f"no stock of {message.payload['n']}")
        self.handled.append(message.payload["n"])


async def killed(queue, numbers, *, topic="orders", group="shipping", handler=None):
    """Messages that were set aside by the group."""
    handler = handler or Handler()
    await queue.subscribe(topic, handler, group=group)
    messages = [BusMessage(id=f"m{n}", payload={"n": n}, max_retries=0) for n in numbers]
    await queue.publish_many(topic, messages)
    letters = DeadLetters(queue)

    async def all_dead():
        return await letters.count((topic, group)) >= len(messages)

    await wait_until(all_dead)
    return handler


async def test_entries_are_listed_with_decoded_payload_error_and_attempts(queue, letters):
    await killed(queue, [1, 2, 3])
    found = await letters.list(limit=2)
    assert len(found) == 2
    everything = [entry async for entry in letters.find()]
    assert {entry.message.id for entry in everything} == {"m1", "m2", "m3"}
    (entry,) = await letters.get("m2")
    assert entry.message.payload == {"n": 2}
    assert (entry.error, entry.attempts) == ("ValueError: no stock of 2", 1)
    assert entry.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert "ValueError" in entry.traceback
    assert len(await letters.list(offset=2)) == 1
    assert await letters.get("unknown") == []


async def test_one_goes_back_and_is_handled_after_the_fix(queue, letters):
    handler = await killed(queue, [1, 2])
    handler.is_broken = False
    assert await letters.redrive(DeadLetterFilter(ids={"m1", "unknown"})) == 1
    await wait_until(lambda: handler.handled == [1])
    assert [entry.message.id async for entry in letters.find()] == ["m2"]


async def test_a_filter_chooses_by_error_reason_group_and_time(queue, letters):
    handler = await killed(queue, [1, 2, 3])
    handler.is_broken = False
    now = datetime.now(UTC)
    for nobody in (
        DeadLetterFilter(reason=DeadLetterReason.POISON),
        DeadLetterFilter(group="another"),
        DeadLetterFilter(topic="another"),
        DeadLetterFilter(failed_after=now + timedelta(hours=1)),
        DeadLetterFilter(failed_before=now - timedelta(hours=1)),
    ):
        assert await letters.redrive(nobody) == 0
    assert await letters.redrive(DeadLetterFilter(error="stock of 2")) == 1
    await wait_until(lambda: handler.handled == [2])


async def test_all_go_back_and_what_fails_again_is_not_taken_twice(queue, letters):
    """Without the guard a redrive of what always fails would never end."""
    handler = await killed(queue, range(5))
    told = []
    with anyio.fail_after(60):
        assert await letters.redrive(rate=200.0, progress=told.append) == 5
    assert told[-1] == 5

    async def dead_again():
        return await letters.count(("orders", "shipping")) == 5

    await wait_until(dead_again)
    handler.is_broken = False
    assert await letters.redrive() == 5
    await wait_until(lambda: sorted(handler.handled) == [0, 1, 2, 3, 4])
    assert await letters.redrive() == 0


async def test_a_rate_is_kept_and_a_limit_ends_it(queue, letters):
    handler = await killed(queue, range(6))
    handler.is_broken = False
    started = anyio.current_time()
    assert await letters.redrive(rate=10.0, limit=4) == 4
    assert anyio.current_time() - started >= 0.39  # the fourth is not due before
    assert await letters.count(("orders", "shipping")) == 2
    with pytest.raises(ValueError, match="above 0"):
        await letters.redrive(rate=0)


async def test_more_than_a_page_is_worked_on(queue, letters):
    handler = await killed(queue, range(250))
    handler.is_broken = False
    assert await letters.redrive(DeadLetterFilter(error="stock of 1")) == 111
    assert await letters.purge(DeadLetterFilter(error="stock of 2")) == 61
    assert await letters.count(("orders", "shipping")) == 78
    await wait_until(lambda: len(handler.handled) == 111)


async def test_a_redrive_goes_to_the_group_that_failed_only(queue, letters):
    good = Handler()
    good.is_broken = False
    await queue.subscribe("orders", good, group="billing")
    bad = await killed(queue, [7])
    await wait_until(lambda: good.handled == [7])
    bad.is_broken = False
    assert await letters.redrive() == 1
    await wait_until(lambda: bad.handled == [7])
    assert good.handled == [7]


async def test_purged_entries_are_gone(queue, letters):
    await killed(queue, [1, 2, 3])
    assert await letters.purge(DeadLetterFilter(ids={"m1"})) == 1
    assert await letters.purge() == 2
    assert await letters.list() == []


async def test_a_policy_keeps_the_latest(queue, letters):
    await killed(queue, [1, 2, 3])
    oldest = (await letters.list(limit=1))[0].message.id
    assert await letters.trim(DeadLetterPolicy()) == 0
    assert await letters.trim(DeadLetterPolicy(max_age=3600)) == 0
    assert await letters.trim(DeadLetterPolicy(max_entries=2)) == 1
    assert await letters.trim(DeadLetterPolicy(max_entries=2)) == 0
    assert {entry.message.id for entry in await letters.list()} == {"m1", "m2", "m3"} - {oldest}
    assert await letters.trim(DeadLetterPolicy(max_age=1e-6)) == 2


async def test_figures_are_the_brokers(queue, control):
    await killed(queue, [1, 2])
    await queue.driver.declare("orders", "archive")
    await queue.publish("orders", BusMessage(payload={"n": 3}, max_retries=0))
    archive, _ = await control.groups()
    assert (archive.backend, archive.topic, archive.group) == (queue.name, "orders", "archive")
    assert (archive.depth, archive.lag, archive.dead_letters) == (1, 1, 0)
    await wait_until(lambda: _is(control, "shipping", (0, 0, 3)))
    stats = await control.get_stats()
    assert (stats["pending"], stats["lag"], stats["dead_letter_count"]) == (1, 1, 3)
    assert await control.groups(topic="another") == []


async def _is(control, group, expected):
    (one,) = [one for one in await control.groups() if one.group == group]
    return (one.depth, one.lag, one.dead_letters) == expected


async def test_pause_holds_a_group_of_all_processes_and_resume_lets_it_go(queue, control):
    handler = Handler()
    handler.is_broken = False
    await queue.subscribe("orders", handler, group="a")
    await queue.subscribe("orders", handler, group="b")
    assert await control.pause("orders") == ["a", "b"]
    await anyio.sleep(1.1)  # a driver promises a second
    await queue.publish("orders", BusMessage(payload={"n": 1}))
    assert await control.resume("orders", "a") == ["a"]
    await wait_until(lambda: handler.handled == [1])
    assert [one.is_paused for one in await control.groups()] == [False, True]
    await control.resume("orders", "b")
    await wait_until(lambda: handler.handled == [1, 1])


async def test_peek_takes_nothing(queue, control):
    await queue.driver.declare("orders", "shipping")
    await queue.publish("orders", BusMessage(payload={"n": 1}))
    for _ in range(3):
        (message,) = await control.peek("orders", "shipping")
        assert message.payload == {"n": 1}
    handler = Handler()
    handler.is_broken = False
    await queue.subscribe("orders", handler, group="shipping")
    await wait_until(lambda: handler.handled == [1])


async def test_purge_drops_what_waits(queue, control):
    await queue.driver.declare("orders", "shipping")
    await queue.publish_many("orders", [BusMessage(payload={"n": n}) for n in range(3)])
    assert await control.purge("orders", "shipping") == 3
    assert (await control.groups())[0].depth == 0


async def test_a_tail_sees_what_comes_takes_nothing_and_leaves_no_group(queue, control):
    handler = Handler()
    handler.is_broken = False
    await queue.subscribe("orders", handler, group="shipping")
    seen = []
    async with control.tail("orders") as messages:
        await queue.publish_many("orders", [BusMessage(payload={"n": n}) for n in range(3)])
        async for message in messages:
            seen.append(message.payload["n"])
            if len(seen) == 3:
                break
    assert seen == [0, 1, 2]
    await wait_until(lambda: sorted(handler.handled) == [0, 1, 2])
    assert await queue.driver.groups() == [("orders", "shipping")]


async def test_a_tail_that_is_cancelled_leaves_no_group(queue, control):
    await queue.driver.declare("orders", "shipping")
    with anyio.move_on_after(0.2):
        async with control.tail("orders") as messages:
            async for _ in messages:
                pass
    assert await queue.driver.groups() == [("orders", "shipping")]


async def test_a_tail_does_not_take_what_waits_for_the_first_consumer(queue, control):
    await queue.publish("orders", BusMessage(payload={"n": 1}))
    for refused in ("orders", "ord*"):
        with pytest.raises(QueueError):
            async with control.tail(refused):
                pass
    handler = Handler()
    handler.is_broken = False
    await queue.subscribe("orders", handler, group="shipping")
    await wait_until(lambda: handler.handled == [1])


async def test_a_group_must_be_named_where_there_are_several_and_must_exist(queue, control):
    with pytest.raises(QueueError, match="has no group"):
        await control.pause("orders")
    await queue.driver.declare("orders", "a")
    assert await control.group_of("orders", None) == "a"
    await queue.driver.declare("orders", "b")
    with pytest.raises(QueueError, match="2 groups"):
        await control.group_of("orders", None)
    with pytest.raises(QueueError, match="no group c"):
        await control.purge("orders", "c")


async def test_what_a_driver_cannot_do_is_refused_with_its_name(queue, control):
    await queue.driver.declare("orders", "shipping")
    queue.driver.capabilities = queue.driver.capabilities - {Capability.PAUSE, Capability.PEEK}
    with pytest.raises(CapabilityError, match=f"driver {queue.driver.name} of backend"):
        await control.pause("orders")
    with pytest.raises(CapabilityError, match="cannot peek"):
        await control.peek("orders", "shipping")


class Gauges:
    def __init__(self):
        self.values, self.counts = {}, {}

    def gauge(self, name, value, tags=None):
        self.values[name, tags["topic"], tags["group"]] = value

    def increment(self, name, value=1.0, tags=None):
        self.counts[name] = self.counts.get(name, 0) + value

    def histogram(self, name, value, tags=None):
        raise AssertionError(name)


async def test_metrics_get_depth_lag_and_dead_letters_and_the_policy_is_kept(queue):
    await killed(queue, [1, 2, 3])
    metrics = Gauges()
    watched = Sampled(queue=queue, policy=DeadLetterPolicy(max_entries=2))
    sampler = Sampler([watched], metrics=metrics, interval=0.05)
    await sampler.start()
    place = ("orders", "shipping")
    await wait_until(lambda: metrics.values.get(("queue.dead_letters", *place)) == 2)
    await sampler.stop()
    assert metrics.values["queue.depth", *place] == 0
    assert metrics.values["queue.lag", *place] == 0
    assert metrics.counts == {"queue.dead_letters_evicted": 1}


async def test_dead_letters_of_the_bus_are_letters_of_the_common_contract(queue, control):
    handler = await killed(queue, [1])
    common = BusDeadLetters(control)
    (letter,) = await common.list_failed()
    assert (letter.message_id, letter.payload) == ("m1", {"n": 1})
    assert (letter.reason, letter.attempts) == ("retries_exhausted", 1)
    assert letter.metadata["group"] == "shipping"
    handler.is_broken = False
    assert await common.retry("m1") is True
    await wait_until(lambda: handler.handled == [1])
    assert await common.size() == 0


async def test_an_added_letter_goes_to_the_topic_it_names(queue, control):
    handler = Handler()
    handler.is_broken = False
    common = BusDeadLetters(control)
    await queue.subscribe("orders", handler, group="shipping")
    await common.add("x", {"n": 9}, "by hand", {"topic": "orders"})
    await common.add("y", {"n": 10}, "by hand")
    assert await common.retry("x") is True
    await wait_until(lambda: handler.handled == [9])
    await queue.subscribe(RETRIED_TOPIC, handler, group="manual")
    assert await common.retry("y") is True
    await wait_until(lambda: handler.handled == [9, 10])


class TestBusDeadLetters(DLQConformance):
    """The suite that dead letters of jobs pass, too."""

    @pytest.fixture
    def subject(self, control):
        return BusDeadLetters(control)
