"""Registers orchestration with the container and reports on it."""

from __future__ import annotations

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.di import Provider, ProviderPriority
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.constants import CONFIG_SECTION


class WorkflowProvider(Provider):
    """Binds ``WorkflowConfig``. An explicit configuration wins over section ``workflow``."""

    name = "workflow"
    priority = ProviderPriority.DOMAIN
    config_key = CONFIG_SECTION
    config_model = WorkflowConfig

    config: WorkflowConfig

    def __init__(self, config: WorkflowConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the configuration for the other modules."""
        container.singleton(WorkflowConfig, self.config)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY: the configuration is bound, and that is all this provider does."""
        return HealthCheckResult(component=self.name, message="configuration bound")
