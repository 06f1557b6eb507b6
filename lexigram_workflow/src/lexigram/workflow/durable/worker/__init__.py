"""The worker of durable runs: it claims steps, calls their handlers and writes how they ended."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.durable.worker.pools import LoggingMetrics, Metrics
    from lexigram.workflow.durable.worker.steps import StepContext
    from lexigram.workflow.durable.worker.worker import Worker, WorkerConfig
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.durable.worker.steps": ["StepContext"],
            "lexigram.workflow.durable.worker.pools": ["LoggingMetrics", "Metrics"],
            "lexigram.workflow.durable.worker.worker": ["Worker", "WorkerConfig"],
        },
    )

__all__ = ["LoggingMetrics", "Metrics", "StepContext", "Worker", "WorkerConfig"]
