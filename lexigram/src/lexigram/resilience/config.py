"""Section ``resilience``: named policies, and the Redis that shared state lives in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from attrs import Attribute, field, frozen
from attrs.validators import ge, gt, le, optional

from lexigram.config import BaseConfig, doc, secret
from lexigram.contracts.infra.resilience.types import (
    CircuitBreakerConfig,
    RetryConfig,
    RetryStrategy,
)


def _positive(_: object, attribute: Attribute[Any], value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{attribute.name} must be more than 0, or nothing at all")


@frozen(kw_only=True)
class RetrySettings:
    """When a policy tries again; which errors is decided in code."""

    max_attempts: int = field(default=3, validator=ge(1), metadata=doc("The first one counts."))
    base_delay: float = field(default=1.0, validator=ge(0), metadata=doc("Seconds."))
    max_delay: float = field(default=60.0, validator=ge(0), metadata=doc("Seconds."))
    backoff_factor: float = field(default=2.0, validator=gt(0))
    jitter: bool = field(default=True, metadata=doc("Draw each delay between 0 and its length."))
    strategy: RetryStrategy = RetryStrategy.EXPONENTIAL

    def as_config(self) -> RetryConfig:
        """The settings as the contract has them."""
        return RetryConfig(
            max_attempts=self.max_attempts,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            backoff_factor=self.backoff_factor,
            jitter=self.jitter,
            strategy=self.strategy,
        )


@frozen(kw_only=True)
class BreakerSettings:
    """When a policy stops calling. All times are seconds."""

    failure_threshold: int = field(default=5, validator=ge(1))
    recovery_timeout: float = field(default=60.0, validator=ge(0))
    success_threshold: int = field(default=3, validator=ge(1))
    timeout: float | None = field(default=30.0, validator=_positive)
    sliding_window_seconds: float = field(default=60.0, validator=gt(0))
    failure_rate_threshold: float = field(default=0.5, validator=[gt(0), le(1)])
    half_open_max: int = field(default=1, validator=ge(1))
    backend: Literal["memory", "redis"] = "memory"

    def as_config(self, name: str) -> CircuitBreakerConfig:
        """The settings as the contract has them."""
        return CircuitBreakerConfig(
            name=name,
            failure_threshold=self.failure_threshold,
            recovery_timeout=self.recovery_timeout,
            success_threshold=self.success_threshold,
            timeout=self.timeout,
            sliding_window_seconds=self.sliding_window_seconds,
            failure_rate_threshold=self.failure_rate_threshold,
            half_open_max=self.half_open_max,
            backend=self.backend,
        )


@frozen(kw_only=True)
class BulkheadSettings:
    """How many calls of a policy run and wait at once."""

    max_concurrent: int = field(default=10, validator=ge(1))
    max_waiting: int = field(default=0, validator=ge(0))


@frozen(kw_only=True)
class RateLimitSettings:
    """How many calls of a policy start per time."""

    rate: float = field(default=10.0, validator=gt(0), metadata=doc("Calls per ``per`` seconds."))
    per: float = field(default=1.0, validator=gt(0), metadata=doc("Seconds."))
    burst: int | None = field(
        default=None, validator=optional(ge(1)), metadata=doc("Calls at once; None: the rate.")
    )
    backend: Literal["memory", "redis"] = "memory"


@frozen(kw_only=True)
class PolicySettings:
    """One named policy: the protections it has; what is absent is not there."""

    rate_limit: RateLimitSettings | None = None
    bulkhead: BulkheadSettings | None = None
    retry: RetrySettings | None = None
    breaker: BreakerSettings | None = None
    timeout: float | None = field(
        default=None, validator=_positive, metadata=doc("Seconds of each attempt.")
    )

    @property
    def shares_state(self) -> bool:
        """True when a part of it lives in Redis."""
        parts = (self.rate_limit, self.breaker)
        return any(part is not None and part.backend == "redis" for part in parts)


@frozen(kw_only=True)
class ResilienceConfig(BaseConfig):
    """Section ``resilience``."""

    config_section: ClassVar[str] = "resilience"

    policies: Mapping[str, PolicySettings] = field(
        factory=dict, metadata=doc("Policies by name; the breaker of a policy has its name.")
    )
    redis_url: str | None = field(default=None, metadata=secret("Where shared state lives."))
    key_prefix: str = field(
        default="lexigram:resilience", metadata=doc("What the keys in Redis begin with.")
    )
