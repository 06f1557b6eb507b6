"""Contracts of the core: health, providers, container, hooks, results, errors, clock, locks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol
    from lexigram.contracts.core.di import (
        BootContainerProtocol,
        ContainerRegistrarProtocol,
        ContainerResolverProtocol,
        ScopeProtocol,
        ServiceScope,
    )
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
        worst,
    )
    from lexigram.contracts.core.hooks import (
        HookPriority,
        HookRegistryProtocol,
        NoOpHookRegistry,
    )
    from lexigram.contracts.core.idempotency import (
        IdempotencyError,
        IdempotencyRecord,
        IdempotencyStatus,
        IdempotencyStoreProtocol,
    )
    from lexigram.contracts.core.lock import (
        DistributedLockProtocol,
        LockConflictError,
        LockError,
        LockLostError,
    )
    from lexigram.contracts.core.provider import ProviderPriority, ProviderState
    from lexigram.contracts.core.result import Err, Ok, Result, UnwrapError
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.core.clock": ["ClockProtocol"],
            "lexigram.contracts.core.di": [
                "BootContainerProtocol",
                "ContainerRegistrarProtocol",
                "ContainerResolverProtocol",
                "ScopeProtocol",
                "ServiceScope",
            ],
            "lexigram.contracts.core.errors": [
                "ConfigurationError",
                "DomainError",
                "InfrastructureError",
                "LexigramError",
                "NotFoundError",
            ],
            "lexigram.contracts.core.health": [
                "AggregateHealthResult",
                "HealthCheckCategory",
                "HealthCheckResult",
                "HealthStatus",
                "worst",
            ],
            "lexigram.contracts.core.hooks": [
                "HookPriority",
                "HookRegistryProtocol",
                "NoOpHookRegistry",
            ],
            "lexigram.contracts.core.idempotency": [
                "IdempotencyError",
                "IdempotencyRecord",
                "IdempotencyStatus",
                "IdempotencyStoreProtocol",
            ],
            "lexigram.contracts.core.lock": [
                "DistributedLockProtocol",
                "LockConflictError",
                "LockError",
                "LockLostError",
            ],
            "lexigram.contracts.core.provider": ["ProviderPriority", "ProviderState"],
            "lexigram.contracts.core.result": ["Err", "Ok", "Result", "UnwrapError"],
        },
    )

__all__ = [
    "AggregateHealthResult",
    "BootContainerProtocol",
    "ClockProtocol",
    "ConfigurationError",
    "ContainerRegistrarProtocol",
    "ContainerResolverProtocol",
    "DistributedLockProtocol",
    "DomainError",
    "Err",
    "HealthCheckCategory",
    "HealthCheckResult",
    "HealthStatus",
    "HookPriority",
    "HookRegistryProtocol",
    "IdempotencyError",
    "IdempotencyRecord",
    "IdempotencyStatus",
    "IdempotencyStoreProtocol",
    "InfrastructureError",
    "LexigramError",
    "LockConflictError",
    "LockError",
    "LockLostError",
    "NoOpHookRegistry",
    "NotFoundError",
    "Ok",
    "ProviderPriority",
    "ProviderState",
    "Result",
    "ScopeProtocol",
    "ServiceScope",
    "UnwrapError",
    "worst",
]
