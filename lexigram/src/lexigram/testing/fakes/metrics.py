"""Metrics that a test can read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Literal

from attrs import frozen

Kind = Literal["counter", "gauge", "histogram"]


@frozen(kw_only=True)
class Measurement:
    """One call of a metric."""

    kind: Kind
    name: str
    value: float
    tags: Mapping[str, str]


class FakeMetrics:
    """Keeps every measurement. Like the real thing it never raises for one, and takes any thread's.

    A measurement that breaks the contract (a counter going down, one name with two kinds or with
    two sets of tag names) is kept too, and described in ``misuses``.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._shapes: dict[str, tuple[Kind, frozenset[str]]] = {}
        self.measurements: list[Measurement] = []
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
        return sum(measurement.value for measurement in self._matching("counter", name, tags))

    def gauged(self, name: str, /, **tags: str) -> float | None:
        """The last value of a gauge that has these tags; None when never set."""
        found = list(self._matching("gauge", name, tags))
        return found[-1].value if found else None

    def observed(self, name: str, /, **tags: str) -> list[float]:
        """The observations of a histogram that have these tags, in order."""
        return [measurement.value for measurement in self._matching("histogram", name, tags)]

    def clear(self) -> None:
        """Forget every measurement."""
        with self._lock:
            self.measurements.clear()
            self.misuses.clear()
            self._shapes.clear()

    def _take(self, kind: Kind, name: str, value: float, tags: Mapping[str, str] | None) -> None:
        measurement = Measurement(kind=kind, name=name, value=value, tags=dict(tags or {}))
        with self._lock:
            self.misuses.extend(self._faults(measurement))
            self.measurements.append(measurement)

    def _faults(self, measurement: Measurement) -> Iterator[str]:
        if measurement.kind == "counter" and measurement.value < 0:
            yield f"{measurement.name} is a counter and was incremented by {measurement.value}"
        shape = (measurement.kind, frozenset(measurement.tags))
        kind, names = self._shapes.setdefault(measurement.name, shape)
        if kind != measurement.kind:
            yield f"{measurement.name} is a {kind} and was used as a {measurement.kind}"
        if names != frozenset(measurement.tags):
            yield f"{measurement.name} has the tags {sorted(names)} and was given {sorted(measurement.tags)}"

    def _matching(self, kind: Kind, name: str, tags: Mapping[str, str]) -> Iterator[Measurement]:
        with self._lock:
            measurements = list(self.measurements)
        for measurement in measurements:
            if (measurement.kind, measurement.name) == (
                kind,
                name,
            ) and tags.items() <= measurement.tags.items():
                yield measurement
