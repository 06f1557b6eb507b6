"""The base of every domain event: who, what, when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID, uuid4


@dataclass(frozen=True, kw_only=True)
class DomainEvent:
    """Something that happened, named in the past tense.

    Subclasses are frozen, keyword-only dataclasses. ``event_type`` is the name of the class
    unless given. Ids are unique; ``occurred_at`` is aware, in UTC, and does not order events
    of different processes: ``sequence_number`` does that, within one aggregate.
    """

    event_id: UUID = field(default_factory=uuid4)
    occurred_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    event_type: str = ""
    aggregate_id: str | None = None
    aggregate_type: str | None = None
    sequence_number: int | None = None
    actor_id: str | None = None
    schema_version: int = 1

    def __post_init__(self) -> None:
        """Name the event after its class where no name was given."""
        if not self.event_type:
            object.__setattr__(self, "event_type", type(self).__name__)

    def for_aggregate(self, aggregate_id: str, aggregate_type: str) -> Self:
        """The same event, with the same id, attached to an aggregate."""
        return replace(self, aggregate_id=aggregate_id, aggregate_type=aggregate_type)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; id and time as text, fields of subclasses as they are."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        data["event_id"] = str(self.event_id)
        data["occurred_at"] = self.occurred_at.isoformat()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``to_dict``: gives an equal event. An unknown key is a TypeError."""
        values = dict(data)
        if isinstance(values.get("event_id"), str):
            values["event_id"] = UUID(values["event_id"])
        if isinstance(values.get("occurred_at"), str):
            values["occurred_at"] = datetime.fromisoformat(values["occurred_at"])
        return cls(**values)
