"""What every tracer promises, asked of the fake, the no-op and OpenTelemetry."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.observability import (
    NoOpTracer,
    SpanContext,
    SpanProtocol,
    TracerProtocol,
)
from lexigram.observability.otel import OtelTracer
from lexigram.testing.fakes import FakeTracer

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECORDING = [pytest.param(FakeTracer, id="fake"), pytest.param(lambda: OtelTracer("t"), id="otel")]
ALL = [*RECORDING, pytest.param(NoOpTracer, id="noop")]


@pytest.fixture
def tracer(request):
    return request.param()


every = pytest.mark.parametrize("tracer", ALL, indirect=True)
recording = pytest.mark.parametrize("tracer", RECORDING, indirect=True)


@every
def test_tracer_and_span_satisfy_their_contracts(tracer):
    assert isinstance(tracer, TracerProtocol)
    assert isinstance(tracer.start_span("x"), SpanProtocol)


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@every
def test_no_method_raises_whatever_it_is_given(tracer):
    odd = {"a": object(), "b": None, "c": [1, "x"], "d": b"\xff", "e": Unprintable(), "f": [1, 2]}
    for context in (None, SpanContext("zz", ""), SpanContext(TRACE, SPAN, trace_state="=,;;")):
        with tracer.start_span("work", odd, context) as span:
            for key, value in odd.items():
                span.set_attribute(key, value)
            span.add_event("happened", odd)
            span.record_exception(BaseException())
            span.set_status("what", "ever")
        span.end()
        span.set_attribute("late", 1)
        span.add_event("late")
        span.record_exception(KeyError())
        span.set_status("ok")
        with span:
            pass
    assert tracer.get_current_span() is None


@every
def test_an_exception_goes_on(tracer):
    with pytest.raises(KeyError), tracer.start_span("work"):
        raise KeyError("boom")
    assert tracer.get_current_span() is None


@every
def test_outside_a_span_the_carrier_stays_as_it_is(tracer):
    carrier = {"traceparent": "mine", "x": "y"}
    tracer.inject_context(carrier)
    assert carrier == {"traceparent": "mine", "x": "y"}


@every
async def test_cancellation_goes_on(tracer):
    with anyio.CancelScope() as scope, tracer.start_span("work"):
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


@recording
def test_a_span_is_a_child_of_the_current_one(tracer):
    with tracer.start_span("outer") as outer, tracer.start_span("inner") as inner:
        assert tracer.get_current_span() is inner
        assert inner.context.trace_id == outer.context.trace_id
        assert inner.context.span_id != outer.context.span_id
    assert tracer.get_current_span() is None


@recording
def test_a_span_becomes_current_only_when_entered(tracer):
    first = tracer.start_span("started")
    assert tracer.get_current_span() is None
    assert tracer.start_span("next").context.trace_id != first.context.trace_id


@recording
def test_a_given_context_wins_over_the_current_span(tracer):
    remote = SpanContext(TRACE, SPAN, sampled=False, trace_state="a=1")
    with tracer.start_span("local"):
        span = tracer.start_span("handler", context=remote)
    assert span.context.trace_id == TRACE
    assert span.context.span_id != SPAN
    assert (span.context.sampled, span.context.trace_state) == (False, "a=1")


@recording
def test_an_ended_span_is_not_current_and_nobodys_parent(tracer):
    with tracer.start_span("outer") as outer:
        with tracer.start_span("inner") as inner:
            inner.end()
            assert tracer.get_current_span() is outer
            assert tracer.start_span("x").context.trace_id == outer.context.trace_id
        outer.end()
        assert tracer.get_current_span() is None
        assert tracer.start_span("y").context.trace_id != outer.context.trace_id


@recording
def test_spans_left_in_the_wrong_order_do_not_raise(tracer):
    outer, inner = tracer.start_span("outer"), tracer.start_span("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert tracer.get_current_span() is inner
    inner.__exit__(None, None, None)
    assert tracer.get_current_span() is None


@recording
async def test_a_span_left_in_another_task_does_not_disturb_that_task(tracer, caplog):
    span = tracer.start_span("moved")
    span.__enter__()

    async def leave():
        with tracer.start_span("own") as own:
            span.__exit__(None, None, None)
            assert tracer.get_current_span() is own

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
    assert tracer.get_current_span() is None  # it has ended
    assert [record.name for record in caplog.records if record.name != "asyncio"] == []


@recording
async def test_tasks_inherit_the_current_span_and_do_not_disturb_each_other(tracer):
    parents = {}

    async def work(name):
        with tracer.start_span(name) as span:
            await anyio.lowlevel.checkpoint()
            assert tracer.get_current_span() is span
            parents[name] = span.context.trace_id

    with tracer.start_span("parent") as parent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, "a")
            tasks.start_soon(work, "b")
        assert tracer.get_current_span() is parent
    assert parents == {"a": parent.context.trace_id, "b": parent.context.trace_id}


@recording
def test_context_goes_through_a_carrier_and_back(tracer):
    carrier = {"Traceparent": "old", "TRACESTATE": "old=1", "x": "y"}
    with tracer.start_span("client") as span:
        tracer.inject_context(carrier)
    assert tracer.extract_context(carrier) == span.context
    assert carrier == {"x": "y", "traceparent": f"00-{'-'.join(ids(span))}-01"}


def ids(span):
    return span.context.trace_id, span.context.span_id


@recording
def test_a_given_context_is_injected_with_its_state(tracer):
    carrier = {}
    tracer.inject_context(carrier, SpanContext(TRACE, SPAN, sampled=False, trace_state="v=1"))
    assert carrier == {"traceparent": f"00-{TRACE}-{SPAN}-00", "tracestate": "v=1"}


@recording
@pytest.mark.parametrize(
    "text",
    [
        *("", "x", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"),
    ],
)
def test_a_malformed_traceparent_is_no_context(tracer, text):
    assert tracer.extract_context({"traceparent": text, "tracestate": "a=1"}) is None


@recording
def test_headers_are_read_in_any_case_and_a_later_version_is_understood(tracer):
    carrier = {"TraceParent": f" 01-{TRACE}-{SPAN}-03-more ", "TraceState": "a=1"}
    assert tracer.extract_context(carrier) == SpanContext(TRACE, SPAN, True, "a=1")


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage"]), st.text()))
def test_any_headers_give_a_context_or_none(carrier):
    for tracer in (FakeTracer(), NoOpTracer(), _otel):
        context = tracer.extract_context(carrier)
        tracer.start_span("x", context=context).end()


_otel = OtelTracer("t")
