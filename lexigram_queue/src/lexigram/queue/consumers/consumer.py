"""A consumer: a class with a topic and a handler; the bus does the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from lexigram.contracts.queue import BusMessage, DeliveryGuarantee, NotConnectedError, QueueProtocol
from lexigram.queue.consumers.binding import Binding, bind
from lexigram.queue.options import RateLimit, RetryPolicy

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol
    from lexigram.queue.core.pipeline import MiddlewareBase


class MessageConsumer:
    """Subclass it, set ``topic`` and write ``handle`` (or ``handle_batch``).

    The first parameter of ``handle`` says what it takes: a ``BusMessage``, or the payload,
    decoded to the annotated class. Further parameters are injected for each message::

        class Shipping(MessageConsumer):
            topic = "orders.created"

            async def handle(self, order: Order, stock: Stock) -> None: ...

    A handler that returns has handled the message; one that raises gets it again later, until
    its retries are used up. ``QueueModule.scope(Shipping)`` starts it with the application.
    What is None is as the backend has it.
    """

    # A topic, several, or patterns with ``*``.
    topic: str | Sequence[str] = ""
    # Members of a group share its messages; None: the qualified name of the class.
    group: str | None = None
    # The backend by name; None: the primary one.
    backend: str | None = None
    prefetch: int | None = None
    concurrency: int | None = None
    handler_timeout: float | None = None
    retry: RetryPolicy | None = None
    delivery_guarantee: DeliveryGuarantee | None = None
    # For ``handle_batch``: how many messages it takes at most.
    batch_size: int = 100
    # How many messages of one fairness key (a tenant) may run at a time.
    max_in_flight_per_key: int | None = None
    rate_limit: RateLimit | None = None
    middleware: Sequence[MiddlewareBase] = ()
    # What payloads are decoded to, for a ``handle`` that takes the whole message.
    payload_type: Any = Any

    _queue: QueueProtocol | None = None  # a subclass with a constructor of its own may have none
    _binding: Binding | None = None

    def __init__(self, queue: QueueProtocol) -> None:
        self._queue = queue

    if TYPE_CHECKING:  # for type checkers any parameters will do: the first says what is wanted
        handle: Callable[..., Coroutine[Any, Any, None]]
        handle_batch: Callable[..., Coroutine[Any, Any, None]]
    else:

        async def handle(self, message: BusMessage) -> None:
            """Handle one message."""
            raise NotImplementedError

        async def handle_batch(self, messages: Sequence[BusMessage]) -> None:
            """Handle several messages at once, instead of ``handle``; all succeed or all fail."""
            raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """True between start and stop."""
        return self._binding is not None and self._binding.is_running

    @property
    def binding(self) -> Binding | None:
        """Its binding to the queue, once prepared: to pause, resume and inspect it."""
        return self._binding

    async def prepare(
        self,
        queue: QueueProtocol | None = None,
        container: ContainerResolverProtocol | None = None,
    ) -> None:
        """Make its groups exist, without receiving yet; raises what cannot be done."""
        chosen = queue or self._queue
        if chosen is None:
            raise NotConnectedError(
                f"{type(self).__qualname__} has no queue",
                hint="call super().__init__(queue), or let QueueModule.scope() start it",
            )
        self._binding = await bind(self, chosen, container)

    async def start(self) -> None:
        """Begin to receive; a second call while running does nothing. Raises QueueError."""
        if self.is_running:
            return
        if self._binding is None:
            await self.prepare()
        assert self._binding is not None
        await self._binding.start()

    async def stop(self) -> None:
        """Receive no more, finish or hand back what is in flight; twice does nothing."""
        binding, self._binding = self._binding, None
        if binding is not None:
            await binding.stop()
