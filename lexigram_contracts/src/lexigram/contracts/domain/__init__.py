"""Contracts of the domain: events."""

from lexigram.contracts.domain.events import DomainEvent

__all__ = ["DomainEvent"]
