"""Whatever a handler raises is a failure of that one call: the consumer goes on."""

import asyncio
import logging

import anyio.lowlevel
import attrs
import pytest
from tests.failures import (
    TIME_LIMIT,
    WAYS_TO_FAIL,
    WAYS_TO_FAIL_IN_A_TASK,
    WAYS_TO_RAISE,
    WAYS_TO_RAISE_NOW,
    block_the_loop,
)

from lexigram.contracts.admin import StatContent, WidgetDefinition, WidgetParams
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.core.result import Ok
from lexigram.contracts.queue import BusMessage, DeadLetterReason, DeliveryGuarantee
from lexigram.queue import ConsumerOptions, RetryPolicy
from lexigram.queue.admin.renderer import PackageWidgetRenderer
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.core.pipeline import MiddlewareBase
from lexigram.queue.errors import ReplyTimeoutError
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

SOON = RetryPolicy(base=0.01, cap=0.01)


def dead_of(queue, group="default"):
    return list(queue.driver.broker.groups["t", group].dead.values())


def tracebacks(caplog):
    return [record for record in caplog.records if record.exc_info and record.exc_info[1]]


def options(**settings):
    settings = {"handler_timeout": TIME_LIMIT, "retry": SOON, **settings}
    return ConsumerOptions(topics=("t",), group="default", consumer_id="c", **settings)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_failing_handler_is_retried_then_dead_lettered_and_others_are_handled(
    open_queue, caplog, fail, concurrency
):
    queue, attempts, handled = await open_queue(), [], []

    async def handle(message):
        if message.id == "bad":
            attempts.append(message.retry_count)
            await fail()
        handled.append(message.id)

    consumer = await queue.consume(options(concurrency=concurrency), handle)
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=2))
    await queue.publish("t", BusMessage(id="good", payload=1))
    await wait_until(lambda: dead_of(queue) and "good" in handled)
    await queue.publish("t", BusMessage(id="after", payload=1))
    await wait_until(lambda: "after" in handled)
    (entry,) = dead_of(queue)
    assert attempts == [0, 1, 2]
    assert (entry.message.id, entry.reason) == ("bad", DeadLetterReason.RETRIES_EXHAUSTED)
    assert entry.traceback
    assert len(tracebacks(caplog)) == 3
    assert consumer.is_running
    assert (await queue.health_check()).status is HealthStatus.HEALTHY


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_failing_batch_handler_is_retried_then_dead_lettered(open_queue, caplog, fail):
    queue, attempts, handled = await open_queue(), [], []

    async def handle(messages):
        if any(message.id == "bad" for message in messages):
            attempts.append(1)
            await fail()
        handled.extend(message.id for message in messages)

    await queue.consume(options(batch_size=10, concurrency=1), handle)
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=1))
    await wait_until(lambda: dead_of(queue))
    await queue.publish("t", BusMessage(id="good", payload=1))
    await wait_until(lambda: handled == ["good"])
    assert len(attempts) == 2
    assert len(tracebacks(caplog)) == 2


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
@pytest.mark.parametrize("batch_size", [1, 10])
async def test_at_most_once_a_failing_handler_loses_its_message_only(
    open_queue, caplog, fail, batch_size
):
    queue, handled = await open_queue(), []

    async def handle(given):
        for message in given if isinstance(given, list) else [given]:
            if message.id == "bad":
                await fail()
            handled.append(message.id)

    once = DeliveryGuarantee.AT_MOST_ONCE
    await queue.consume(
        options(batch_size=batch_size, concurrency=1, delivery_guarantee=once), handle
    )
    await queue.publish("t", BusMessage(id="bad", payload=1))
    await wait_until(lambda: tracebacks(caplog))
    await queue.publish("t", BusMessage(id="good", payload=1))
    await wait_until(lambda: handled == ["good"])
    assert "at most once" in caplog.text


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_failing_middleware_is_a_failure_of_the_handler(open_queue, caplog, fail):
    class Failing(MiddlewareBase):
        async def process(self, message, next_handler):
            if message.id == "bad":
                await fail()
            await next_handler(message)

    queue, handled = await open_queue(), []

    async def handle(message):
        handled.append(message.id)

    await queue.consume(options(concurrency=1, middleware=(Failing(),)), handle)
    await queue.publish("t", BusMessage(id="bad", payload=1, max_retries=0))
    await queue.publish("t", BusMessage(id="good", payload=1))
    await wait_until(lambda: dead_of(queue) and handled == ["good"])
    assert tracebacks(caplog)


raise_now = []


@attrs.frozen
class Order:
    number: int = attrs.field()

    @number.validator
    def check(self, _, number):
        if number == 0:
            raise_now[0]()


@pytest.mark.parametrize("batch_size", [1, 10])
@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_payload_whose_class_fails_is_a_dead_letter_and_others_are_handled(
    open_queue, fail, batch_size
):
    queue, handled = await open_queue(), []
    raise_now[:] = [fail]

    async def handle(given):
        given = given if isinstance(given, list) else [given]
        handled.extend(message.payload for message in given)

    await queue.driver.declare("t", "default")
    for number in range(3):
        await queue.publish("t", BusMessage(id=f"m{number}", payload={"number": number}))
    await queue.consume(options(batch_size=batch_size, concurrency=1, payload_type=Order), handle)
    await wait_until(lambda: handled == [Order(1), Order(2)] and dead_of(queue))
    (entry,) = dead_of(queue)
    assert (entry.message.id, entry.reason) == ("m0", DeadLetterReason.UNDECODABLE)


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_failing_handler_of_requests_answers_the_next_request(open_queue, fail):
    queue = await open_queue()

    async def answer(message):
        if message.payload == "bad":
            await fail()
        await queue.reply(message, "yes")

    await queue.consume(options(concurrency=1), answer)
    with pytest.raises(ReplyTimeoutError):
        await queue.request("t", BusMessage(payload="bad", max_retries=0), timeout=0.3)
    assert (await queue.request("t", BusMessage(payload="good"), timeout=30)).payload == "yes"


@pytest.mark.parametrize("batch_size", [1, 10])
async def test_a_handler_that_cancels_its_own_task_and_returns_spares_the_next_message(
    open_queue, batch_size
):
    queue, handled = await open_queue(), []

    async def handle(given):
        await anyio.lowlevel.checkpoint()
        for message in given if isinstance(given, list) else [given]:
            handled.append(message.id)
            if message.id == "bad":
                asyncio.current_task().cancel()

    await queue.consume(options(concurrency=1, handler_timeout=None, batch_size=batch_size), handle)
    for name in ("bad", "good"):
        await queue.publish("t", BusMessage(id=name, payload=1, max_retries=0))
    await wait_until(lambda: handled == ["bad", "good"])
    assert not dead_of(queue)
    assert (await queue.health_check()).status is HealthStatus.HEALTHY


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_handler_that_blocks_the_loop_past_its_lease_loses_no_message(
    open_queue, concurrency
):
    lease = 0.2
    queue, handled = await open_queue(visibility_timeout=lease), []

    async def handle(message):
        await anyio.lowlevel.checkpoint()
        if message.id == "slow":
            block_the_loop(lease)
        handled.append(message.id)

    consumer = await queue.consume(options(concurrency=concurrency, handler_timeout=None), handle)
    for name in ("slow", "one", "two"):
        await queue.publish("t", BusMessage(id=name, payload=1))
    await wait_until(lambda: set(handled) == {"slow", "one", "two"} and not consumer.in_flight)
    assert not dead_of(queue)
    assert consumer.is_running


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failing_listener_of_the_bus_does_not_end_the_consumer(open_queue, caplog, fail):
    class Hooks:
        def has_action(self, name):
            return name == "message.consumed"

        def has_filter(self, name):
            return False

        async def call_action(self, name, **facts):
            await fail()

    queue, handled = await open_queue(), []
    queue.set_hook_registry(Hooks())

    async def handle(message):
        handled.append(message.payload)

    await queue.consume(options(concurrency=1), handle)
    for number in range(3):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: handled == [0, 1, 2])
    assert "hook message.consumed failed" in caplog.text
    assert not dead_of(queue)


@pytest.mark.parametrize("task", ["settle", "leases", "watch", "receive", "worker"])
async def test_a_task_of_the_consumer_that_fails_is_restarted_logged_and_shown_by_health(
    open_queue, caplog, task, monkeypatch
):
    queue, handled, failures = await open_queue(driver=MemoryDriver()), [], [1, 1]

    async def handle(message):
        handled.append(message.payload)

    consumer = await queue.prepare(options(), handle)
    owner, name = {
        "settle": (consumer._settler, "run"),
        "leases": (consumer._keeper, "run"),
        "watch": (consumer, "_watch"),
        "receive": (consumer, "_receive"),
        "worker": (consumer, "_work"),
    }[task]
    run = getattr(owner, name)

    async def run_with_defect(*args):
        if failures:
            failures.pop()
            raise SystemExit("defect")
        await run(*args)

    monkeypatch.setattr(owner, name, run_with_defect)
    await consumer.start()
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: handled == [1] and not failures)
    await wait_until(lambda: len(tracebacks(caplog)) == 2)
    assert {record.levelno for record in tracebacks(caplog)} == {logging.ERROR}
    health = await queue.health_check()
    assert health.status is HealthStatus.DEGRADED
    assert f"c.{task}" in health.message
    assert "SystemExit" in health.message
    assert consumer.is_running


async def test_a_worker_that_fails_beside_the_handler_hands_its_message_back(
    open_queue, monkeypatch
):
    queue, handled, failures = await open_queue(), [], [1]

    async def handle(message):
        handled.append(message.payload)

    consumer = await queue.prepare(options(concurrency=1), handle)
    attempt = consumer._attempt

    async def attempt_with_defect(delivery):
        if failures:
            failures.pop()
            raise RuntimeError("defect")
        return await attempt(delivery)

    monkeypatch.setattr(consumer, "_attempt", attempt_with_defect)
    await consumer.start()
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: handled == [1])
    assert not failures


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_widget_that_fails_in_any_way_is_an_err_and_the_others_are_drawn(fail, caplog):
    class Broken:
        async def get_data(self, params):
            await fail()

    class Fine:
        async def get_data(self, params):
            return Ok(StatContent(()))

    class Resolver:
        async def resolve_optional(self, kind):
            return kind()

    widgets = {
        name: (WidgetDefinition(name, name, "metrics", "/"), kind)
        for name, kind in (("broken", Broken), ("fine", Fine))
    }
    renderer = PackageWidgetRenderer("shop", widgets, timeout=TIME_LIMIT)
    failed = await renderer.render("broken", WidgetParams(), Resolver())
    assert "widget 'broken' failed" in str(failed.unwrap_err())
    assert (await renderer.render("fine", WidgetParams(), Resolver())).is_ok()
    assert tracebacks(caplog)
