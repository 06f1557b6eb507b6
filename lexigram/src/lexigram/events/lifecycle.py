"""What an application tells about its own life; emitted by the application when there is a listener."""

from __future__ import annotations

from dataclasses import dataclass

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.domain.events import DomainEvent


@dataclass(frozen=True, kw_only=True)
class ApplicationStarting(DomainEvent):
    """Providers are about to register and boot."""

    app_name: str


@dataclass(frozen=True, kw_only=True)
class ApplicationStarted(DomainEvent):
    """Every provider has booted and the application runs."""

    app_name: str
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class ApplicationStopping(DomainEvent):
    """Shutdown begins; providers still work."""

    app_name: str


@dataclass(frozen=True, kw_only=True)
class ApplicationStopped(DomainEvent):
    """Every provider has been shut down."""

    app_name: str
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class ProviderRegistered(DomainEvent):
    """A provider has recorded its bindings."""

    provider: str


@dataclass(frozen=True, kw_only=True)
class ProviderBooted(DomainEvent):
    """A provider has booted."""

    provider: str
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class HealthCheckCompleted(DomainEvent):
    """A health check of the whole application has an answer."""

    status: HealthStatus
    duration_ms: float
