"""What a package declares for the operators' console, and what it shows there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Tone(StrEnum):
    """How urgent a value is for an operator."""

    NEUTRAL = "neutral"
    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    DANGER = "danger"


@dataclass(frozen=True)
class Stat:
    """One value with its label."""

    label: str
    value: str | int | float
    tone: Tone = Tone.NEUTRAL
    # a second line, such as a unit or a comparison
    hint: str | None = None


@dataclass(frozen=True)
class StatContent:
    """The statistics of one widget."""

    stats: tuple[Stat, ...]


@dataclass(frozen=True)
class WidgetParams:
    """What the operator chose for a widget, as it came in the request."""

    values: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class WidgetViewModel:
    """A widget ready to be drawn."""

    name: str
    title: str
    content: StatContent


@dataclass(frozen=True)
class WidgetDefinition:
    """A widget of the overview."""

    name: str
    title: str
    category: str
    render_endpoint: str
    size: str = "small"


@dataclass(frozen=True)
class NavigationItem:
    """An entry of the menu; lower ``order`` comes first."""

    label: str
    url: str
    icon: str = ""
    group: str = ""
    order: int = 0
    children: tuple[NavigationItem, ...] = ()


@dataclass(frozen=True)
class HealthDefinition:
    """A health check to show."""

    name: str
    component: str
    check_endpoint: str


@dataclass(frozen=True)
class ActionDefinition:
    """A button: ``handler`` is ``module:function``, called with the container and parameters."""

    name: str
    title: str
    handler: str
    icon: str = ""
    category: str = "operations"
    # asked before it runs; None runs at once
    confirm: str | None = None


@dataclass(frozen=True)
class PageTable:
    """Rows of a page; each row has one value per column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...] = ()


@dataclass(frozen=True)
class PageContent:
    """What a page shows: statistics first, then tables. The console renders it."""

    title: str
    stats: tuple[Stat, ...] = ()
    tables: tuple[PageTable, ...] = ()


@dataclass(frozen=True)
class PageDefinition:
    """A page: ``handler`` is ``module:Class``, built by the container."""

    name: str
    title: str
    path: str
    handler: str
    category: str = ""
    order: int = 0
