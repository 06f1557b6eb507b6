"""Widgets, pages and actions of the bus in the admin console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lexigram.contracts.admin import (
    ActionDefinition,
    AdminError,
    HealthDefinition,
    NavigationItem,
    PageDefinition,
    WidgetDefinition,
    WidgetNotFoundError,
    WidgetParams,
    WidgetViewModel,
)
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.result import Err, Result
from lexigram.queue.admin.handlers import (
    ConsumerLagWidgetHandler,
    FailedMessagesWidgetHandler,
    QueueDepthWidgetHandler,
)
from lexigram.queue.admin.renderer import PackageWidgetRenderer
from lexigram.queue.operations.control import BusControl

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol

NAME: Final = "queue"
_PAGES: Final = "lexigram.queue.admin.pages"


def _widget(name: str, title: str, category: str) -> WidgetDefinition:
    return WidgetDefinition(name, title, category, f"/admin/queue/widgets/{name}")


WIDGETS: Final[Mapping[str, tuple[WidgetDefinition, type[Any]]]] = {
    "queue_depth": (
        _widget("queue_depth", "Queue Depth", "metrics"),
        QueueDepthWidgetHandler,
    ),
    "consumer_lag": (
        _widget("consumer_lag", "Consumer Lag", "metrics"),
        ConsumerLagWidgetHandler,
    ),
    "failed_messages": (
        _widget("failed_messages", "Failed Messages", "health"),
        FailedMessagesWidgetHandler,
    ),
}

NAVIGATION: Final = NavigationItem(
    "Queue",
    "/admin/queue",
    "queue-list",
    "infrastructure",
    35,
    (
        NavigationItem("Jobs", "/admin/queue/jobs", "briefcase", order=10),
        NavigationItem("Consumers", "/admin/queue/consumers", "cpu", order=20),
    ),
)
HEALTH: Final = HealthDefinition("queue.broker", "Message Broker", "/admin/queue/health/broker")
RETRY: Final = ActionDefinition(
    "retry_failed",
    "Retry Failed Messages",
    "lexigram.queue.admin.actions:retry_failed",
    "refresh-cw",
    "operations",
    "Send all dead letters back to the groups that set them aside?",
)
PAGES: Final = (
    PageDefinition(
        "queue_overview",
        "Queue",
        "/queue",
        f"{_PAGES}.overview:QueueOverviewPage",
        "infrastructure",
        10,
    ),
    PageDefinition(
        "queue_jobs",
        "Messages",
        "/queue/jobs",
        f"{_PAGES}.jobs:QueueJobsPage",
        "infrastructure",
        20,
    ),
    PageDefinition(
        "queue_consumers",
        "Consumers",
        "/queue/consumers",
        f"{_PAGES}.consumers:QueueConsumersPage",
        "infrastructure",
        30,
    ),
)


class QueueAdminContributor:
    """Implements ``AdminContributorProtocol`` for the bus."""

    name = NAME
    display_name = "Queue"
    group = "infrastructure"
    icon = "queue-list"
    priority = 35

    def __init__(self) -> None:
        self._container: ContainerResolverProtocol | None = None

    async def on_admin_boot(self, container: ContainerResolverProtocol) -> None:
        """Use the statistics and dead letters of this application."""
        self._container = container

    def get_dashboard_widgets(self) -> Sequence[WidgetDefinition]:
        """Depth, lag and failed messages."""
        return [definition for definition, _ in WIDGETS.values()]

    def get_navigation_items(self) -> Sequence[NavigationItem]:
        """One entry with its pages."""
        return [NAVIGATION]

    def get_health_definitions(self) -> Sequence[HealthDefinition]:
        """The brokers, as bad as the worst of them."""
        return [HEALTH]

    def get_actions(self) -> Sequence[ActionDefinition]:
        """Retry what failed."""
        return [RETRY]

    def get_management_pages(self) -> Sequence[PageDefinition]:
        """Overview, messages and consumers."""
        return PAGES

    async def execute_action(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run an action; raises LookupError for an unknown one, RuntimeError before boot."""
        if name != RETRY.name:
            raise LookupError(f"contributor {self.name!r} has no action {name!r}")
        module, _, function = RETRY.handler.partition(":")
        done: Mapping[str, Any] = await getattr(import_module(module), function)(
            self._require_container(), **params
        )
        return done

    async def render_widget(
        self,
        name: str,
        params: WidgetParams,
        resolver: ContainerResolverProtocol | None = None,
    ) -> Result[WidgetViewModel, AdminError]:
        """A widget with its data, ready to be rendered."""
        container = resolver or self._container
        if container is None:
            return Err(WidgetNotFoundError(self.name, name, hint="call on_admin_boot first"))
        renderer = await container.resolve_optional(PackageWidgetRenderer)
        return await (renderer or widget_renderer()).render(name, params, container)

    async def check_health(self, name: str, timeout: float = 5.0) -> HealthCheckResult:
        """The answer of a health definition; raises LookupError for an unknown one."""
        if name != HEALTH.name:
            raise LookupError(f"contributor {self.name!r} has no health check {name!r}")
        control = await self._require_container().resolve(BusControl)
        return await control.health(timeout)

    def _require_container(self) -> ContainerResolverProtocol:
        if self._container is None:
            raise RuntimeError(f"contributor {self.name!r} has not booted: call on_admin_boot")
        return self._container


def widget_renderer() -> PackageWidgetRenderer:
    """The renderer of the three widgets."""
    return PackageWidgetRenderer(NAME, WIDGETS)
