"""Tracing and metrics as a module: ``ObservabilityModule.configure(...)`` at the root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.di import DynamicModule, Module, module
from lexigram.observability.config import ObservabilityConfig
from lexigram.observability.provider import ObservabilityProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_EXPORTS = [TracerProtocol, MetricsProtocol, ObservabilityConfig]


@module(providers=[ObservabilityProvider], exports=_EXPORTS, is_global=True)
class ObservabilityModule(Module):
    """Tracer and metrics for every module; the bare class reads section ``observability``."""

    @classmethod
    def configure(
        cls,
        config: ObservabilityConfig | None = None,
        *,
        exporter: SpanExporter | None = None,
    ) -> DynamicModule:
        """An explicit configuration, or section ``observability`` when None.

        ``exporter`` takes the place of the one the configuration names; tracing itself is
        still switched on by ``tracing: otel``.
        """
        return _of(cls, ObservabilityProvider(config, exporter=exporter))

    @classmethod
    def stub(
        cls,
        config: ObservabilityConfig | None = None,
        *,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
    ) -> DynamicModule:
        """For tests: no file or variable is read, and nothing is recorded but by what is given.

        ``stub(tracer=FakeTracer(), metrics=FakeMetrics())`` lets a test look at both.
        """
        given = config if config is not None else ObservabilityConfig()
        return _of(cls, ObservabilityProvider(given, tracer=tracer, metrics=metrics))


def _of(cls: type[Module], provider: ObservabilityProvider) -> DynamicModule:
    return DynamicModule(module=cls, providers=[provider], exports=_EXPORTS, is_global=True)
