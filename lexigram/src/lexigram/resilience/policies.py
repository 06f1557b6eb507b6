"""Named pipelines, made from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience.errors import ResilienceError
from lexigram.resilience.bulkheads import Bulkhead
from lexigram.resilience.config import PolicySettings, ResilienceConfig
from lexigram.resilience.limiter import RateLimiter
from lexigram.resilience.pipeline import ResiliencePipeline
from lexigram.resilience.retrying import RetryPolicy
from lexigram.resilience.timeouts import Timeout

if TYPE_CHECKING:
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.resilience.redis import RedisState
    from lexigram.resilience.registry import CircuitBreakerRegistry


class ResiliencePolicies:
    """The policies of the application: ``await policies.get("payments").execute(func)``."""

    def __init__(
        self,
        config: ResilienceConfig,
        breakers: CircuitBreakerRegistry,
        *,
        shared: RedisState | None = None,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        self._breakers, self._shared = breakers, shared
        self._watchers: dict[str, Any] = {"metrics": metrics, "events": events}
        self._pipelines = {
            name: self._pipeline(name, settings) for name, settings in config.policies.items()
        }

    def get(self, name: str) -> ResiliencePipeline:
        """The pipeline of this name; every caller gets the same one."""
        if name not in self._pipelines:
            known = ", ".join(sorted(self._pipelines)) or "none"
            raise ConfigurationError(
                f"no resilience policy is called {name!r}",
                details={"name": name, "known": sorted(self._pipelines)},
                hint=f"add it under resilience.policies; there are: {known}",
            )
        return self._pipelines[name]

    def names(self) -> Sequence[str]:
        """The names, in the order of the configuration."""
        return list(self._pipelines)

    def _pipeline(self, name: str, policy: PolicySettings) -> ResiliencePipeline:
        pipeline = ResiliencePipeline()
        if policy.rate_limit is not None:
            limit = policy.rate_limit
            shared = self._shared if limit.backend == "redis" else None
            pipeline.add(
                RateLimiter(
                    limit.rate,
                    limit.per,
                    burst=limit.burst,
                    name=name,
                    shared=shared,
                    **self._watchers,
                )
            )
        if policy.bulkhead is not None:
            room = policy.bulkhead
            pipeline.add(
                Bulkhead(
                    room.max_concurrent,
                    max_waiting=room.max_waiting,
                    name=name,
                    **self._watchers,
                )
            )
        if policy.retry is not None:
            # What another protection refused is not tried again: it would be refused again.
            config = replace(policy.retry.as_config(), abort_on=(ResilienceError,))
            pipeline.add(RetryPolicy(config, name=name, **self._watchers))
        if policy.breaker is not None:
            pipeline.add(self._breakers.ensure(name, policy.breaker.as_config(name)))
        if policy.timeout is not None:
            pipeline.add(Timeout(policy.timeout, name=name, **self._watchers))
        return pipeline
