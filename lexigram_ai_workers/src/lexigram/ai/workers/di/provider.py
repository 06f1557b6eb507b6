"""Registers the AI workers with the container and reports on them."""

from __future__ import annotations

from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.constants import CONFIG_SECTION
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.di import Provider, ProviderPriority


class WorkersProvider(Provider):
    """Binds ``WorkersConfig``. An explicit configuration wins over section ``ai_workers``."""

    name = "workers"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = CONFIG_SECTION
    config_model = WorkersConfig

    config: WorkersConfig

    def __init__(self, config: WorkersConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the configuration for the other modules."""
        container.singleton(WorkersConfig, self.config)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY: the configuration is bound, and that is all this provider does."""
        return HealthCheckResult(component=self.name, message="configuration bound")
