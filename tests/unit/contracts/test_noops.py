import inspect

import pytest

from lexigram.contracts.core.hooks import HookRegistryProtocol, NoOpHookRegistry
from lexigram.contracts.core.result import Ok
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol, NoOpEventBus
from lexigram.contracts.observability import (
    MetricsProtocol,
    NoOpMetrics,
    NoOpSpan,
    NoOpTracer,
    SpanProtocol,
    TracerProtocol,
)

PAIRS = [
    (NoOpHookRegistry, HookRegistryProtocol),
    (NoOpEventBus, EventBusProtocol),
    (NoOpTracer, TracerProtocol),
    (NoOpSpan, SpanProtocol),
    (NoOpMetrics, MetricsProtocol),
]


@pytest.mark.parametrize(("noop", "protocol"), PAIRS)
def test_a_no_op_is_an_instance_of_its_protocol(noop, protocol):
    assert isinstance(noop(), protocol)
    assert not isinstance(object(), protocol)


@pytest.mark.parametrize(("noop", "protocol"), PAIRS)
def test_a_no_op_takes_the_same_arguments_as_its_protocol(noop, protocol):
    for name, method in vars(protocol).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert inspect.signature(getattr(noop, name)) == inspect.signature(method), name


async def test_hooks_nobody_listens_to():
    hooks = NoOpHookRegistry()
    hooks.register_action("saved", print)
    hooks.register_filter("price", print, 5, once=True)
    await hooks.call_action("saved", hook_name="also fine as a fact")
    assert await hooks.apply_filter("price", 10, currency="EUR") == 10
    assert not hooks.has_action("saved")
    assert not hooks.has_filter("price")
    assert not hooks.unregister_action("saved", print)
    assert not hooks.unregister_filter("price", print)
    hooks.clear()


async def test_events_nobody_listens_to():
    bus = NoOpEventBus()
    bus.subscribe(DomainEvent, print)
    assert not bus.has_subscribers(DomainEvent)
    assert await bus.publish(DomainEvent()) == Ok(None)
    assert not bus.unsubscribe(DomainEvent, print)


def test_spans_nobody_records():
    tracer = NoOpTracer()
    carrier = {"x": "1"}
    with tracer.start_span("work", {"a": 1}) as span:
        span.set_attribute("b", 2)
        span.add_event("half")
        span.set_status("error", "why")
        tracer.inject_context(carrier, span.context)
        assert tracer.get_current_span() is None
    span.end()
    assert carrier == {"x": "1"}
    assert tracer.extract_context({"traceparent": "00-" + "a" * 32}) is None


def test_a_span_nobody_records_lets_exceptions_pass():
    with pytest.raises(ValueError, match="boom"), NoOpTracer().start_span("work") as span:
        span.record_exception(ValueError("seen"))
        raise ValueError("boom")


def test_figures_nobody_collects():
    metrics = NoOpMetrics()
    metrics.increment("jobs")
    metrics.increment("jobs", 2, {"pool": "a"})
    metrics.gauge("depth", 3.0)
    metrics.histogram("seconds", 0.1, tags={"pool": "a"})
