"""Contracts of tracing and metrics."""

from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import (
    NoOpSpan,
    NoOpTracer,
    SpanContext,
    SpanProtocol,
    TracerProtocol,
)

__all__ = [
    "MetricsProtocol",
    "NoOpMetrics",
    "NoOpSpan",
    "NoOpTracer",
    "SpanContext",
    "SpanProtocol",
    "TracerProtocol",
]
