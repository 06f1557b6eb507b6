"""A call of the no-op tracer, beside the same call while spans are recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator

from harness import Plan, Section, Target, Work, measure, outcome, snippet
from lexigram.contracts.observability import NoOpMetrics, NoOpTracer
from lexigram.observability.otel import OtelTracer
from lexigram.observability.prometheus import PrometheusMetrics

TITLE = "Observability"
PEERS = ("opentelemetry-sdk", "prometheus-client")

NO_OP = "no-op"
HEADERS = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
CALLS = {
    "start_span": "result = tracer.start_span('work')",
    "set_attribute": "result = span.set_attribute('key', 1)",
    "get_current_span": "result = tracer.get_current_span()",
    "inject_context": "result = tracer.inject_context(carrier)",
    "extract_context": "result = tracer.extract_context(headers)",
}
WHOLE = "with tracer.start_span('work') as span:\n    span.set_attribute('key', 1)\nresult = span"
FIGURE = "result = metrics.increment('paid', 1.0, tags)"


async def parts(plan: Plan) -> AsyncIterator[Section]:
    yield await _tracing(plan)
    yield await _metrics(plan)


async def _tracing(plan: Plan) -> Section:
    recording = OtelTracer("benchmark")
    tracers = {NO_OP: NoOpTracer(), "OpenTelemetry": recording}
    current = recording.start_span("current")
    with current:
        calls = [_call(title, source, tracers) for title, source in CALLS.items()]
        whole = _call("a whole span with an attribute", WHOLE, tracers)
        await _prove(tracers)
        await measure([*calls, whole], plan)
    note = (
        "One call of the tracer that an application has when tracing is off: at most 0.5 µs. Beside "
        "it the same call of the OpenTelemetry tracer inside a current span, recording all spans "
        "and exporting none. A whole span is entered, gets one attribute and is left."
    )
    return Section("Tracing", note, [*calls, whole])


async def _metrics(plan: Plan) -> Section:
    kept = PrometheusMetrics()
    all_metrics = {NO_OP: NoOpMetrics(), "Prometheus": kept}
    cases = [
        snippet(who, FIGURE, {"metrics": metrics, "tags": {"shop": "a"}})
        for who, metrics in all_metrics.items()
    ]
    for case in cases:
        await outcome(case)
    assert 'paid_total{shop="a"} 1.0' in kept.metrics_text()
    work = Work("increment with one tag", "µs", NO_OP, cases, {NO_OP: Target(0.5)})
    await measure([work], plan)
    return Section("Metrics", "One figure for a series that is known already.", [work])


def _call(title: str, source: str, tracers: dict) -> Work:
    return Work(title, "µs", NO_OP, _cases(source, tracers), {NO_OP: Target(0.5)})


def _cases(source: str, tracers: dict) -> list:
    return [
        snippet(
            who,
            source,
            {
                "tracer": tracer,
                "span": tracer.start_span("other"),
                "carrier": {},
                "headers": HEADERS,
            },
        )
        for who, tracer in tracers.items()
    ]


async def _prove(tracers: dict) -> None:
    """The no-op records nothing, the other one does."""
    found = {who: await outcome(case) for who, case in zip(tracers, _cases(WHOLE, tracers))}
    assert found[NO_OP].context is None
    assert found["OpenTelemetry"].recorded.attributes["key"] == 1
