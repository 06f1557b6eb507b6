"""Registers the web host, and reports where it listens and which routes are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexigram.app import Application
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.web import RouteContributorProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.web.auth import check_keys
from lexigram.web.config import WebConfig
from lexigram.web.host import WebHost

if TYPE_CHECKING:
    from fastapi import APIRouter


class WebProvider(Provider):
    """Binds ``WebHost``. It serves nothing by itself: ``lexigram serve`` or ``host.serving()`` does."""

    name = "web"
    priority = ProviderPriority.PRESENTATION
    config_key = WebConfig.config_section
    config_model = WebConfig

    config: WebConfig

    def __init__(
        self,
        config: WebConfig | None = None,
        *,
        routers: Sequence[APIRouter] = (),
        contributors: Iterable[RouteContributorProtocol] = (),
        installed: bool = True,
        statuses: Mapping[type[Exception], int] | None = None,
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._options: dict[str, Any] = {
            "routers": routers,
            "contributors": contributors,
            "installed": installed,
            "statuses": statuses,
        }
        self._host: WebHost | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind configuration and host; an invalid key is reported before anything starts."""
        check_keys(self.config)

        def make(app: Application) -> WebHost:
            return WebHost(app, self.config, **self._options)

        container.singleton(WebConfig, self.config)
        container.singleton(WebHost, factory=make)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the host; its routes are asked for when the application runs."""
        self._host = await container.resolve(WebHost)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """DEGRADED while routes of a contributor are missing."""
        host = self._host
        missing = host.left_out if host is not None else ()
        listening = host.address.url if host is not None and host.address else None
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.DEGRADED if missing else HealthStatus.HEALTHY,
            message=f"listening on {listening}" if listening else "not listening",
            error="; ".join(f"{item.contributor}: {item.reason}" for item in missing) or None,
            details={
                "in_flight": host.in_flight if host is not None else 0,
                "connections": host.connections if host is not None else 0,
            },
        )
