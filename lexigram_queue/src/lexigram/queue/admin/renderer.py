"""Draws the widgets of one package: finds the handler by name and asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexigram.contracts.admin import (
    AdminError,
    WidgetDefinition,
    WidgetHandlerProtocol,
    WidgetNotFoundError,
    WidgetParams,
    WidgetViewModel,
)
from lexigram.contracts.core.result import Err, Ok, Result

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol


class PackageWidgetRenderer:
    """Knows the widgets of a package and the handler class of each.

    Handlers come from the container, so that an application may bind another one; one that is
    not bound there is an ``Err``.
    """

    def __init__(
        self,
        package: str,
        widgets: Mapping[str, tuple[WidgetDefinition, type[Any]]],
    ) -> None:
        self.package = package
        self._widgets = dict(widgets)

    async def render(
        self, name: str, params: WidgetParams, resolver: ContainerResolverProtocol
    ) -> Result[WidgetViewModel, AdminError]:
        """A widget ready to be drawn; ``Err(WidgetNotFoundError)`` for an unknown one."""
        if name not in self._widgets:
            return Err(WidgetNotFoundError(self.package, name))
        definition, kind = self._widgets[name]
        handler: Any = await resolver.resolve_optional(kind)
        if not isinstance(handler, WidgetHandlerProtocol):
            return Err(
                WidgetNotFoundError(
                    self.package, name, hint=f"bind {kind.__name__}, as QueueModule does"
                )
            )
        found = await handler.get_data(params)
        if isinstance(found, Err):
            return found
        return Ok(WidgetViewModel(name, definition.title, found.value))
