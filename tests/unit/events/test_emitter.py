"""What a component reports reaches those who listen, and never fails the component."""

import anyio
import pytest
from tests.failures import WAYS_TO_RAISE, WAYS_TO_RAISE_NOW

from lexigram.contracts.core.hooks import NoOpHookRegistry
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.observability.metrics import NoOpMetrics
from lexigram.events import EventBus, EventEmitter
from lexigram.hooks import HookRegistry
from lexigram.testing.fakes.metrics import FakeMetrics

pytestmark = pytest.mark.anyio


class OrderPlaced(DomainEvent):
    pass


class OrderHook:
    pass


def refuse():
    raise AssertionError("nobody listens: nothing is built")


async def test_without_listeners_nothing_is_built():
    emitter = EventEmitter(events=EventBus(), hooks=HookRegistry(), metrics=NoOpMetrics())
    await emitter.publish(OrderPlaced, refuse)
    await emitter.emit(OrderHook, refuse, name="order.placed")
    emitter.count("orders")
    assert emitter.is_idle
    assert not emitter.has_subscribers(OrderPlaced)
    assert EventEmitter().is_idle


async def test_events_reach_subscribers_and_payloads_reach_both_kinds_of_hooks():
    events, hooks, heard = EventBus(), HookRegistry(), []
    events.subscribe(OrderPlaced, heard.append)
    hooks.on(OrderHook, heard.append)
    hooks.register_action("order.placed", lambda payload: heard.append(payload))
    emitter = EventEmitter(events=events, hooks=hooks)
    assert not emitter.is_idle
    await emitter.publish(OrderPlaced, OrderPlaced)
    await emitter.emit(OrderHook, OrderHook, name="order.placed")
    assert [type(one) for one in heard] == [OrderPlaced, OrderHook, OrderHook]
    assert heard[1] is heard[2]


async def test_a_registry_that_knows_names_only_is_enough():
    called = []

    class Named(NoOpHookRegistry):
        def has_action(self, hook_name):
            return True

        async def call_action(self, hook_name, /, **kwargs):
            called.append((hook_name, kwargs))

    payload = OrderHook()
    await EventEmitter(hooks=Named()).emit(OrderHook, lambda: payload, name="order.placed")
    await EventEmitter(hooks=Named()).emit(OrderHook, refuse)
    assert called == [("order.placed", {"payload": payload})]


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_failing_bus_and_failing_hooks_are_logged_and_nothing_else(fail, caplog):
    class Bus:
        def has_subscribers(self, kind):
            return True

        async def publish(self, event):
            await fail()

    class Hooks:
        def wants(self, kind):
            return True

        def has_action(self, name):
            return True

        async def call_action(self, name, /, **kwargs):
            await fail()

        async def emit(self, payload):
            await fail()

    emitter = EventEmitter(events=Bus(), hooks=Hooks())
    await emitter.publish(OrderPlaced, OrderPlaced)
    await emitter.emit(OrderHook, OrderHook, name="order.placed")
    texts = [record.getMessage() for record in caplog.records if record.exc_info]
    assert texts == [
        "event OrderPlaced could not be published",
        "hook order.placed failed",
        "hook OrderHook failed",
    ]


async def test_a_subscriber_that_raises_is_logged(caplog):
    events = EventBus()

    def fail(event):
        raise ValueError("on purpose")

    events.subscribe(OrderPlaced, fail)
    await EventEmitter(events=events).publish(OrderPlaced, OrderPlaced)
    assert "on purpose" in caplog.text


async def test_a_cancellation_of_the_caller_passes():
    events, begun = EventBus(), anyio.Event()

    async def wait(event):
        begun.set()
        await anyio.sleep_forever()

    events.subscribe(OrderPlaced, wait)
    after = []

    async def publish():
        await EventEmitter(events=events).publish(OrderPlaced, OrderPlaced)
        after.append("published")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert after == []


def test_metrics_have_the_prefix_and_the_tags():
    metrics = FakeMetrics()
    emitter = EventEmitter(metrics=metrics, prefix="orders.", tags={"shop": "a"})
    emitter.count("placed", 2.0, kind="new")
    emitter.gauge("open", 3.0)
    emitter.observe("seconds", 0.5)
    assert metrics.counted("orders.placed", shop="a", kind="new") == 2.0
    assert metrics.gauged("orders.open", shop="a") == 3.0
    assert metrics.observed("orders.seconds", shop="a") == [0.5]


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_failing_metrics_are_logged(fail, caplog):
    class Metrics:
        def increment(self, name, value=1.0, tags=None):
            fail()

    EventEmitter(metrics=Metrics(), prefix="orders.").count("placed")
    assert "metric orders.placed failed" in caplog.text
