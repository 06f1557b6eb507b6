"""Bind a consumer to a queue: read what its handler takes, and subscribe it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from attrs import frozen

from lexigram.contracts.queue import BusMessage, QueueError, QueueProtocol
from lexigram.queue.bus import BusQueue
from lexigram.queue.options import ConsumerOptions
from lexigram.serialization import get_codec

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol
    from lexigram.queue.consumers.consumer import MessageConsumer
    from lexigram.queue.runtime.subscription import Subscription

Handle = Callable[[Any], Awaitable[Any]]


class Binding:
    """A consumer on its queue: on ours all options hold, on others what QueueProtocol has."""

    def __init__(
        self, queue: QueueProtocol, options: ConsumerOptions, subscription: Subscription | None
    ) -> None:
        self.queue, self.options, self.subscription = queue, options, subscription
        self.is_running = False
        self._handler: Handle | None = None

    async def start(self) -> None:
        """Begin to receive."""
        self.is_running = True
        if self.subscription is not None:
            await self.subscription.start()
        elif self._handler is not None:
            for topic in self.options.topics:
                await self.queue.subscribe(
                    topic, self._handle_while_running, group=self.options.group
                )

    async def stop(self) -> None:
        """Receive no more."""
        self.is_running = False
        if self.subscription is not None:
            await self.subscription.stop()
            assert isinstance(self.queue, BusQueue)
            self.queue.forget(self.subscription)

    def serve(self, handler: Handle) -> None:
        """On a queue of others: what start subscribes."""
        self._handler = handler

    async def _handle_while_running(self, message: BusMessage) -> None:
        assert self._handler is not None
        if not self.is_running:
            # QueueProtocol has no way to unsubscribe. Raising keeps the message: it was not handled.
            raise QueueError(f"consumer {self.options.consumer_id} is stopped", topic=message.topic)
        await self._handler(message)


async def bind(
    consumer: MessageConsumer,
    queue: QueueProtocol,
    container: ContainerResolverProtocol | None,
) -> Binding:
    """Prepare the consumer on the queue; its groups exist afterwards."""
    spec = _handler_spec(consumer)
    handle = _inject(spec, container)
    options = _options(consumer, spec)
    if isinstance(queue, BusQueue):
        return Binding(queue, options, await queue.prepare(options, _taking(spec, handle)))
    if spec.is_batch:
        raise QueueError(
            f"{options.consumer_id} takes batches, which {type(queue).__name__} does not give",
            hint="write handle() instead of handle_batch()",
        )
    binding = Binding(queue, options, None)
    binding.serve(_decoding(options.payload_type, _taking(spec, handle)))
    return binding


@frozen(kw_only=True)
class _HandlerSpec:
    """The parameters of the handler of a consumer."""

    method: Callable[..., Awaitable[Any]]
    parameter: str
    payload_type: Any  # what payloads are decoded to
    takes_message: bool  # the whole message, not its payload
    injects: bool  # has further parameters
    is_batch: bool


def handler_of(kind: type[MessageConsumer]) -> tuple[Callable[..., Awaitable[Any]], str]:
    """The handler of a class of consumers, and its parameter for the message."""
    from lexigram.queue.consumers.consumer import MessageConsumer

    is_batch = kind.handle_batch is not MessageConsumer.handle_batch
    if not is_batch and kind.handle is MessageConsumer.handle:
        raise TypeError(f"{kind.__qualname__} has neither handle() nor handle_batch()")
    handler: Any = kind.handle_batch if is_batch else kind.handle
    _, first, *_ = inspect.signature(handler).parameters
    return handler, first


def _handler_spec(consumer: MessageConsumer) -> _HandlerSpec:
    handler, first = handler_of(type(consumer))
    is_batch = handler is not type(consumer).handle
    method: Any = consumer.handle_batch if is_batch else consumer.handle
    others = len(inspect.signature(method).parameters) > 1
    annotation = get_type_hints(method).get(first, BusMessage)
    if is_batch:
        annotation = (get_args(annotation) or (BusMessage,))[0]
    takes_message = annotation is BusMessage
    return _HandlerSpec(
        method=method,
        parameter=first,
        payload_type=consumer.payload_type if takes_message else annotation,
        takes_message=takes_message,
        injects=others,
        is_batch=is_batch,
    )


def _inject(spec: _HandlerSpec, container: ContainerResolverProtocol | None) -> Handle:
    if not spec.injects or container is None:
        return spec.method  # no scope for a handler that asks for nothing
    entry: Any = container.entry(spec.method, given=(spec.parameter,))  # type: ignore[call-arg]
    return cast("Handle", entry)


def _taking(spec: _HandlerSpec, handle: Handle) -> Handle:
    if spec.takes_message:
        return handle
    if spec.is_batch:
        return lambda messages: handle([message.payload for message in messages])
    return lambda message: handle(message.payload)


def _options(consumer: MessageConsumer, spec: _HandlerSpec) -> ConsumerOptions:
    kind = type(consumer)
    name = f"{kind.__module__}.{kind.__qualname__}"
    topic = consumer.topic
    return ConsumerOptions(
        topics=(topic,) if isinstance(topic, str) else tuple(topic),
        group=consumer.group or name,
        consumer_id=name,
        prefetch=consumer.prefetch,
        concurrency=consumer.concurrency,
        handler_timeout=consumer.handler_timeout,
        retry=consumer.retry,
        delivery_guarantee=consumer.delivery_guarantee,
        batch_size=max(2, consumer.batch_size) if spec.is_batch else 1,
        max_in_flight_per_key=consumer.max_in_flight_per_key,
        rate_limit=consumer.rate_limit,
        middleware=consumer.middleware,
        payload_type=spec.payload_type,
    )


def _decoding(kind: Any, handle: Handle) -> Handle:
    """On a queue of others payloads come as its own codec made them."""
    if kind is Any:
        return handle
    codec = get_codec()

    async def decode_and_handle(message: BusMessage) -> None:
        payload = message.payload
        if not (isinstance(kind, type) and isinstance(payload, kind)):
            data = payload if isinstance(payload, bytes) else codec.encode(payload)
            message = replace(message, payload=codec.decode(data, kind))
        await handle(message)

    return decode_and_handle
