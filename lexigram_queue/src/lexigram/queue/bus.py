"""A queue over any driver: publish, subscribe, and everything between the two."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from attrs import evolve

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeliveryGuarantee,
    NotConnectedError,
    QueueDriverProtocol,
    QueueError,
)
from lexigram.contracts.queue.headers import DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY
from lexigram.contracts.queue.limits import check_delay, check_group, check_pattern
from lexigram.queue.core.pipeline import MessagePipeline
from lexigram.queue.options import BusOptions, ConsumerOptions
from lexigram.queue.runtime.attempts import Around, Attempts
from lexigram.queue.runtime.background import Background
from lexigram.queue.runtime.emitter import QueueEmitter
from lexigram.queue.runtime.link import Link
from lexigram.queue.runtime.payloads import Payloads, with_payload
from lexigram.queue.runtime.publisher import Publisher
from lexigram.queue.runtime.requests import Requests, reply_to
from lexigram.queue.runtime.settle import Settler
from lexigram.queue.runtime.subscription import Subscription
from lexigram.queue.runtime.topics import is_pattern

if TYPE_CHECKING:
    from lexigram.contracts.core.hooks import HookRegistryProtocol
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.contracts.observability.tracing import TracerProtocol

__all__ = ["BusOptions", "BusQueue"]


class BusQueue:
    """The runtime of the bus: implements QueueProtocol on any QueueDriverProtocol.

    Usable without a container: ``queue = BusQueue(driver); await queue.connect()``. Inside an
    application the provider creates one per backend and connects it to hooks, events, tracing
    and the inbox.
    """

    def __init__(
        self,
        driver: QueueDriverProtocol,
        *,
        name: str | None = None,
        options: BusOptions | None = None,
        pipeline: MessagePipeline | None = None,
    ) -> None:
        self.driver = driver
        self.name = name or driver.name
        self.options = options or BusOptions()
        self.pipeline = MessagePipeline() if pipeline is None else pipeline  # an empty one is false
        # Wraps an exactly-once attempt; without it that guarantee is refused.
        self.inbox: Callable[[ConsumerOptions], Around] | None = None
        self._emitter = QueueEmitter(self.name)
        self._background = Background(f"queue.{self.name}")
        self._link = Link(driver, self._background, self.name)
        self._payloads = Payloads(
            self.options.serializer,
            as_objects=hasattr(driver, "publish_nowait"),
            share=self.options.share,
        )
        self._publisher = Publisher(driver, self._link, self._emitter, self._payloads, self.options)
        self._requests: Requests | None = None
        self._is_patient = False  # consumers may start before the broker is available
        self.subscriptions: list[Subscription] = []

    # What the application has.

    def set_tracer(self, tracer: TracerProtocol | None) -> None:
        """Trace what is published and handled from now on."""
        self._publisher.tracer = tracer

    def set_hook_registry(self, hooks: HookRegistryProtocol | None) -> None:
        """Call these hooks and filters from now on."""
        self._emitter.hooks = hooks

    def set_event_bus(self, events: EventBusProtocol | None) -> None:
        """Publish events there from now on."""
        self._emitter.events = events

    def set_metrics(self, metrics: MetricsProtocol | None) -> None:
        """Count there from now on."""
        self._emitter.metrics = metrics

    # Life.

    async def connect(self, *, wait: float = 0.0) -> None:
        """Connect to the broker, retrying for ``wait`` seconds. A second call does nothing."""
        await self._background.open()
        await self._link.open(wait)

    async def connect_later(self) -> None:
        """Connect in the background; until then publishing raises."""
        await self._background.open()
        self._is_patient = True
        self._link.suspect(NotConnectedError("not connected yet", backend=self.name))

    async def close(self) -> None:
        """Stop all consumers (finish or hand back what is in flight), then disconnect."""
        if not self._background.is_open:
            return
        for subscription in reversed(self.subscriptions):
            await subscription.stop()
        self.subscriptions.clear()
        self._requests = None
        await self._emitter.emit_drained()
        await self._background.close()
        await self.driver.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Out.

    async def publish(
        self,
        topic: str,
        message: BusMessage,
        *,
        delay: float | None = None,
        ordering_key: str | None = None,
        fairness_key: str | None = None,
    ) -> BusMessage:
        """Send the message; returns it as sent once the broker confirmed.

        ``delay``: not delivered for that many seconds. ``ordering_key``: after all earlier
        messages of this key. ``fairness_key``: usually the tenant. Raises InvalidMessageError for
        what no driver takes, CapabilityError for what this driver cannot do.
        """
        if delay is not None or ordering_key is not None or fairness_key is not None:
            message = _with_headers(message, delay, ordering_key, fairness_key)
        return await self._publisher.send(topic, message)

    async def publish_many(self, topic: str, messages: Sequence[BusMessage]) -> list[BusMessage]:
        """Send several messages in as few round trips as possible, in order.

        Raises QueueError; ``details["unconfirmed"]`` lists the ids that were not confirmed.
        """
        return await self._publisher.send_many(
            [with_payload(one, one.payload, one.headers, topic) for one in messages]
        )

    def check(self, topic: str, message: BusMessage) -> None:
        """Raise what ``publish`` would for this message, without sending it."""
        self._publisher.check(topic, message)

    async def to_wire(self, topic: str, message: BusMessage) -> BusMessage:
        """The message encoded as it would be sent now; an outbox stores it and sends it later."""
        return await self._publisher.wire(topic, message)

    async def publish_wires(self, wires: Sequence[BusMessage]) -> None:
        """Send what ``to_wire`` made, to their topics, in order; raises as ``publish_many``."""
        await self._publisher.send_wires(wires)

    async def request(self, topic: str, message: BusMessage, *, timeout: float = 5.0) -> BusMessage:
        """Send a request and wait for the reply; raises ReplyTimeoutError, or as ``publish``."""
        self.check(topic, message)  # before its time to live and its time are replaced
        if self._requests is None:
            self._requests = Requests(self._publisher.send, self._listen)
        return await self._requests.ask(topic, message, timeout)

    async def reply(self, question: BusMessage, payload: Any) -> None:
        """Reply to a request; does nothing when the message expects no reply."""
        answer = reply_to(question, payload)
        if answer is not None:
            await self._publisher.send(*answer)

    async def _listen(self, topic: str, handler: Callable[[BusMessage], Awaitable[None]]) -> None:
        await self.consume(
            ConsumerOptions(topics=(topic,), group="reply", consumer_id=topic, temporary=True),
            handler,
        )

    # In.

    async def subscribe(
        self,
        topic: str,
        handler: Callable[[BusMessage], Awaitable[Any]],
        *,
        group: str = "default",
    ) -> None:
        """Call the handler for messages of the topic or pattern, as a member of the group."""
        await self.consume(
            ConsumerOptions(topics=(topic,), group=group, consumer_id=_name_of(handler)), handler
        )

    async def consume(
        self, consumer: ConsumerOptions, handler: Callable[[Any], Awaitable[Any]]
    ) -> Subscription:
        """Start a consumer with all its options; raises for options this queue does not support."""
        subscription = await self.prepare(consumer, handler)
        await subscription.start()
        return subscription

    async def prepare(
        self, consumer: ConsumerOptions, handler: Callable[[Any], Awaitable[Any]]
    ) -> Subscription:
        """The same in two steps: the groups exist, and ``start()`` begins to receive."""
        if not self._background.is_open:
            raise NotConnectedError(
                f"{type(self).__name__} not connected",
                backend=self.name,
                hint="await queue.connect() first",
            )
        if not consumer.consumer_id:
            consumer = evolve(consumer, consumer_id=f"{consumer.group}-{uuid4().hex[:8]}")
        self._check(consumer)
        subscription = self._subscription(consumer, handler)
        try:
            await subscription.declare()
        except QueueError as error:
            if not self._is_patient:
                raise
            self._link.suspect(error)
        self.subscriptions.append(subscription)
        return subscription

    def _subscription(
        self, consumer: ConsumerOptions, handler: Callable[[Any], Awaitable[Any]]
    ) -> Subscription:
        settler = Settler(
            self.driver,
            self._link,
            self._emitter,
            self._publisher,
            consumer.retry or self.options.retry,
            consumer.group,
            max_waiting=10 * (consumer.prefetch or self.options.prefetch),
        )
        around = self._around(consumer)
        return Subscription(
            self.driver,
            self._link,
            self._emitter,
            self._payloads,
            settler,
            lambda: self._attempts(consumer, handler, around),
            self.options,
            consumer,
        )

    def _attempts(
        self,
        consumer: ConsumerOptions,
        handler: Callable[[Any], Awaitable[Any]],
        around: Around | None,
    ) -> Attempts:
        if consumer.batch_size == 1:
            handler = self.pipeline.wrap(handler, consumer.middleware)
        elif consumer.middleware or len(self.pipeline):
            raise ConfigurationError(
                f"consumer {consumer.consumer_id} takes batches, and middleware takes messages",
                hint="use handle() for single messages, or do the work of the middleware in the "
                "batch handler",
            )
        return Attempts(
            handler,
            system=self.driver.name,
            hooks=self._emitter.hooks,
            tracer=self._publisher.tracer,
            timeout=consumer.handler_timeout or self.options.handler_timeout,
            around=around,
        )

    def _around(self, consumer: ConsumerOptions) -> Around | None:
        wanted = consumer.delivery_guarantee or self.options.delivery_guarantee
        if wanted is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        if self.inbox is None:
            raise ConfigurationError(
                f"consumer {consumer.consumer_id} wants exactly_once, which needs SQL",
                details={"consumer": consumer.consumer_id, "queue": self.name},
                hint="add SqlModule to the application, or use at_least_once",
            )
        return self.inbox(consumer)

    def _check(self, consumer: ConsumerOptions) -> None:
        if not consumer.topics or not all(consumer.topics):
            raise ConfigurationError(
                f"consumer {consumer.consumer_id} has no topic", hint="set its class attribute"
            )
        for topic in consumer.topics:
            check_pattern(topic)
        check_group(consumer.group)
        if any(map(is_pattern, consumer.topics)) and not self.can(Capability.PATTERN):
            raise CapabilityError(
                f"driver {self.driver.name} cannot receive by pattern",
                backend=self.name,
                topic=", ".join(consumer.topics),
                hint="name the topics one by one",
            )

    def forget(self, subscription: Subscription) -> None:
        """Remove a consumer that was stopped separately: health no longer reports it."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    def can(self, capability: Capability) -> bool:
        """Whether the driver declares it."""
        return capability in self.driver.capabilities

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """The broker's answer; DEGRADED while the connection is being repaired."""
        found = await self.driver.health_check(timeout)
        status, message = found.status, found.message
        if self._link.is_broken and status is HealthStatus.HEALTHY:
            status, message = HealthStatus.DEGRADED, "reconnecting"
        died = [one.consumer.consumer_id for one in self.subscriptions if one.has_died]
        restarted = {
            f"{one.consumer.consumer_id}.{task}": error
            for one in self.subscriptions
            for task, error in one.restarted.items()
        }
        if restarted and status is HealthStatus.HEALTHY:
            status = HealthStatus.DEGRADED
            message = "restarted: " + "; ".join(f"{k} ({v})" for k, v in restarted.items())
        if died:
            status, message = HealthStatus.UNHEALTHY, f"died: {', '.join(died)}"
        consumers = [
            {
                "name": one.consumer.consumer_id,
                "topics": list(one.consumer.topics),
                "group": one.consumer.group,
                "active": one.is_running,
                "paused": one.is_paused,
                "in_flight": one.in_flight,
                "handled": one.handled,
                "restarted": one.restarted,
            }
            for one in self.subscriptions
        ]
        return replace(
            found,
            component=self.name,
            status=status,
            message=message,
            details={**(found.details or {}), "driver": self.driver.name, "consumers": consumers},
        )


def _with_headers(
    message: BusMessage, delay: float | None, ordering: str | None, fairness: str | None
) -> BusMessage:
    headers = dict(message.headers)
    if delay is not None:
        check_delay(delay)
        headers[DELIVER_AT] = repr(time.time() + delay)
    if ordering is not None:
        headers[ORDERING_KEY] = ordering
    if fairness is not None:
        headers[FAIRNESS_KEY] = fairness
    return replace(message, headers=headers)


def _name_of(handler: Callable[..., Any]) -> str:
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{name}-{uuid4().hex[:8]}"
