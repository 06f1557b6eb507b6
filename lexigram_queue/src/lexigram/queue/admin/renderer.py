"""Render the widgets of one package: find the handler by name and call it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexigram.concurrency import call
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

WIDGET_SECONDS = 10.0  # for one handler

_log = logging.getLogger(__name__)


class PackageWidgetRenderer:
    """The widgets of a package, with the handler class of each.

    Handlers come from the container, so that an application may bind another one; one that is
    not bound there, fails or takes longer than ``timeout`` seconds is an ``Err``.
    """

    def __init__(
        self,
        package: str,
        widgets: Mapping[str, tuple[WidgetDefinition, type[Any]]],
        *,
        timeout: float = WIDGET_SECONDS,
    ) -> None:
        self.package = package
        self.timeout = timeout
        self._widgets = dict(widgets)

    async def render(
        self, name: str, params: WidgetParams, resolver: ContainerResolverProtocol
    ) -> Result[WidgetViewModel, AdminError]:
        """A widget ready to be rendered; ``Err(WidgetNotFoundError)`` for an unknown one."""
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
        try:
            found = await call(
                handler.get_data, params, timeout=self.timeout, name=f"widget {name!r}"
            )
        except Exception as error:  # noqa: BLE001 - code of others: the other widgets are rendered
            _log.exception("widget %s of %s failed", name, self.package)
            return Err(AdminError(f"widget {name!r} failed: {error}", cause=error))
        if isinstance(found, Err):
            return found
        return Ok(WidgetViewModel(name, definition.title, found.value))
