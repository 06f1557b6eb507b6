"""An event bus that delivers, and remembers what was published."""

from __future__ import annotations

from typing import Any, TypeVar

from lexigram.contracts.core.result import Result
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventError
from lexigram.events import EventBus

E = TypeVar("E", bound=DomainEvent)


class FakeEventBus(EventBus):
    """The real bus with a memory. Events are remembered also when a handler fails.

    It counts as a subscriber of everything, so code that asks ``has_subscribers`` before it
    builds an event builds it here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.published: list[DomainEvent] = []

    @property
    def is_idle(self) -> bool:
        """False: the memory listens."""
        return False

    async def publish(self, event: DomainEvent) -> Result[None, EventError]:
        """Remember the event, then deliver it."""
        self.published.append(event)
        return await super().publish(event)

    def has_subscribers(self, event_type: type[DomainEvent]) -> bool:
        """True: the memory listens."""
        return True

    def published_of_type(self, event_type: type[E]) -> list[E]:
        """Published events of this class and its subclasses, in order."""
        return [event for event in self.published if isinstance(event, event_type)]

    def assert_published(
        self, event_type: type[E], count: int | None = None, **attributes: Any
    ) -> list[E]:
        """The events of this class with these attributes: at least one, or exactly ``count``."""
        found = [event for event in self.published_of_type(event_type) if _has(event, attributes)]
        if len(found) == count or (count is None and found):
            return found
        wanted = _describe_wanted(event_type, attributes)
        many = "at least one" if count is None else str(count)
        raise AssertionError(
            f"expected {many} {wanted}, found {len(found)}; {self._describe_published()}"
        )

    def assert_published_once(self, event_type: type[E], **attributes: Any) -> E:
        """The one event of this class with these attributes."""
        return self.assert_published(event_type, 1, **attributes)[0]

    def assert_not_published(self, event_type: type[DomainEvent], **attributes: Any) -> None:
        """No event of this class has these attributes."""
        self.assert_published(event_type, 0, **attributes)

    def assert_events_in_order(self, *event_types: type[DomainEvent]) -> None:
        """Events of these classes were published one after the other; others may lie between."""
        rest = iter(self.published)
        for position, event_type in enumerate(event_types, 1):
            if not any(isinstance(event, event_type) for event in rest):
                order = " → ".join(kind.__name__ for kind in event_types)
                raise AssertionError(
                    f"expected {order}, but there is no {event_type.__name__} for place "
                    f"{position}; {self._describe_published()}"
                )

    def clear(self) -> None:
        """Forget what was published; handlers stay subscribed."""
        self.published.clear()

    def _describe_published(self) -> str:
        lines = "".join(f"\n  {event!r}" for event in self.published)
        return f"published were:{lines}" if lines else "nothing was published"


def _has(event: DomainEvent, attributes: dict[str, Any]) -> bool:
    missing = object()
    return all(getattr(event, name, missing) == value for name, value in attributes.items())


def _describe_wanted(event_type: type[DomainEvent], attributes: dict[str, Any]) -> str:
    facts = ", ".join(f"{name}={value!r}" for name, value in attributes.items())
    return f"{event_type.__name__}({facts})" if facts else event_type.__name__
