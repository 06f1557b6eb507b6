"""Contracts of resilience: retry, circuit breaker, bulkhead, rate limit."""

from lexigram.contracts.infra.resilience.errors import (
    BulkheadError,
    CircuitOpenError,
    ResilienceError,
    RetryExhaustedError,
)
from lexigram.contracts.infra.resilience.protocols import (
    BulkheadProtocol,
    CircuitBreakerProtocol,
    CircuitBreakerRegistryProtocol,
    RateLimiterProtocol,
    ResiliencePipelineProtocol,
    RetryPolicyProtocol,
    TimeoutProtocol,
)
from lexigram.contracts.infra.resilience.types import (
    CircuitBreakerConfig,
    CircuitState,
    RetryConfig,
    RetryStrategy,
    TimeoutConfig,
)

__all__ = [
    "BulkheadError",
    "BulkheadProtocol",
    "CircuitBreakerConfig",
    "CircuitBreakerProtocol",
    "CircuitBreakerRegistryProtocol",
    "CircuitOpenError",
    "CircuitState",
    "RateLimiterProtocol",
    "ResilienceError",
    "ResiliencePipelineProtocol",
    "RetryConfig",
    "RetryExhaustedError",
    "RetryPolicyProtocol",
    "RetryStrategy",
    "TimeoutConfig",
    "TimeoutProtocol",
]
