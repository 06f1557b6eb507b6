"""How a package shows itself in the operators' console and offers actions there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.admin.errors import AdminError
    from lexigram.contracts.admin.types import (
        ActionDefinition,
        HealthDefinition,
        NavigationItem,
        PageDefinition,
        StatContent,
        WidgetDefinition,
        WidgetParams,
        WidgetViewModel,
    )
    from lexigram.contracts.core.di import ContainerResolverProtocol
    from lexigram.contracts.core.result import Result


@runtime_checkable
class WidgetHandlerProtocol(Protocol):
    """Reads the statistics of one widget."""

    async def get_data(self, params: WidgetParams) -> Result[StatContent, AdminError]:
        """The current statistics; reads only, so it may be called at any time and again.

        A source that is missing or down gives a Stat that shows it, or an Err.
        """
        ...


@runtime_checkable
class AdminContributorProtocol(Protocol):
    """Named by the entry point ``lexigram.admin.contributors`` and made without arguments.

    The ``get_`` methods return constants, in any order and more than once. A contributor that
    raises is reported and left out; it never stops the console.
    """

    @property
    def name(self) -> str:
        """Unique among contributors; part of its addresses."""
        ...

    @property
    def display_name(self) -> str:
        """The name for people."""
        ...

    async def on_admin_boot(self, container: ContainerResolverProtocol) -> None:
        """Take what it needs from the booted application; called once, before the rest."""
        ...

    def get_dashboard_widgets(self) -> Sequence[WidgetDefinition]:
        """Widgets of the overview; empty when there are none."""
        ...

    def get_navigation_items(self) -> Sequence[NavigationItem]:
        """Entries of the menu; empty when there are none."""
        ...

    def get_health_definitions(self) -> Sequence[HealthDefinition]:
        """Health checks to show; empty when there are none."""
        ...

    def get_actions(self) -> Sequence[ActionDefinition]:
        """Buttons; empty when there are none."""
        ...

    def get_management_pages(self) -> Sequence[PageDefinition]:
        """Pages; empty when there are none."""
        ...

    async def execute_action(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run an action; the result has ``ok`` and ``message``. Running again acts again.

        Raises LookupError for an unknown name and RuntimeError before ``on_admin_boot``.
        """
        ...

    async def render_widget(
        self,
        name: str,
        params: WidgetParams,
        resolver: ContainerResolverProtocol | None = None,
    ) -> Result[WidgetViewModel, AdminError]:
        """A widget ready to be drawn; ``Err(WidgetNotFoundError)`` for an unknown one.

        ``resolver`` stands in for the container of ``on_admin_boot``. Reads only.
        """
        ...
