"""Fakes that keep the semantics of their contracts and can be looked into.

Names load on first use: asking for a clock does not import the event bus.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol
    from lexigram.contracts.events import EventBusProtocol
    from lexigram.contracts.infra.cache import CacheBackendProtocol
    from lexigram.contracts.observability import MetricsProtocol, SpanProtocol, TracerProtocol
    from lexigram.testing.fakes.cache import FakeCache
    from lexigram.testing.fakes.clock import FakeClock, FixedClock
    from lexigram.testing.fakes.events import FakeEventBus
    from lexigram.testing.fakes.metrics import FakeMetrics, Measurement
    from lexigram.testing.fakes.tracer import FakeSpan, FakeSpanEvent, FakeTracer

    # Type checkers prove here that each fake satisfies its contract.
    _clocks: tuple[type[ClockProtocol], ...] = (FakeClock, FixedClock)
    _event_bus: type[EventBusProtocol] = FakeEventBus
    _cache: type[CacheBackendProtocol] = FakeCache
    _metrics: type[MetricsProtocol] = FakeMetrics
    _tracing: tuple[type[TracerProtocol], type[SpanProtocol]] = (FakeTracer, FakeSpan)
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.testing.fakes.cache": ["FakeCache"],
            "lexigram.testing.fakes.clock": ["FakeClock", "FixedClock"],
            "lexigram.testing.fakes.events": ["FakeEventBus"],
            "lexigram.testing.fakes.metrics": ["FakeMetrics", "Measurement"],
            "lexigram.testing.fakes.tracer": ["FakeSpan", "FakeSpanEvent", "FakeTracer"],
        },
    )

__all__ = [
    "FakeCache",
    "FakeClock",
    "FakeEventBus",
    "FakeMetrics",
    "FakeSpan",
    "FakeSpanEvent",
    "FakeTracer",
    "FixedClock",
    "Measurement",
]
