"""What users of the bus and authors of a complete queue see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.core.health import HealthCheckResult
    from lexigram.contracts.queue.types import BusMessage


@runtime_checkable
class QueueProtocol(Protocol):
    """Publish to topics and subscribe to them.

    Guaranteed, with AT_LEAST_ONCE: every group of a topic gets every message that was
    confirmed, again and again until a handler of the group returned or the message was set
    aside as a dead letter; within a group only one member has it at a time. Not guaranteed:
    order (unless an ordering key is used), once (unless EXACTLY_ONCE on SQL), and durability
    beyond what the broker promises.
    """

    async def connect(self) -> None:
        """Open the connection; a second call does nothing. Raises QueueError."""
        ...

    async def close(self) -> None:
        """Stop receiving, finish or hand back what is in flight, disconnect.

        Nothing is acknowledged that was not handled. A second call does nothing.
        """
        ...

    async def publish(self, topic: str, message: BusMessage) -> BusMessage:
        """Send the message; returns it as sent (topic, trace headers) once confirmed.

        Raises QueueFullError when the topic has no room, QueueError when the broker did not
        confirm: it may have the message all the same, so publishing again may double it,
        under the same id.
        """
        ...

    async def subscribe(
        self,
        topic: str,
        handler: Callable[[BusMessage], Awaitable[Any]],
        *,
        group: str = "default",
    ) -> None:
        """Call the handler for messages of the topic; ``*`` in the topic matches any text.

        A handler that returns has handled the message; one that raises gets it again later,
        with a delay that grows. Handlers of one group share the messages, every group gets
        all of them, from its creation on. Subscribing twice makes two members.
        """
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether the broker really answers within ``timeout`` seconds; never raises."""
        ...


@runtime_checkable
class MessageConsumerProtocol(Protocol):
    """Something that receives messages for as long as it is started."""

    async def start(self) -> None:
        """Begin to receive; a second call while running does nothing. Raises QueueError."""
        ...

    async def stop(self) -> None:
        """Receive no more and finish or hand back what is in flight.

        A second call, or one before start, does nothing.
        """
        ...
