"""Registers policies and breakers with the container and reports on them."""

from __future__ import annotations

import anyio

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError, InfrastructureError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.resilience.protocols import CircuitBreakerRegistryProtocol
from lexigram.contracts.infra.resilience.types import CircuitState
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.resilience.config import ResilienceConfig
from lexigram.resilience.policies import ResiliencePolicies
from lexigram.resilience.redis import RedisState
from lexigram.resilience.registry import CircuitBreakerRegistry


class ResilienceProvider(Provider):
    """Binds the registry of breakers and the named policies."""

    name = "resilience"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = "resilience"
    config_model = ResilienceConfig

    config: ResilienceConfig

    def __init__(self, config: ResilienceConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._redis: RedisState | None = None
        self._breakers: CircuitBreakerRegistry | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind configuration, registry and policies."""
        self._redis = _redis_of(self.config)
        container.singleton(ResilienceConfig, self.config)
        container.singleton(CircuitBreakerRegistry, self._make_breakers)
        container.singleton(CircuitBreakerRegistryProtocol, _as_contract)
        container.singleton(ResiliencePolicies, self._make_policies)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the policies now: a wrong setting is an error of the start."""
        await container.resolve(ResiliencePolicies)
        self._breakers = await container.resolve(CircuitBreakerRegistry)

    async def shutdown(self) -> None:
        """Give the connections to Redis back."""
        if self._redis is not None:
            await self._redis.aclose()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """DEGRADED while a circuit is not closed or Redis does not answer; calls still work."""
        states = self._states()
        broken = [name for name, state in states.items() if state is not CircuitState.CLOSED]
        problem = await self._redis_problem(timeout)
        notes = [f"circuit {name} is {states[name].value}" for name in broken]
        if problem is not None:
            notes.append("redis does not answer: this process guards its calls alone")
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.DEGRADED if notes else HealthStatus.HEALTHY,
            message="; ".join(notes) or f"{len(states)} circuits, all closed",
            error=problem,
            details={"circuits": {name: state.value for name, state in states.items()}},
        )

    def _states(self) -> dict[str, CircuitState]:
        breakers = self._breakers
        if breakers is None:
            return {}
        found = ((name, breakers.get(name)) for name in breakers.list_breakers())
        return {name: breaker.state for name, breaker in found if breaker is not None}

    async def _redis_problem(self, timeout: float) -> str | None:
        if self._redis is None:
            return None
        try:
            with anyio.fail_after(timeout):
                await self._redis.ping()
        except (InfrastructureError, TimeoutError) as error:
            return str(error) or f"no answer within {timeout:g} s"
        return None

    def _make_breakers(
        self, metrics: MetricsProtocol, events: EventBusProtocol
    ) -> CircuitBreakerRegistry:
        return CircuitBreakerRegistry(shared=self._redis, metrics=metrics, events=events)

    def _make_policies(
        self, breakers: CircuitBreakerRegistry, metrics: MetricsProtocol, events: EventBusProtocol
    ) -> ResiliencePolicies:
        return ResiliencePolicies(
            self.config, breakers, shared=self._redis, metrics=metrics, events=events
        )


def _as_contract(breakers: CircuitBreakerRegistry) -> CircuitBreakerRegistryProtocol:
    return breakers


def _redis_of(config: ResilienceConfig) -> RedisState | None:
    if config.redis_url is not None:
        return RedisState(config.redis_url, prefix=config.key_prefix)
    sharing = [name for name, policy in config.policies.items() if policy.shares_state]
    if sharing:
        raise ConfigurationError(
            f"policies {', '.join(sharing)} share state over redis, but no redis_url is set",
            hint="set resilience.redis_url, or take backend 'memory'",
        )
    return None
