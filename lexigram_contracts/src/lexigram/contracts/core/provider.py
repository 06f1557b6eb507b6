"""When a provider boots relative to others, and the states it passes through."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ProviderPriority(IntEnum):
    """Boot order among providers that nothing else orders; lower boots first."""

    CRITICAL = 0
    INFRASTRUCTURE = 10
    SECURITY = 20
    NORMAL = 30
    DOMAIN = 35
    APPLICATION = 40
    PRESENTATION = 80
    COMMS = 90
    LOW = 100


class ProviderState(StrEnum):
    """Where a provider is in its life."""

    CREATED = "created"
    REGISTERED = "registered"
    BOOTED = "booted"
    FAILED = "failed"
    SHUTDOWN = "shutdown"
