"""Events of resilience policies; each event is built only when there is a listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.infra.resilience.types import CircuitState


@dataclass(frozen=True, kw_only=True)
class CallRetried(DomainEvent):
    """An attempt failed; another one follows after ``delay`` seconds."""

    policy: str
    attempt: int
    delay: float
    # what the attempt raised; None when its result asked for another one
    error: str | None


@dataclass(frozen=True, kw_only=True)
class RetriesExhausted(DomainEvent):
    """The last allowed attempt failed too."""

    policy: str
    attempts: int
    error: str | None


@dataclass(frozen=True, kw_only=True)
class CircuitChanged(DomainEvent):
    """A circuit breaker went from one state to another, or saw that another process did that."""

    breaker: str
    old: CircuitState
    new: CircuitState


@dataclass(frozen=True, kw_only=True)
class CallRejected(DomainEvent):
    """A call was not made: the circuit is open, or the bulkhead is full."""

    by: Literal["breaker", "bulkhead"]
    name: str


@dataclass(frozen=True, kw_only=True)
class CallTimedOut(DomainEvent):
    """A call was cancelled because it took longer than allowed."""

    by: Literal["breaker", "timeout"]
    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CallDelayed(DomainEvent):
    """A rate limiter made a caller wait."""

    limiter: str
    permits: int
    seconds: float
