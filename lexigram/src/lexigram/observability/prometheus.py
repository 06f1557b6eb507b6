"""Metrics in a Prometheus registry of their own, exposed as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from logging import getLogger
from threading import Lock
from typing import Final, Literal, TypeAlias

from lexigram.observability.config import DEFAULT_BUCKETS
from lexigram.observability.errors import MetricConflictError, MissingLibraryError

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.exposition import generate_latest
except ImportError as error:
    raise MissingLibraryError("metrics with Prometheus", "prometheus") from error

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

# The value of every label of the one series that takes what is beyond the limit.
OVERFLOW: Final = "__overflow__"

_log = getLogger(__name__)
# Names come from the application; a program that makes up names must not fill the memory.
_MOST_REFUSALS = 1000


class PrometheusMetrics:
    """Keeps metrics in its own registry; two applications in one process share nothing.

    Recording never raises. A value that contradicts the first use of its metric (another kind,
    other tag names) is left out, logged once as an error, and kept in ``refused``.
    """

    def __init__(
        self, *, max_label_sets: int = 1000, buckets: Sequence[float] = DEFAULT_BUCKETS
    ) -> None:
        self.registry = CollectorRegistry()
        self._max_label_sets = max_label_sets
        self._buckets = tuple(buckets)
        self._lock = Lock()
        self._metrics: dict[str, _Metric] = {}
        self._sources: dict[str, str] = {}
        # What was wrong, by metric and kind of use.
        self.refused: dict[tuple[str, Kind], str] = {}

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

    def declare(self, name: str, kind: Kind, tags: Sequence[str] = (), help: str = "") -> None:  # noqa: A002 - the word of Prometheus
        """Declare a metric before its first value, with a help text.

        Declaring it again alike changes nothing; anything else raises ``MetricConflictError``.
        """
        with self._lock:
            metric = self._metrics.get(name) or self._make(name, kind, tags, help)
        metric.check(kind, frozenset(tags))

    def metrics_text(self) -> str:
        """Every series in the text format of Prometheus."""
        return generate_latest(self.registry).decode()

    @property
    def overflowing(self) -> list[str]:
        """Names of metrics that had more label sets than allowed."""
        return sorted(name for name, metric in self._metrics.items() if metric.overflowed)

    def _take(self, kind: Kind, name: str, value: float, tags: Mapping[str, str] | None) -> None:
        try:
            self._metric(kind, name, tags or {}).series(tags or {})(value)
        except Exception as error:  # noqa: BLE001 - a metric must not fail the work that it measures
            self._refuse(kind, name, error)

    def _metric(self, kind: Kind, name: str, tags: Mapping[str, str]) -> _Metric:
        metric = self._metrics.get(name)
        if metric is None:
            with self._lock:
                metric = self._metrics.get(name) or self._make(name, kind, tuple(tags))
        metric.check(kind, frozenset(tags))
        return metric

    def _make(self, name: str, kind: Kind, tags: Sequence[str], text: str = "") -> _Metric:
        written = _sanitise(name)
        other = self._sources.get(written)
        if other is not None:
            raise MetricConflictError(
                f"metrics {other!r} and {name!r} are both written {written}",
                details={"metric": name, "other": other},
                hint="rename one of them; only a-z, A-Z, 0-9, _ and : are kept",
            )
        made = _Metric(name, kind, tags, self._max_label_sets)
        made.register(written, text or name, self._buckets, self.registry)
        self._metrics[name] = made
        self._sources[written] = name
        return made

    def _refuse(self, kind: Kind, name: str, error: Exception) -> None:
        with self._lock:
            if (name, kind) in self.refused or len(self.refused) >= _MOST_REFUSALS:
                return
            self.refused[name, kind] = str(error)
        _log.error("values of metric %r are dropped: %s", name, error)


class _Metric:
    """One metric, and the series it has so far."""

    def __init__(self, name: str, kind: Kind, tags: Sequence[str], max_label_sets: int) -> None:
        self.name = name
        self.kind: Kind = kind
        self.tags = frozenset(tags)
        self.overflowed = False
        self._order = tuple(tags)
        self._max = max_label_sets
        self._lock = Lock()
        self._series: dict[tuple[str, ...], Callable[[float], None]] = {}
        self._parent: Counter | Gauge | Histogram | None = None

    def register(
        self, written: str, text: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """Tell the registry of it; ``MetricConflictError`` when the library refuses."""
        labels = [_label(tag) for tag in self._order]
        try:
            if self.kind == "counter":
                self._parent = Counter(written, text, labels, registry=registry)
            elif self.kind == "gauge":
                self._parent = Gauge(written, text, labels, registry=registry)
            else:
                self._parent = Histogram(written, text, labels, buckets=buckets, registry=registry)
        except ValueError as error:
            raise MetricConflictError(
                f"{self.kind} {self.name!r} cannot be kept: {error}",
                details={"metric": self.name, "tags": list(self._order)},
                hint="rename the metric or the tag",
            ) from error

    def check(self, kind: Kind, tags: frozenset[str]) -> None:
        """Raise when the metric is of another kind or has other tags."""
        if kind != self.kind:
            raise MetricConflictError(
                f"{self.name!r} is a {self.kind} and was used as a {kind}",
                details={"metric": self.name, "is": self.kind, "used_as": kind},
                hint="give one of the two another name",
            )
        if self.tags != tags:
            given = sorted(tags)
            raise MetricConflictError(
                f"{self.name!r} has the tags {sorted(self.tags)} and was given {given}",
                details={"metric": self.name, "tags": sorted(self.tags), "given": given},
                hint="use the same tag names for every value of a metric",
            )

    def series(self, tags: Mapping[str, str]) -> Callable[[float], None]:
        """The child of the series with these tags."""
        values = tuple([str(tags[name]) for name in self._order])
        take = self._series.get(values)
        return take if take is not None else self._add(values)

    def _add(self, values: tuple[str, ...]) -> Callable[[float], None]:
        with self._lock:
            if len(self._series) >= self._max and values not in self._series:
                self._warn()
                return self._taker((OVERFLOW,) * len(values))
            return self._series.setdefault(values, self._taker(values))

    def _warn(self) -> None:
        if not self.overflowed:
            self.overflowed = True
            _log.warning(
                "metric %r has more than %d label sets; further ones are counted as %s."
                " A tag value such as an id makes one series per id",
                self.name,
                self._max,
                OVERFLOW,
            )

    def _taker(self, values: tuple[str, ...]) -> Callable[[float], None]:
        # Text that cannot be written as UTF-8 would break the whole page.
        clean = [value.encode("utf-8", "replace").decode() for value in values]
        parent = self._parent
        child = parent.labels(*clean) if parent is not None and clean else parent
        if isinstance(child, Counter):
            return child.inc
        if isinstance(child, Gauge):
            return child.set
        assert isinstance(child, Histogram)
        return child.observe


def _sanitise(name: str) -> str:
    written = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
    return f"_{written}" if not written or written[0].isdigit() else written


def _label(tag: str) -> str:
    written = re.sub(r"[^a-zA-Z0-9_]", "_", tag)
    if not written or written[0].isdigit():
        written = f"_{written}"
    # Two leading underscores are reserved for Prometheus itself.
    return re.sub(r"^__+", "_", written)
