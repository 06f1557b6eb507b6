"""Tell other parts of this process that something happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from lexigram.contracts.core.result import Ok, Result

if TYPE_CHECKING:
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.errors import EventError

E_contra = TypeVar("E_contra", contravariant=True)


@runtime_checkable
class EventHandlerProtocol(Protocol[E_contra]):
    """An object that reacts to events; a plain function, sync or async, serves as well."""

    async def handle(self, event: E_contra, /) -> Result[Any, Any] | None:
        """React. An exception or an Err is a failure; the bus reports it and goes on."""
        ...


@runtime_checkable
class EventBusProtocol(Protocol):
    """Delivers events to the handlers of this process.

    Guaranteed: every handler subscribed to the event's class, or to a base of it, when
    ``publish`` is called gets the event once. Not guaranteed: durability (a crash loses what
    was not delivered), retries, and an order between handlers. Use the message bus
    (``lexigram.contracts.queue``) for those.
    """

    async def publish(self, event: DomainEvent) -> Result[None, EventError]:
        """Deliver and wait for all handlers.

        A failing handler does not keep the event from the others: the answer is then one
        ``Err(EventError)``. Without handlers it is Ok. Publishing the same event again
        delivers it again. Never raises except for cancellation.
        """
        ...

    def subscribe(
        self,
        event_type: type[DomainEvent],
        handler: EventHandlerProtocol[Any] | Callable[[Any], Any],
    ) -> None:
        """Deliver events of this class and its subclasses to the handler.

        The same pair subscribed a second time changes nothing: one event, one call.
        """
        ...

    def unsubscribe(
        self,
        event_type: type[DomainEvent],
        handler: EventHandlerProtocol[Any] | Callable[[Any], Any],
    ) -> bool:
        """Stop delivering; False when the pair was not subscribed.

        A delivery already under way is finished.
        """
        ...

    def has_subscribers(self, event_type: type[DomainEvent]) -> bool:
        """True when an event of this class has a subscriber; ask before building one."""
        ...


class NoOpEventBus:
    """A bus without listeners: what a library uses when the application has none."""

    async def publish(self, event: DomainEvent) -> Result[None, EventError]:
        """Ok: nobody listens, so nobody fails."""
        return Ok(None)

    def subscribe(
        self,
        event_type: type[DomainEvent],
        handler: EventHandlerProtocol[Any] | Callable[[Any], Any],
    ) -> None:
        """Ignored."""

    def unsubscribe(
        self,
        event_type: type[DomainEvent],
        handler: EventHandlerProtocol[Any] | Callable[[Any], Any],
    ) -> bool:
        """False: nothing is ever subscribed."""
        return False

    def has_subscribers(self, event_type: type[DomainEvent]) -> bool:
        """False."""
        return False
