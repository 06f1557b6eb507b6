"""Telemetry of the workers: spans, counters, durations and hooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from lexigram import clock
from lexigram.ai.workers.hooks import (
    WorkerJobCompletedHook,
    WorkerJobFailedHook,
    WorkerJobStartedHook,
    WorkerMaintenanceRunHook,
)
from lexigram.concurrency import as_failure
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import NoOpTracer, SpanProtocol, TracerProtocol
from lexigram.hooks import HookRegistry
from lexigram.tasks.context import ambient_job

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"


class Work:
    """A measured operation."""

    def __init__(self, span: SpanProtocol) -> None:
        self._span = span
        self.status = COMPLETED

    def fail(self, error: str) -> None:
        """Mark the operation as failed without an exception."""
        self.status = FAILED
        self._span.set_status("error", error)


class Telemetry:
    """Reports telemetry of the workers; an error of a listener does not affect the work."""

    def __init__(
        self,
        hooks: HookRegistry | None = None,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
    ) -> None:
        self._hooks = hooks
        self._tracer = NoOpTracer() if tracer is None else tracer
        self._metrics = NoOpMetrics() if metrics is None else metrics

    @contextmanager
    def measure(self, kind: str, name: str) -> Generator[Work]:
        """A span ``ai.KIND NAME``, counter ``ai.KIND.finished``, histogram ``ai.KIND.duration``.

        Both metrics have the tags ``name`` and ``status``: completed, failed or cancelled.
        """
        began = clock.monotonic()
        work: Work | None = None
        status = FAILED
        try:
            with self._tracer.start_span(f"ai.{kind} {name}") as span:
                work = Work(span)
                yield work
            status = work.status
        except BaseException as error:
            status = CANCELLED if as_failure(error) is None else FAILED
            raise
        finally:
            tags = {"name": name, "status": status}
            self._metrics.increment(f"ai.{kind}.finished", tags=tags)
            self._metrics.histogram(f"ai.{kind}.duration", clock.monotonic() - began, tags)

    @asynccontextmanager
    async def job(self, job_type: str) -> AsyncGenerator[None]:
        """Measure an attempt at a job and emit its hooks."""
        await self._emit(WorkerJobStartedHook, job_type=job_type)
        try:
            with self.measure("jobs", job_type):
                yield
        except BaseException as error:
            failure = as_failure(error)
            if failure is not None:
                context = ambient_job()
                await self._emit(
                    WorkerJobFailedHook,
                    job_type=job_type,
                    job_id="" if context is None else context.job.id,
                    error_type=type(failure).__name__,
                    error=str(failure),
                )
            raise
        await self._emit(WorkerJobCompletedHook, job_type=job_type)

    async def maintenance_run(self, task_type: str) -> None:
        """Emit the hook of a finished maintenance task."""
        await self._emit(WorkerMaintenanceRunHook, task_type=task_type)

    def count_dead_letter(self, what: str) -> None:
        """Count an action on a dead letter."""
        self._metrics.increment("ai.dead_letters.total", tags={"what": what})

    def set_dead_letter_gauge(self, count: int) -> None:
        """Set the gauge of waiting dead letters."""
        self._metrics.gauge("ai.dead_letters.waiting", count)

    async def _emit(self, hook: type[Any], **facts: str) -> None:
        if self._hooks is not None and self._hooks.wants(hook):  # built only for listeners
            await self._hooks.emit(hook(**facts))
