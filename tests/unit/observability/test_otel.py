"""What OpenTelemetry records, and how it lives beside other users of the library."""

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from lexigram.contracts.observability import SpanContext
from lexigram.observability.otel import OtelTracer

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def memory():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(memory):
    tracer = OtelTracer("shop", resource_attributes={"region": "eu"})
    tracer.provider.add_span_processor(SimpleSpanProcessor(memory))
    return tracer


def test_a_span_is_recorded_with_everything_said_of_it(tracer, memory):
    with tracer.start_span("pay", {"amount": 3, "who": SpanContext}) as span:
        span.set_attribute("amount", 4)
        span.set_attribute("many", ["a", "b"])
        span.add_event("half", {"n": 1})
        span.set_status("error")
        span.set_status("ok")
    (recorded,) = memory.get_finished_spans()
    assert recorded.name == "pay"
    assert dict(recorded.attributes) == {
        "amount": 4,
        "who": str(SpanContext),
        "many": ("a", "b"),
    }
    assert [(event.name, dict(event.attributes)) for event in recorded.events] == [
        ("half", {"n": 1})
    ]
    assert recorded.status.status_code is StatusCode.OK
    assert recorded.resource.attributes["service.name"] == "shop"
    assert recorded.resource.attributes["region"] == "eu"


def test_the_last_status_wins_also_after_ok(tracer, memory):
    with tracer.start_span("work") as span:
        span.set_status("ok")
        span.set_status("error", "after all")
    (recorded,) = memory.get_finished_spans()
    assert (recorded.status.status_code, recorded.status.description) == (
        StatusCode.ERROR,
        "after all",
    )


def test_an_exception_is_recorded_with_status_error(tracer, memory):
    with pytest.raises(ValueError, match="broken"), tracer.start_span("work"):
        raise ValueError("broken")
    (recorded,) = memory.get_finished_spans()
    assert [event.name for event in recorded.events] == ["exception"]
    assert recorded.events[0].attributes["exception.type"] == "ValueError"
    assert (recorded.status.status_code, recorded.status.description) == (
        StatusCode.ERROR,
        "broken",
    )


def test_parents_are_recorded(tracer, memory):
    remote = SpanContext(TRACE, SPAN)
    with tracer.start_span("handler", context=remote), tracer.start_span("query"):
        pass
    query, handler = memory.get_finished_spans()
    assert handler.parent.span_id == int(SPAN, 16)
    assert handler.parent.is_remote
    assert query.parent.span_id == handler.context.span_id


def test_after_its_end_nothing_is_said_or_logged(tracer, memory, caplog):
    span = tracer.start_span("work")
    span.end()
    span.set_attribute("late", 1)
    span.add_event("late")
    span.record_exception(KeyError())
    span.set_status("error")
    span.end()
    (recorded,) = memory.get_finished_spans()
    assert (dict(recorded.attributes), recorded.events) == ({}, ())
    assert recorded.status.status_code is StatusCode.UNSET
    assert not caplog.records


def test_the_share_of_new_traces_is_obeyed_and_the_decision_of_a_caller_kept(memory):
    never = OtelTracer("shop", sample_ratio=0.0)
    never.provider.add_span_processor(SimpleSpanProcessor(memory))
    with never.start_span("new") as span:
        assert span.context.sampled is False
        carrier = {}
        never.inject_context(carrier)
    assert carrier["traceparent"].endswith("-00")
    never.start_span("told to", context=SpanContext(TRACE, SPAN, sampled=True)).end()
    assert [span.name for span in memory.get_finished_spans()] == ["told to"]


def test_spans_of_other_users_of_the_library_nest_with_ours(tracer, memory):
    theirs = tracer.provider.get_tracer("sqlalchemy")
    with theirs.start_as_current_span("request"):
        assert tracer.get_current_span().context is not None
        with tracer.start_span("work"), theirs.start_as_current_span("query"):
            pass
        assert trace.get_current_span().name == "request"
    query, work, request = memory.get_finished_spans()
    assert query.parent.span_id == work.context.span_id
    assert work.parent.span_id == request.context.span_id


def test_no_global_provider_is_set(tracer):
    with tracer.start_span("work"):
        pass
    assert trace.get_tracer_provider() is not tracer.provider


def test_baggage_travels_from_carrier_to_carrier(tracer):
    incoming = {"traceparent": f"00-{TRACE}-{SPAN}-01", "Baggage": "tenant=a%20b,broken,user=7"}
    context = tracer.extract_context(incoming)
    outgoing = {"BAGGAGE": "old=1"}
    with tracer.start_span("handler", context=context), tracer.start_span("call"):
        assert baggage.get_baggage("tenant") == "a b"
        tracer.inject_context(outgoing)
    assert set(outgoing) == {"traceparent", "baggage"}
    assert sorted(outgoing["baggage"].split(",")) == ["tenant=a+b", "user=7"]
    assert baggage.get_all() == {}
    assert tracer.get_current_span() is None


def test_a_carried_context_can_be_passed_on_as_it_is(tracer):
    context = tracer.extract_context(
        {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1", "baggage": "tenant=x"}
    )
    outgoing = {}
    tracer.inject_context(outgoing, context)
    assert outgoing == {
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "tracestate": "a=1",
        "baggage": "tenant=x",
    }


def test_baggage_of_the_application_is_written_with_the_current_span(tracer):
    token = otel_context.attach(baggage.set_baggage("tenant", "x"))
    try:
        carrier = {}
        with tracer.start_span("work"):
            tracer.inject_context(carrier)
    finally:
        otel_context.detach(token)
    assert carrier["baggage"] == "tenant=x"
