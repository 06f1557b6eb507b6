"""Logging for people and machines, traces and metrics: OpenTelemetry, Prometheus, or no-ops."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.observability.bound import BoundLogger, get_logger
    from lexigram.observability.config import ObservabilityConfig
    from lexigram.observability.correlation import log_trace_ids, trace_ids
    from lexigram.observability.errors import MetricConflictError, MissingLibraryError
    from lexigram.observability.exposition import METRICS_CONTENT_TYPE, metrics_text
    from lexigram.observability.logging import configure_logging, reset_logging
    from lexigram.observability.module import ObservabilityModule
    from lexigram.observability.provider import ObservabilityProvider
    from lexigram.observability.w3c import read_context, write_context
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.observability.bound": ["BoundLogger", "get_logger"],
            "lexigram.observability.config": ["ObservabilityConfig"],
            "lexigram.observability.correlation": ["log_trace_ids", "trace_ids"],
            "lexigram.observability.errors": ["MetricConflictError", "MissingLibraryError"],
            "lexigram.observability.exposition": ["METRICS_CONTENT_TYPE", "metrics_text"],
            "lexigram.observability.logging": ["configure_logging", "reset_logging"],
            "lexigram.observability.module": ["ObservabilityModule"],
            "lexigram.observability.provider": ["ObservabilityProvider"],
            "lexigram.observability.w3c": ["read_context", "write_context"],
        },
    )

__all__ = [
    "METRICS_CONTENT_TYPE",
    "BoundLogger",
    "MetricConflictError",
    "MissingLibraryError",
    "ObservabilityConfig",
    "ObservabilityModule",
    "ObservabilityProvider",
    "configure_logging",
    "get_logger",
    "log_trace_ids",
    "metrics_text",
    "read_context",
    "reset_logging",
    "trace_ids",
    "write_context",
]
