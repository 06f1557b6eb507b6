"""Events of schedules; each event is built only when there is a listener."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lexigram.contracts.domain.events import DomainEvent


@dataclass(frozen=True, kw_only=True)
class ScheduleFired(DomainEvent):
    """A tick was fired and committed, by this process."""

    schedule: str
    tick: datetime
    manual: bool
    # the id of the job or message; None for a callback, which runs after this
    reference: str | None


@dataclass(frozen=True, kw_only=True)
class ScheduleMissed(DomainEvent):
    """Ticks were too late and dropped by the misfire policy."""

    schedule: str
    first: datetime
    last: datetime
    # counted up to 1000
    count: int
