"""Count, gauge and measure, without knowing who collects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class MetricsProtocol(Protocol):
    """Records metrics. Cheap, synchronous, safe from any thread, and never raises for a value.

    Not guaranteed: that a value survives a crash or is visible at once. A metric is identified
    by its name and has one kind and one set of tag names. Tag values come from a small set; an
    id as a tag value makes one series per id.
    """

    def increment(
        self, name: str, value: float = 1.0, tags: Mapping[str, str] | None = None
    ) -> None:
        """Add a value that is not negative to a counter; each call adds again."""
        ...

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Set a value that goes up and down; the last call wins."""
        ...

    def histogram(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Record one observation, such as a duration in seconds; each call is one more."""
        ...


class NoOpMetrics:
    """Records nothing."""

    __slots__ = ()

    def increment(
        self, name: str, value: float = 1.0, tags: Mapping[str, str] | None = None
    ) -> None:
        """Ignored."""

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Ignored."""

    def histogram(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Ignored."""
