"""Old path of the tracer that records nothing."""

from lexigram.contracts.observability.tracing import NoOpTracer

__all__ = ["NoOpTracer"]
