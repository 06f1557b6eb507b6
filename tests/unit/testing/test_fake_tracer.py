import anyio
import pytest

from lexigram.contracts.observability import SpanContext, SpanProtocol, TracerProtocol
from lexigram.testing.fakes import FakeClock, FakeTracer

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_tracer_and_span_satisfy_their_contracts(fake_tracer):
    assert isinstance(fake_tracer, TracerProtocol)
    assert isinstance(fake_tracer.start_span("x"), SpanProtocol)


def test_a_span_is_a_child_of_the_current_one(fake_tracer):
    with fake_tracer.start_span("outer") as outer, fake_tracer.start_span("inner") as inner:
        assert fake_tracer.get_current_span() is inner
    assert outer.parent is None
    assert inner.parent == outer.context
    assert inner.context.trace_id == outer.context.trace_id
    assert inner.context.span_id != outer.context.span_id
    assert fake_tracer.children_of(outer) == [inner]
    assert fake_tracer.get_current_span() is None


def test_a_span_becomes_current_only_when_entered(fake_tracer):
    fake_tracer.start_span("started")
    assert fake_tracer.get_current_span() is None
    assert fake_tracer.start_span("next").parent is None


def test_a_given_context_wins_over_the_current_span(fake_tracer):
    remote = SpanContext(TRACE, SPAN, sampled=False, trace_state="a=1")
    with fake_tracer.start_span("local"):
        span = fake_tracer.start_span("handler", context=remote)
    assert span.parent == remote
    assert span.context.trace_id == TRACE
    assert (span.context.sampled, span.context.trace_state) == (False, "a=1")


def test_spans_without_parent_begin_new_traces(fake_tracer):
    first, second = fake_tracer.start_span("a"), fake_tracer.start_span("b")
    assert first.context.trace_id != second.context.trace_id


async def test_tasks_inherit_the_current_span_and_do_not_disturb_each_other(fake_tracer):
    async def work(name):
        with fake_tracer.start_span(name):
            await anyio.lowlevel.checkpoint()
            fake_tracer.start_span(f"{name} inside")

    with fake_tracer.start_span("parent") as parent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, "a")
            tasks.start_soon(work, "b")
    assert [span.name for span in fake_tracer.children_of(parent)] == ["a", "b"]
    for name in "ab":
        (span,) = fake_tracer.named(name)
        assert [child.name for child in fake_tracer.children_of(span)] == [f"{name} inside"]


def test_an_exception_is_recorded_and_goes_on(fake_tracer):
    with pytest.raises(KeyError), fake_tracer.start_span("work") as span:
        raise KeyError("boom")
    assert [type(error) for error in span.exceptions] == [KeyError]
    assert (span.status, span.description) == ("error", "'boom'")
    assert span.ended


async def test_cancellation_is_recorded_too(fake_tracer):
    with anyio.CancelScope() as scope, fake_tracer.start_span("work") as span:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert span.status == "error"
    assert isinstance(span.exceptions[0], anyio.get_cancelled_exc_class())


def test_a_span_keeps_what_is_said_of_it_with_the_time(fake_tracer, fake_clock):
    span = fake_tracer.start_span("work", {"a": 1})
    span.set_attribute("a", 2)
    fake_clock.advance(1)
    span.add_event("half", {"n": 5})
    fake_clock.advance(2)
    span.set_status("error")
    span.set_status("ok", "fine after all")
    assert span.duration is None
    span.end()
    assert span.attributes == {"a": 2}
    assert [(event.name, event.attributes, event.at) for event in span.events] == [
        ("half", {"n": 5}, 1.0)
    ]
    assert (span.status, span.description) == ("ok", "fine after all")
    assert span.duration == 3.0
    assert fake_tracer.finished == [span]


def test_after_its_end_nothing_changes_a_span(fake_tracer, fake_clock):
    span = fake_tracer.start_span("work")
    span.end()
    fake_clock.advance(5)
    span.set_attribute("late", 1)
    span.add_event("late")
    span.record_exception(KeyError())
    span.set_status("error")
    span.end()
    with span:
        assert fake_tracer.get_current_span() is None
    assert (span.attributes, span.events, span.exceptions, span.status) == ({}, [], [], None)
    assert span.duration == 0.0


def test_spans_left_in_the_wrong_order_do_not_raise(fake_tracer):
    outer, inner = fake_tracer.start_span("outer"), fake_tracer.start_span("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert fake_tracer.get_current_span() is inner
    inner.__exit__(None, None, None)
    assert fake_tracer.get_current_span() is None


def test_the_context_travels_in_w3c_headers(fake_tracer):
    headers = {}
    with fake_tracer.start_span("send") as span:
        fake_tracer.inject_context(headers)
    assert headers == {"traceparent": f"00-{span.context.trace_id}-{span.context.span_id}-01"}
    assert fake_tracer.extract_context(headers) == span.context


def test_headers_of_that_name_are_replaced_whatever_their_case(fake_tracer):
    headers = {"Traceparent": "old", "tracestate": "old", "other": "stays"}
    fake_tracer.inject_context(headers, SpanContext(TRACE, SPAN, sampled=False))
    assert headers == {"other": "stays", "traceparent": f"00-{TRACE}-{SPAN}-00"}


def test_trace_state_travels_along(fake_tracer):
    context, headers = SpanContext(TRACE, SPAN, trace_state="vendor=1"), {}
    fake_tracer.inject_context(headers, context)
    assert headers["tracestate"] == "vendor=1"
    assert fake_tracer.extract_context(headers) == context


def test_without_a_span_the_carrier_stays_as_it_is(fake_tracer):
    headers = {"traceparent": "theirs"}
    fake_tracer.inject_context(headers)
    assert headers == {"traceparent": "theirs"}


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_a_well_formed_header_is_read(fake_tracer, header, sampled):
    found = fake_tracer.extract_context({"TraceParent": header})
    assert found == SpanContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
    ],
)
def test_a_malformed_header_is_none(fake_tracer, header):
    assert fake_tracer.extract_context({"traceparent": header}) is None


def test_no_header_is_none(fake_tracer):
    assert fake_tracer.extract_context({}) is None


def test_a_missing_span_fails_with_the_list_of_spans(fake_tracer):
    fake_tracer.start_span("publish", {"topic": "a"})
    assert fake_tracer.assert_span("publish", topic="a") is fake_tracer.spans[0]
    with pytest.raises(AssertionError) as caught:
        fake_tracer.assert_span("publish", topic="b")
    assert str(caught.value) == (
        "no span 'publish' with {'topic': 'b'}; there are:\n  'publish' {'topic': 'a'}"
    )
    fake_tracer.clear()
    with pytest.raises(AssertionError, match="no span 'publish'; there are: none"):
        fake_tracer.assert_span("publish")


def test_two_tracers_do_not_share_the_current_span():
    one, other = FakeTracer(), FakeTracer(clock=FakeClock())
    with one.start_span("x"):
        assert other.get_current_span() is None
