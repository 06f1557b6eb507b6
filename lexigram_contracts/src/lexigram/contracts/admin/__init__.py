"""Contracts of the operators' console: what a package can show and do there."""

from lexigram.contracts.admin.errors import AdminError, WidgetNotFoundError
from lexigram.contracts.admin.protocols import AdminContributorProtocol, WidgetHandlerProtocol
from lexigram.contracts.admin.types import (
    ActionDefinition,
    HealthDefinition,
    NavigationItem,
    PageContent,
    PageDefinition,
    PageTable,
    Stat,
    StatContent,
    Tone,
    WidgetDefinition,
    WidgetParams,
    WidgetViewModel,
)

__all__ = [
    "ActionDefinition",
    "AdminContributorProtocol",
    "AdminError",
    "HealthDefinition",
    "NavigationItem",
    "PageContent",
    "PageDefinition",
    "PageTable",
    "Stat",
    "StatContent",
    "Tone",
    "WidgetDefinition",
    "WidgetHandlerProtocol",
    "WidgetNotFoundError",
    "WidgetParams",
    "WidgetViewModel",
]
