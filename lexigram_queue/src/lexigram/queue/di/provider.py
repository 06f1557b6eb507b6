"""Registers the bus with the container and reports on it."""

from __future__ import annotations

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.di import Provider, ProviderPriority
from lexigram.queue.config import QueueConfig
from lexigram.queue.constants import CONFIG_SECTION


class QueueProvider(Provider):
    """Binds ``QueueConfig``. An explicit configuration wins over section ``queue``."""

    name = "queue"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = CONFIG_SECTION
    config_model = QueueConfig

    config: QueueConfig

    def __init__(self, config: QueueConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the configuration for the other modules."""
        container.singleton(QueueConfig, self.config)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY: the configuration is bound. The details name its backends."""
        names = [backend.name for backend in self.config.backends]
        return HealthCheckResult(
            component=self.name,
            message=f"configuration bound, {len(names)} backends",
            details={"backends": names},
        )
