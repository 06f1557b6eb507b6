"""Protection around calls: retry, circuit breaker, time-out, bulkhead, rate limit, pipelines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.infra.resilience import (
        BulkheadProtocol,
        CircuitBreakerProtocol,
        CircuitBreakerRegistryProtocol,
        RateLimiterProtocol,
        ResiliencePipelineProtocol,
        RetryPolicyProtocol,
        TimeoutProtocol,
    )
    from lexigram.resilience.breaker import CircuitBreaker
    from lexigram.resilience.bulkheads import Bulkhead
    from lexigram.resilience.config import (
        BreakerSettings,
        BulkheadSettings,
        PolicySettings,
        RateLimitSettings,
        ResilienceConfig,
        RetrySettings,
    )
    from lexigram.resilience.decorators import (
        bulkhead,
        circuit_breaker,
        rate_limit,
        resilient,
        retry,
        timeout,
    )
    from lexigram.resilience.events import (
        CallDelayed,
        CallRejected,
        CallRetried,
        CallTimedOut,
        CircuitChanged,
        RetriesExhausted,
    )
    from lexigram.resilience.limiter import RateLimiter
    from lexigram.resilience.module import ResilienceModule
    from lexigram.resilience.pipeline import ResiliencePipeline
    from lexigram.resilience.policies import ResiliencePolicies
    from lexigram.resilience.provider import ResilienceProvider
    from lexigram.resilience.redis import RedisState
    from lexigram.resilience.registry import CircuitBreakerRegistry
    from lexigram.resilience.retrying import RetryPolicy
    from lexigram.resilience.timeouts import Timeout

    # Type checkers prove here that each class satisfies its contract.
    _bulkhead: type[BulkheadProtocol] = Bulkhead
    _breaker: type[CircuitBreakerProtocol] = CircuitBreaker
    _breakers: type[CircuitBreakerRegistryProtocol] = CircuitBreakerRegistry
    _limiter: type[RateLimiterProtocol] = RateLimiter
    _pipeline: type[ResiliencePipelineProtocol] = ResiliencePipeline
    _retry: type[RetryPolicyProtocol] = RetryPolicy
    _timeout: type[TimeoutProtocol] = Timeout
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.resilience.breaker": ["CircuitBreaker"],
            "lexigram.resilience.bulkheads": ["Bulkhead"],
            "lexigram.resilience.config": [
                "BreakerSettings",
                "BulkheadSettings",
                "PolicySettings",
                "RateLimitSettings",
                "ResilienceConfig",
                "RetrySettings",
            ],
            "lexigram.resilience.decorators": [
                "bulkhead",
                "circuit_breaker",
                "rate_limit",
                "resilient",
                "retry",
                "timeout",
            ],
            "lexigram.resilience.events": [
                "CallDelayed",
                "CallRejected",
                "CallRetried",
                "CallTimedOut",
                "CircuitChanged",
                "RetriesExhausted",
            ],
            "lexigram.resilience.limiter": ["RateLimiter"],
            "lexigram.resilience.module": ["ResilienceModule"],
            "lexigram.resilience.pipeline": ["ResiliencePipeline"],
            "lexigram.resilience.policies": ["ResiliencePolicies"],
            "lexigram.resilience.provider": ["ResilienceProvider"],
            "lexigram.resilience.redis": ["RedisState"],
            "lexigram.resilience.registry": ["CircuitBreakerRegistry"],
            "lexigram.resilience.retrying": ["RetryPolicy"],
            "lexigram.resilience.timeouts": ["Timeout"],
        },
    )

__all__ = [
    "BreakerSettings",
    "Bulkhead",
    "BulkheadSettings",
    "CallDelayed",
    "CallRejected",
    "CallRetried",
    "CallTimedOut",
    "CircuitBreaker",
    "CircuitBreakerRegistry",
    "CircuitChanged",
    "PolicySettings",
    "RateLimitSettings",
    "RateLimiter",
    "RedisState",
    "ResilienceConfig",
    "ResilienceModule",
    "ResiliencePipeline",
    "ResiliencePolicies",
    "ResilienceProvider",
    "RetriesExhausted",
    "RetryPolicy",
    "RetrySettings",
    "Timeout",
    "bulkhead",
    "circuit_breaker",
    "rate_limit",
    "resilient",
    "retry",
    "timeout",
]
