"""Section ``observability``: where spans and metrics are recorded, and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, gt, in_, le

from lexigram.config import BaseConfig, ConfigIssue, Environment, doc

# Seconds, from a cache hit to a slow report.
DEFAULT_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _ascend(_: object, __: Attribute[Any], buckets: tuple[float, ...]) -> None:
    if not buckets or any(low >= high for low, high in pairwise(buckets)):
        raise ValueError("must be one or more limits, each greater than the one before")


def _fits_queue(config: ObservabilityConfig, _: Attribute[Any], size: int) -> None:
    if size > config.queue_size:
        raise ValueError(f"must not be greater than queue_size, which is {config.queue_size}")


@frozen(kw_only=True)
class ObservabilityConfig(BaseConfig):
    """What is recorded, and where it goes. By default nothing is, and it costs nothing."""

    config_section: ClassVar[str] = "observability"

    service_name: str = field(
        default="", metadata=doc("Name of the service in traces; empty: app_name.")
    )
    tracing: Literal["off", "otel"] = field(
        default="off",
        validator=in_(("off", "otel")),
        metadata=doc("Who records spans: nobody, or OpenTelemetry."),
    )
    exporter: Literal["console", "memory", "none"] = field(
        default="console",
        validator=in_(("console", "memory", "none")),
        metadata=doc("Where spans go, unless an exporter is given in code. none: nowhere."),
    )
    sample_ratio: float = field(
        default=1.0,
        validator=and_(ge(0.0), le(1.0)),
        metadata=doc("Share of new traces that is recorded; a trace from outside keeps its own."),
    )
    resource_attributes: Mapping[str, str] = field(
        factory=dict[str, str],
        metadata=doc("Facts about this process on every span, such as a region."),
    )
    queue_size: int = field(
        default=2048,
        validator=ge(1),
        metadata=doc("Ended spans that may wait for the exporter; more drop the oldest."),
    )
    batch_size: int = field(
        default=512,
        validator=and_(ge(1), _fits_queue),
        metadata=doc("Spans handed to the exporter at once."),
    )
    export_interval: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds between two exports.")
    )
    flush_timeout: float = field(
        default=5.0,
        validator=gt(0),
        metadata=doc("Seconds that shutdown waits for the last spans to be exported."),
    )
    metrics: Literal["off", "prometheus"] = field(
        default="off",
        validator=in_(("off", "prometheus")),
        metadata=doc("Where metrics are kept: nowhere, or in a Prometheus registry."),
    )
    max_label_sets: int = field(
        default=1000,
        validator=ge(1),
        metadata=doc("Series a metric may have; the rest is counted in one overflow series."),
    )
    buckets: tuple[float, ...] = field(
        default=DEFAULT_BUCKETS,
        converter=_floats,
        validator=_ascend,
        metadata=doc("Upper limits of the buckets of histograms."),
    )

    def validate_for_environment(self, env: Environment) -> list[ConfigIssue]:
        """Spans kept in memory are for tests; in production they would only cost memory."""
        if env is Environment.PRODUCTION and self.tracing != "off" and self.exporter == "memory":
            message = "keeps spans in memory, where nobody reads them"
            return [ConfigIssue(field="exporter", message=message)]
        return []
