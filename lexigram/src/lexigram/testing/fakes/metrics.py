"""Metrics that a test can read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Literal

from attrs import frozen

Kind = Literal["counter", "gauge", "histogram"]


@frozen(kw_only=True)
class Figure:
    """One call of a metric."""

    kind: Kind
    name: str
    value: float
    tags: Mapping[str, str]


class FakeMetrics:
    """Keeps every figure. Like the real thing it never raises for one, and takes any thread's.

    A figure that breaks the contract (a counter going down, one name with two kinds or with
    two sets of tag names) is kept too, and described in ``misuses``.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._shapes: dict[str, tuple[Kind, frozenset[str]]] = {}
        self.figures: list[Figure] = []
        self.misuses: list[str] = []

    def increment(
        self, name: str, value: float = 1.0, tags: Mapping[str, str] | None = None
    ) -> None:
        """Add to a counter."""
        self._take("counter", name, value, tags)

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        self._take("gauge", name, value, tags)

    def histogram(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Record one observation."""
        self._take("histogram", name, value, tags)

    def counted(self, name: str, /, **tags: str) -> float:
        """The sum of a counter over all series that have these tags; 0 when never counted."""
        return sum(figure.value for figure in self._matching("counter", name, tags))

    def gauged(self, name: str, /, **tags: str) -> float | None:
        """The last value of a gauge that has these tags; None when never set."""
        found = list(self._matching("gauge", name, tags))
        return found[-1].value if found else None

    def observed(self, name: str, /, **tags: str) -> list[float]:
        """The observations of a histogram that have these tags, in order."""
        return [figure.value for figure in self._matching("histogram", name, tags)]

    def clear(self) -> None:
        """Forget every figure."""
        with self._lock:
            self.figures.clear()
            self.misuses.clear()
            self._shapes.clear()

    def _take(self, kind: Kind, name: str, value: float, tags: Mapping[str, str] | None) -> None:
        figure = Figure(kind=kind, name=name, value=value, tags=dict(tags or {}))
        with self._lock:
            self.misuses.extend(self._faults(figure))
            self.figures.append(figure)

    def _faults(self, figure: Figure) -> Iterator[str]:
        if figure.kind == "counter" and figure.value < 0:
            yield f"{figure.name} is a counter and was incremented by {figure.value}"
        shape = (figure.kind, frozenset(figure.tags))
        kind, names = self._shapes.setdefault(figure.name, shape)
        if kind != figure.kind:
            yield f"{figure.name} is a {kind} and was used as a {figure.kind}"
        if names != frozenset(figure.tags):
            yield f"{figure.name} has the tags {sorted(names)} and was given {sorted(figure.tags)}"

    def _matching(self, kind: Kind, name: str, tags: Mapping[str, str]) -> Iterator[Figure]:
        with self._lock:
            figures = list(self.figures)
        for figure in figures:
            if (figure.kind, figure.name) == (kind, name) and tags.items() <= figure.tags.items():
                yield figure
