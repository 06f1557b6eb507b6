"""Events of workflows; each is built only when there is a listener."""

from __future__ import annotations

from dataclasses import dataclass

from lexigram.contracts.domain.events import DomainEvent


@dataclass(frozen=True, kw_only=True)
class WorkflowStartedEvent(DomainEvent):
    """A run began."""

    workflow_id: str
    workflow_name: str


@dataclass(frozen=True, kw_only=True)
class WorkflowCompletedEvent(DomainEvent):
    """A run reached its end."""

    workflow_id: str
    workflow_name: str


@dataclass(frozen=True, kw_only=True)
class WorkflowFailedEvent(DomainEvent):
    """A run ended without reaching its end."""

    workflow_id: str
    workflow_name: str
    error: str
