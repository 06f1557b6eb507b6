"""Ended spans on their way out: batched, watched, and flushed at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from logging import getLogger
from threading import Event, Thread

from anyio import to_thread

from lexigram.observability.config import ObservabilityConfig
from lexigram.observability.errors import MissingLibraryError
from lexigram.observability.otel import OtelTracer

try:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError as error:
    raise MissingLibraryError("tracing with OpenTelemetry", "otel") from error

_log = getLogger(__name__)


class SpanExport:
    """Hands ended spans of a tracer to an exporter, and knows how that went."""

    def __init__(self, config: ObservabilityConfig, exporter: SpanExporter | None = None) -> None:
        self.config = config
        self.exporter = exporter if exporter is not None else _exporter(config)
        self.exported = 0
        self.failed = 0
        # Why the last export failed; None after one that succeeded.
        self.problem: str | None = None

    async def start(self, tracer: OtelTracer) -> None:
        """Begin to export. In a thread, because starting the exporting thread waits for it."""
        tracer.exporter = self.exporter
        if self.exporter is not None:
            processor = await to_thread.run_sync(self._processor, self.exporter)
            tracer.provider.add_span_processor(processor)

    async def stop(self, tracer: OtelTracer) -> bool:
        """Export what is left and close the exporter; False when that took too long."""
        done = Event()
        # A thread that does not keep the process alive: an exporter may hang for long.
        Thread(target=_shut_down, args=(tracer, done), daemon=True).start()
        return await to_thread.run_sync(done.wait, self.config.flush_timeout)

    def took(self, count: int, problem: str | None) -> None:
        """Record the result of a batch; called by the exporting thread."""
        self.problem = problem
        if problem is None:
            self.exported += count
        else:
            self.failed += count

    def _processor(self, exporter: SpanExporter) -> SpanProcessor:
        watched = _Watched(exporter, self)
        if isinstance(exporter, InMemorySpanExporter):
            return SimpleSpanProcessor(watched)  # a test reads a span as soon as it has ended
        return BatchSpanProcessor(
            watched,
            max_queue_size=self.config.queue_size,
            schedule_delay_millis=self.config.export_interval * 1000,
            max_export_batch_size=self.config.batch_size,
        )


class _Watched(SpanExporter):
    """Passes spans on and records whether they were exported."""

    def __init__(self, inner: SpanExporter, export: SpanExport) -> None:
        self._inner = inner
        self._export = export

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        except Exception as error:  # logged by the processor; kept for the health check
            self._export.took(len(spans), f"{type(error).__name__}: {error}")
            raise
        refused = f"{type(self._inner).__name__} could not export"
        good = result is SpanExportResult.SUCCESS
        self._export.took(len(spans), None if good else refused)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _exporter(config: ObservabilityConfig) -> SpanExporter | None:
    if config.exporter == "console":
        return ConsoleSpanExporter(out=sys.stdout)  # its default is that of the first import
    return InMemorySpanExporter() if config.exporter == "memory" else None


def _shut_down(tracer: OtelTracer, done: Event) -> None:
    try:
        tracer.provider.shutdown()
    except Exception:  # noqa: BLE001 - the thread ends here; the stop of the application continues
        _log.exception("the exporter of spans could not be closed")
    finally:
        done.set()
