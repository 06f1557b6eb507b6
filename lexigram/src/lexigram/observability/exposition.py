"""The text behind ``/metrics``: what a host hands to the Prometheus server that asks."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from lexigram.contracts.observability.metrics import MetricsProtocol

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@runtime_checkable
class MetricsTextProtocol(Protocol):
    """Metrics that can be written down as text."""

    def metrics_text(self) -> str:
        """Every series in the text format of Prometheus."""
        ...


def metrics_text(metrics: MetricsProtocol) -> str:
    """Every series as text, to be answered with ``METRICS_CONTENT_TYPE``.

    Metrics that keep nothing to read, such as the no-ops, give a text without series.
    """
    if isinstance(metrics, MetricsTextProtocol):
        return metrics.metrics_text()
    return "# metrics are off: set observability.metrics to prometheus\n"
