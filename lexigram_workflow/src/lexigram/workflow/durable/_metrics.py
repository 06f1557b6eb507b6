"""Metrics of workers through MetricsProtocol: Soliplex Ingester's names, prefixed ``durable.``."""

from __future__ import annotations

from typing import Final

from lexigram.contracts.observability.metrics import MetricsProtocol

PREFIX: Final = "durable."

# Everything that a worker counts and measures, with its labels.
COUNTERS: Final = {
    "claim_attempts": ("pool",),
    "claim_success": ("pool",),
    "claim_idle": ("pool",),
    "claim_error": ("pool",),
    "claim_lost_race": ("pool",),
    "step_completed": ("pool",),
    "step_error": ("pool",),
    "step_failed": ("pool",),
    "step_released": ("pool",),
    "step_poisoned": (),
    "step_reset_by_reaper": (),
    "worker_reaped": (),
    "lease_lost": ("phase",),
    "resource_lock_swept": (),
}
HISTOGRAMS: Final = {"claim_duration": ("pool",), "step_duration": ("pool",)}


class BoundMetrics:
    """Records the metrics of a worker in those of the application."""

    def __init__(self, metrics: MetricsProtocol) -> None:
        self._metrics = metrics

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._metrics.increment(PREFIX + name, float(value), labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        self._metrics.histogram(PREFIX + name, value, labels)
