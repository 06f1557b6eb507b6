"""One attempt of a handler: filters, span, time limit, transaction, middleware, handler.

The only place where a handler is called. ``around`` is where an inbox puts its transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from lexigram.contracts.queue import BusMessage, Delivery
from lexigram.queue.errors import HandlerTimeoutError

if TYPE_CHECKING:
    from lexigram.contracts.core.hooks import HookRegistryProtocol
    from lexigram.contracts.observability.tracing import TracerProtocol

CONSUMING: Final = "message.consuming"  # filters of this name may change or refuse a message

# Calls the handler; of a batch, only for the messages of these ids (None: for all).
Call: TypeAlias = Callable[[Collection[str] | None], Awaitable[None]]
# Runs the attempt inside something, or not at all: ``await around(deliveries, call)``.
Around: TypeAlias = Callable[[Sequence[Delivery], Call], Awaitable[None]]


class Attempts:
    """Calls the handler of one consumer, skipping what is not configured.

    The handler takes one message; that of a batch consumer takes a list (``run_batch``).
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *,
        system: str,
        hooks: HookRegistryProtocol | None = None,
        tracer: TracerProtocol | None = None,
        timeout: float | None = None,
        around: Around | None = None,
    ) -> None:
        self._handler = handler
        self._system, self._hooks, self._tracer = system, hooks, tracer
        self._timeout, self._around = timeout, around
        self._is_bare = tracer is None and timeout is None and around is None

    def run(self, delivery: Delivery, message: BusMessage) -> Awaitable[Any]:
        """Handle one message; raises what the handler raises."""
        hooks = self._hooks
        if self._is_bare and (hooks is None or not hooks.has_filter(CONSUMING)):
            return self._handler(message)
        return self._run_traced((delivery,), message, lambda _: self._call(message))

    def run_batch(
        self, deliveries: Sequence[Delivery], messages: Sequence[BusMessage]
    ) -> Awaitable[Any]:
        """Handle several messages by one call; it succeeds or fails for all of them."""
        return self._run_traced(
            deliveries, messages[0], lambda ids: self._call_batch(messages, ids)
        )

    def _is_filtered(self) -> bool:
        return self._hooks is not None and self._hooks.has_filter(CONSUMING)

    async def _run_traced(
        self, deliveries: Sequence[Delivery], first: BusMessage, call: Call
    ) -> None:
        if self._tracer is None:
            await self._run_limited(deliveries, call)
            return
        parent = self._tracer.extract_context(first.headers)
        facts = {"messaging.destination": first.topic, "messaging.system": self._system}
        with self._tracer.start_span(f"queue.receive {first.topic}", facts, parent):
            await self._run_limited(deliveries, call)

    async def _run_limited(self, deliveries: Sequence[Delivery], call: Call) -> None:
        if self._timeout is None:
            await self._run_inside(deliveries, call)
            return
        with anyio.move_on_after(self._timeout) as scope:
            await self._run_inside(deliveries, call)
        if scope.cancelled_caught:
            first = deliveries[0].message
            raise HandlerTimeoutError(
                f"the handler of message {first.id} took more than {self._timeout:g} s",
                topic=first.topic,
                details={"message_id": first.id, "timeout": self._timeout},
                hint="make it faster, split the work, or raise handler_timeout",
            )

    async def _run_inside(self, deliveries: Sequence[Delivery], call: Call) -> None:
        if self._around is None:
            await call(None)
        else:
            await self._around(deliveries, call)

    async def _call(self, message: BusMessage) -> None:
        await self._handler(await self._apply_filters(message))

    async def _call_batch(
        self, messages: Sequence[BusMessage], ids: Collection[str] | None
    ) -> None:
        if ids is not None:
            by_id = {message.id: message for message in messages if message.id in ids}
            messages = list(by_id.values())
        await self._handler([await self._apply_filters(message) for message in messages])

    async def _apply_filters(self, message: BusMessage) -> BusMessage:
        if self._hooks is None or not self._is_filtered():
            return message
        return await self._hooks.apply_filter(CONSUMING, message, topic=message.topic)
