"""Contracts of the core: health, providers, container, hooks, results, errors."""

from lexigram.contracts.core.errors import (
    ConfigurationError,
    DomainError,
    InfrastructureError,
    LexigramError,
    NotFoundError,
)
from lexigram.contracts.core.health import (
    AggregateHealthResult,
    HealthCheckCategory,
    HealthCheckResult,
    HealthStatus,
)
from lexigram.contracts.core.provider import ProviderPriority, ProviderState

__all__ = [
    "AggregateHealthResult",
    "ConfigurationError",
    "DomainError",
    "HealthCheckCategory",
    "HealthCheckResult",
    "HealthStatus",
    "InfrastructureError",
    "LexigramError",
    "NotFoundError",
    "ProviderPriority",
    "ProviderState",
]
