"""Count, gauge and measure, without knowing who collects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class MetricsProtocol(Protocol):
    """Takes figures. Cheap, synchronous, safe from any thread, and never raises for a figure.

    Not guaranteed: that a figure survives a crash or is seen at once. A metric is known by its
    name and is used with one kind and one set of tag names. Tag values come from a small set;
    an id as a tag value makes one series per id.
    """

    def increment(
        self, name: str, value: float = 1.0, tags: Mapping[str, str] | None = None
    ) -> None:
        """Add a value that is not negative to a counter; each call adds again."""
        ...

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Set a figure that goes up and down; the last call wins."""
        ...

    def histogram(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Record one observation, such as a duration in seconds; each call is one more."""
        ...


class NoOpMetrics:
    """Takes figures and forgets them."""

    __slots__ = ()

    def increment(
        self, name: str, value: float = 1.0, tags: Mapping[str, str] | None = None
    ) -> None:
        """Ignored."""

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Ignored."""

    def histogram(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Ignored."""
