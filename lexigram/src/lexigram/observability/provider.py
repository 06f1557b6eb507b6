"""Registers tracer and metrics, starts the export of spans, flushes it, and reports on it."""

from __future__ import annotations

from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Any

from lexigram.config import LexigramConfig
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.observability.config import ObservabilityConfig
from lexigram.observability.correlation import log_trace_ids

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from lexigram.observability.export import SpanExport
    from lexigram.observability.otel import OtelTracer
    from lexigram.observability.prometheus import PrometheusMetrics

_log = getLogger(__name__)


class ObservabilityProvider(Provider):
    """Binds ``TracerProtocol`` and ``MetricsProtocol``; a tracer or metrics given here win.

    It boots first and shuts down last, so that spans of all others are recorded.
    """

    name = "observability"
    priority = ProviderPriority.CRITICAL
    config_key = ObservabilityConfig.config_section
    config_model = ObservabilityConfig

    config: ObservabilityConfig

    def __init__(
        self,
        config: ObservabilityConfig | None = None,
        *,
        exporter: SpanExporter | None = None,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._exporter = exporter
        self._given_tracer = tracer
        self._given_metrics = metrics
        self._otel: OtelTracer | None = None
        self._export: SpanExport | None = None
        self._prometheus: PrometheusMetrics | None = None
        self._forget: Callable[[], None] | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind both; a missing library is an error here, before anything starts."""
        container.singleton(ObservabilityConfig, self.config)
        container.singleton(TracerProtocol, **self._tracer_binding())
        container.singleton(MetricsProtocol, self._metrics())

    async def boot(self, container: BootContainerProtocol) -> None:
        """Start the export, and let log records carry the ids of the current span."""
        tracer = await container.resolve(TracerProtocol)
        if self._otel is not None:
            from lexigram.observability.export import SpanExport

            self._export = SpanExport(self.config, self._exporter)
            await self._export.start(self._otel)
        if not isinstance(tracer, NoOpTracer):
            self._forget = log_trace_ids(tracer)

    async def shutdown(self) -> None:
        """Export the last spans, for no longer than ``flush_timeout``."""
        if self._forget is not None:
            self._forget()
        if self._otel is None or self._export is None:
            return
        if not await self._export.stop(self._otel):
            _log.warning(
                "the last spans were not exported within %g s and are lost",
                self.config.flush_timeout,
            )

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """DEGRADED when the last export failed or values are dropped; never UNHEALTHY."""
        problems = [*self._export_problems(), *self._metric_problems()]
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.DEGRADED if problems else HealthStatus.HEALTHY,
            message=f"tracing {self._tracing()}, metrics {self._measuring()}",
            error="; ".join(problems) or None,
            details=self._details(),
        )

    def _tracer_binding(self) -> dict[str, Any]:
        if self._given_tracer is not None:
            return {"implementation": self._given_tracer}
        if self.config.tracing == "off":
            return {"implementation": NoOpTracer()}
        from lexigram.observability import otel

        def make(root: LexigramConfig) -> TracerProtocol:
            self._otel = otel.OtelTracer(
                self.config.service_name or root.app_name,
                sample_ratio=self.config.sample_ratio,
                resource_attributes=self.config.resource_attributes,
            )
            return self._otel

        return {"factory": make}

    def _metrics(self) -> MetricsProtocol:
        if self._given_metrics is not None:
            return self._given_metrics
        if self.config.metrics == "off":
            return NoOpMetrics()
        from lexigram.observability.prometheus import PrometheusMetrics

        self._prometheus = PrometheusMetrics(
            max_label_sets=self.config.max_label_sets, buckets=self.config.buckets
        )
        return self._prometheus

    def _tracing(self) -> str:
        return "given" if self._given_tracer is not None else self.config.tracing

    def _measuring(self) -> str:
        return "given" if self._given_metrics is not None else self.config.metrics

    def _export_problems(self) -> list[str]:
        problem = self._export.problem if self._export is not None else None
        return [f"the last export of spans failed: {problem}"] if problem else []

    def _metric_problems(self) -> list[str]:
        refused = self._prometheus.refused if self._prometheus is not None else {}
        names = sorted({name for name, _ in refused})
        return [f"values are dropped of {', '.join(names)}"] if names else []

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self._export is not None:
            details["spans_exported"] = self._export.exported
            details["spans_failed"] = self._export.failed
        if self._prometheus is not None:
            details["metrics_overflowing"] = self._prometheus.overflowing
        return details
