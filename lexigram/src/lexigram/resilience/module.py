"""Resilience as a module: ``ResilienceModule.configure(...)`` once at the root."""

from __future__ import annotations

from lexigram.contracts.infra.resilience.protocols import CircuitBreakerRegistryProtocol
from lexigram.di import DynamicModule, Module, module
from lexigram.resilience.config import ResilienceConfig
from lexigram.resilience.policies import ResiliencePolicies
from lexigram.resilience.provider import ResilienceProvider
from lexigram.resilience.registry import CircuitBreakerRegistry

_EXPORTS = (
    ResilienceConfig,
    CircuitBreakerRegistry,
    CircuitBreakerRegistryProtocol,
    ResiliencePolicies,
)


@module(providers=[ResilienceProvider], exports=_EXPORTS, is_global=True)
class ResilienceModule(Module):
    """Named policies and breakers; the bare class reads section ``resilience``."""

    @classmethod
    def configure(cls, config: ResilienceConfig | None = None) -> DynamicModule:
        """With an explicit configuration, or with section ``resilience`` when None."""
        return DynamicModule(
            module=cls, providers=[ResilienceProvider(config)], exports=_EXPORTS, is_global=True
        )

    @classmethod
    def stub(cls, config: ResilienceConfig | None = None) -> DynamicModule:
        """For tests: no file or variable is read, and nothing is shared over Redis by itself."""
        return cls.configure(ResilienceConfig() if config is None else config)
