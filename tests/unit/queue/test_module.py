"""The module: backends by configuration, consumers started, drained and watched."""

from typing import Annotated

import anyio
import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import BusMessage, DeliveryGuarantee, QueueError, QueueProtocol
from lexigram.di import Module, Named, Provider, module
from lexigram.di.errors import ProviderError
from lexigram.queue import (
    ConsumerRegisteredEvent,
    MessageConsumedEvent,
    MessageConsumedHook,
    MessageConsumer,
    MessagePipeline,
    MessagePublishedHook,
    NamedQueueConfig,
    QueueConfig,
    QueueDriverRegistry,
    QueueModule,
    QueueProvider,
    UnknownDriverError,
)
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.core.pipeline import MiddlewareBase
from lexigram.queue.errors import QueueLibraryError
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeTracer

pytestmark = pytest.mark.anyio

INSTALLED = QueueDriverRegistry.with_defaults()
TWO = QueueConfig(
    backends=[NamedQueueConfig(name="orders", primary=True), NamedQueueConfig(name="audit")]
)


class Box:
    def __init__(self):
        self.got = []


class BoxProvider(Provider):
    def __init__(self, box):
        super().__init__()
        self.box = box

    async def register(self, container):
        container.singleton(Box, self.box)
        container.scoped(Unit)


class Unit:
    """One per message."""


class Shipping(MessageConsumer):
    topic = "orders.created"

    async def handle(self, message: BusMessage, box: Box, unit: Unit) -> None:
        box.got.append((message.payload, unit))


def shop(*consumers, config=None):
    box = Box()

    @module(imports=[QueueModule.scope(*consumers)], providers=[BoxProvider(box)], exports=[Box])
    class ShopModule(Module):
        pass

    return Application("shop", modules=[QueueModule.stub(config), ShopModule]), box


async def test_a_scoped_consumer_is_started_handles_in_a_scope_of_its_own_and_is_drained():
    app, box = shop(Shipping)
    async with app:
        queue = app.container.get(QueueProtocol)
        await queue.publish("orders.created", BusMessage(payload=1))
        await queue.publish("orders.created", BusMessage(payload=2))
        await wait_until(lambda: len(box.got) == 2)
    assert [payload for payload, _ in box.got] == [1, 2]
    assert box.got[0][1] is not box.got[1][1]
    assert queue.subscriptions == []


async def test_the_group_of_a_consumer_is_its_qualified_name():
    app, _ = shop(Shipping)
    async with app:
        groups = await app.container.get(QueueProtocol).driver.groups()
    assert groups == [("orders.created", f"{Shipping.__module__}.Shipping")]


async def test_what_a_provider_publishes_during_boot_is_not_missed():
    box = Box()

    class Early(Provider):
        dependencies = ("queue",)

        async def boot(self, container):
            queue = await container.resolve(QueueProtocol)
            await queue.publish("orders.created", BusMessage(payload="early"))

    @module(imports=[QueueModule.scope(Shipping)], providers=[BoxProvider(box), Early])
    class ShopModule(Module):
        pass

    async with Application("shop", modules=[QueueModule.stub(), ShopModule]):
        await wait_until(lambda: [payload for payload, _ in box.got] == ["early"])


async def test_the_primary_is_unnamed_and_all_are_bound_by_name():
    async with Application("shop", modules=[QueueModule.configure(TWO)]) as app:
        primary = app.container.get(QueueProtocol)
        orders = app.container.get(Annotated[QueueProtocol, Named("orders")])
        audit = app.container.get(Annotated[QueueProtocol, Named("audit")])
    assert primary is orders is not audit
    assert (orders.name, audit.name) == ("orders", "audit")


async def test_a_consumer_may_name_its_backend():
    class Audit(Shipping):
        backend = "audit"

    app, box = shop(Audit, config=TWO)
    async with app:
        audit = app.container.get(Annotated[QueueProtocol, Named("audit")])
        await app.container.get(QueueProtocol).publish("orders.created", BusMessage(payload=1))
        await audit.publish("orders.created", BusMessage(payload=2))
        await wait_until(lambda: box.got)
    assert [payload for payload, _ in box.got] == [2]


async def test_a_backend_that_does_not_exist_is_named():
    class Lost(Shipping):
        backend = "nowhere"

    app, _ = shop(Lost)
    with pytest.raises(ProviderError, match="Lost wants backend 'nowhere'"):
        async with app:
            pass


async def test_without_a_backend_the_queue_says_what_to_add():
    async with Application("shop", modules=[QueueModule.configure(QueueConfig())]) as app:
        with pytest.raises(ConfigurationError, match="the bus has no backend"):
            app.container.get(QueueProtocol)


async def test_an_unknown_driver_names_those_that_are_installed():
    config = QueueConfig.from_named_backend(NamedQueueConfig(name="x", driver="pigeon"))
    with pytest.raises(UnknownDriverError, match="Unsupported queue driver: 'pigeon'") as caught:
        async with Application("shop", modules=[QueueModule.configure(config)]):
            pass
    assert "memory" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_missing_library_names_the_extra():
    with pytest.raises(QueueLibraryError) as caught:
        require_library("no_such_client", extra="redis")
    assert isinstance(caught.value, ImportError)
    assert 'pip install "lexigram-queue[redis]"' in str(caught.value)


async def test_settings_of_the_configuration_are_obeyed():
    entry = NamedQueueConfig(
        name="x",
        max_retries=5,
        serializer="msgpack",
        default_ttl=9.0,
        prefetch=3,
        concurrency=2,
        visibility_timeout=7.0,
        handler_timeout=8.0,
        max_deliveries=6,
        max_backlog=11,
        dedup_window=12.0,
        retry_base=0.5,
        retry_cap=4.0,
        expired="drop",
        drain_timeout=1.0,
        delivery_guarantee=DeliveryGuarantee.AT_MOST_ONCE,
    )
    queue = INSTALLED.create_backend("memory", entry)
    assert queue.options.max_retries == 5
    assert queue.options.default_ttl == 9.0
    assert (queue.options.prefetch, queue.options.concurrency) == (3, 2)
    assert (queue.options.handler_timeout, queue.options.max_deliveries) == (8.0, 6)
    assert (queue.options.retry.base, queue.options.retry.cap) == (0.5, 4.0)
    assert (queue.options.expired, queue.options.drain_timeout) == ("drop", 1.0)
    assert queue.options.delivery_guarantee is DeliveryGuarantee.AT_MOST_ONCE
    assert queue.driver.visibility_timeout == 7.0
    assert (queue.driver.broker.max_backlog, queue.driver.broker.dedup_window) == (11, 12.0)
    await queue.connect()
    await queue.driver.declare("t", "g")
    await queue.publish("t", BusMessage(payload={"a": 1}))
    (delivery,) = await queue.driver.receive("t", "g", limit=1, wait=1)
    assert delivery.message.headers["content-type"] == "application/msgpack"
    await queue.close()


class Unreachable(MemoryDriver):
    name = "far"

    def __init__(self):
        super().__init__()
        self.down = True

    async def connect(self):
        if self.down:
            raise QueueError("connection refused by far:1234", backend="far")
        await super().connect()

    async def health_check(self, timeout=5.0):
        if self.down:
            return HealthCheckResult("far", HealthStatus.UNHEALTHY, error="refused")
        return await super().health_check(timeout)


def far_module(driver, **settings):
    registry = QueueDriverRegistry()
    registry.register("far", lambda entry, services: driver)
    entry = NamedQueueConfig(name="far", driver="far", **settings)
    provider = QueueProvider(QueueConfig.from_named_backend(entry), registry)

    @module(providers=[provider], exports=[QueueProtocol], is_global=True)
    class FarModule(Module):
        pass

    return FarModule


async def test_a_required_broker_out_of_reach_fails_the_start_clearly():
    with pytest.raises(ProviderError, match="connection refused by far:1234") as caught:
        async with Application("shop", modules=[far_module(Unreachable())]):
            pass
    assert "required: false" in str(caught.value)


async def test_a_start_waits_for_the_broker_when_told_to():
    driver = Unreachable()

    async def come():
        await anyio.sleep(0.05)
        driver.down = False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come)
        async with Application("shop", modules=[far_module(driver, wait_for_broker=10.0)]) as app:
            assert (await app.health_check()).is_healthy()


async def test_a_broker_that_is_not_required_is_used_when_it_comes():
    driver, box = Unreachable(), Box()

    @module(imports=[QueueModule.scope(Shipping)], providers=[BoxProvider(box)])
    class ShopModule(Module):
        pass

    bus = far_module(driver, required=False)
    async with Application("shop", modules=[bus, ShopModule]) as app:
        assert (await app.health_check()).status is HealthStatus.UNHEALTHY
        driver.down = False
        queue = app.container.get(QueueProtocol)

        async def published():
            try:
                return await queue.publish("orders.created", BusMessage(payload=1))
            except QueueError:
                return None

        await wait_until(published)
        await wait_until(lambda: box.got)
        assert (await app.health_check()).is_healthy()


async def test_health_is_as_bad_as_the_worst_backend():
    async with Application("shop", modules=[QueueModule.configure(TWO)]) as app:
        await app.container.get(Annotated[QueueProtocol, Named("audit")]).driver.close()
        health = await app.health_check()
        (mine,) = [one for one in health.components if one.component == "queue"]
    assert mine.status is HealthStatus.UNHEALTHY
    assert mine.details["backends"]["orders"]["status"] == "healthy"
    assert mine.details["backends"]["audit"]["status"] == "unhealthy"


async def test_hooks_and_events_are_emitted():
    app, _ = shop(Shipping)
    told = []
    async with app:
        hooks = app.container.get(HookRegistryProtocol)
        events = app.container.get(EventBusProtocol)
        hooks.register_action("message.published", lambda payload: told.append(payload))
        hooks.on(MessageConsumedHook, told.append)
        events.subscribe(MessageConsumedEvent, told.append)
        await app.container.get(QueueProtocol).publish("orders.created", BusMessage(payload="x"))
        await wait_until(lambda: len(told) == 3)
    kinds = {type(one) for one in told}
    assert kinds == {MessagePublishedHook, MessageConsumedHook, MessageConsumedEvent}
    (event,) = [one for one in told if isinstance(one, MessageConsumedEvent)]
    assert event.consumer_id == f"{Shipping.__module__}.Shipping"
    assert {one.message_type for one in told if hasattr(one, "message_type")} == {"str"}


async def test_a_consumer_that_begins_to_receive_is_an_event():
    told = []

    class Watcher(Provider):
        async def boot(self, container):
            events = await container.resolve(EventBusProtocol)
            events.subscribe(ConsumerRegisteredEvent, told.append)

    box = Box()

    @module(imports=[QueueModule.scope(Shipping)], providers=[BoxProvider(box), Watcher])
    class ShopModule(Module):
        pass

    async with Application("shop", modules=[QueueModule.stub(), ShopModule]):
        pass
    assert [(one.consumer_id, one.queue_name) for one in told] == [
        (f"{Shipping.__module__}.Shipping", "default")
    ]


async def test_filters_may_change_or_refuse_a_message():
    app, box = shop(Shipping)
    async with app:
        hooks, queue = app.container.get(HookRegistryProtocol), app.container.get(QueueProtocol)

        def publishing(message, topic):
            if message.payload == "secret":
                raise PermissionError("not over this bus")
            return BusMessage(id=message.id, payload=f"{message.payload}!")

        hooks.register_filter("message.publishing", publishing)
        hooks.register_filter(
            "message.consuming", lambda message, topic: BusMessage(payload=message.payload * 2)
        )
        with pytest.raises(PermissionError):
            await queue.publish("orders.created", BusMessage(payload="secret"))
        sent = await queue.publish("orders.created", BusMessage(payload="hi"))
        assert sent.payload == "hi!"
        await wait_until(lambda: box.got)
    assert [payload for payload, _ in box.got] == ["hi!hi!"]


async def test_the_trace_of_the_publisher_goes_on_in_the_handler():
    tracer = FakeTracer()
    spans = []

    class Traced(MessageConsumer):
        topic = "t"

        async def handle(self, message: BusMessage) -> None:
            spans.append((tracer.get_current_span().context, message.headers["traceparent"]))

    box = Box()

    @module(imports=[QueueModule.scope(Traced)], providers=[BoxProvider(box)])
    class ShopModule(Module):
        pass

    application = Application(
        "shop", modules=[QueueModule.stub(), ShopModule], overrides={TracerProtocol: tracer}
    )
    async with application as running:
        with tracer.start_span("request") as request:
            trace = request.context.trace_id
            await running.container.get(QueueProtocol).publish("t", BusMessage(payload=1))
        await wait_until(lambda: spans)
    ((context, header),) = spans
    assert context.trace_id == trace
    assert trace in header
    names = [span.name for span in tracer.spans]
    assert "queue.publish t" in names
    assert "queue.receive t" in names


async def test_middleware_added_before_the_start_wraps_every_consumer():
    seen = []

    class Note(MiddlewareBase):
        async def process(self, message, next_handler):
            seen.append(message.payload)
            await next_handler(message)

    class Adding(Provider):
        async def boot(self, container):
            (await container.resolve(MessagePipeline)).add(Note())

    box = Box()

    @module(imports=[QueueModule.scope(Shipping)], providers=[BoxProvider(box), Adding])
    class ShopModule(Module):
        pass

    async with Application("shop", modules=[QueueModule.stub(), ShopModule]) as app:
        await app.container.get(QueueProtocol).publish("orders.created", BusMessage(payload=1))
        await wait_until(lambda: box.got)
    assert seen == [1]


class MyQueue:
    """A complete queue of the application, with delivery in the publisher's task."""

    def __init__(self):
        self.handlers = []
        self.connected = False

    async def connect(self):
        self.connected = True

    async def close(self):
        self.connected = False

    async def publish(self, topic, message):
        for known, handler in self.handlers:
            if known == topic:
                await handler(message)
        return message

    async def subscribe(self, topic, handler, *, group="default"):
        self.handlers.append((topic, handler))

    async def health_check(self, timeout=5.0):
        return HealthCheckResult("mine")


async def test_a_complete_queue_of_the_application_serves_scoped_consumers():
    mine, box = MyQueue(), Box()

    class OnMine(Shipping):
        backend = "my_backend"

    class MyProvider(Provider):
        async def register(self, container):
            container.singleton(QueueProtocol, mine, name="my_backend")

    @module(imports=[QueueModule.scope(OnMine)], providers=[BoxProvider(box), MyProvider])
    class ShopModule(Module):
        pass

    async with Application("shop", modules=[QueueModule.stub(), ShopModule]):
        assert mine.connected
        await mine.publish("orders.created", BusMessage(payload=1))
    assert [payload for payload, _ in box.got] == [1]
    assert not mine.connected
    with pytest.raises(QueueError, match="is stopped"):
        await mine.publish("orders.created", BusMessage(payload=2))


async def test_a_complete_queue_may_come_by_the_registry():
    registry = QueueDriverRegistry()
    registry.register("mine", lambda entry, services: MyQueue())
    entry = NamedQueueConfig(name="mine", driver="mine")
    assert isinstance(registry.create_backend("mine", entry), MyQueue)
    provider = QueueProvider(QueueConfig.from_named_backend(entry), registry)

    @module(providers=[provider], exports=[QueueProtocol], is_global=True)
    class MineModule(Module):
        pass

    async with Application("shop", modules=[MineModule]) as app:
        assert app.container.get(QueueProtocol).connected


async def test_two_applications_of_one_process_do_not_share_a_bus():
    first, one = shop(Shipping)
    second, other = shop(Shipping)
    async with first, second:
        await first.container.get(QueueProtocol).publish("orders.created", BusMessage(payload=1))
        await wait_until(lambda: one.got)
    assert other.got == []
