"""Spans recorded by OpenTelemetry, behind our contract.

The tracer has a provider of its own and touches no global one. Its spans are current in the
context of OpenTelemetry, so that instrumentations of other libraries and ours nest.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from lexigram.contracts.observability.tracing import SpanContext
from lexigram.observability.errors import MissingLibraryError
from lexigram.observability.w3c import (
    BAGGAGE,
    header,
    is_valid,
    read_context,
    remove_headers,
    write_context,
)

try:
    from opentelemetry import baggage, trace
    from opentelemetry import context as otel_context
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    from opentelemetry.trace import NonRecordingSpan, Span, StatusCode, TraceFlags, TraceState
except ImportError as error:
    raise MissingLibraryError("tracing with OpenTelemetry", "otel") from error


class OtelTracer:
    """Records spans with the OpenTelemetry SDK; add a span processor to have them exported.

    Baggage travels with the context: ``extract_context`` keeps what came in, a span started
    below it puts it into the context when entered, and ``inject_context`` writes it out.
    """

    def __init__(
        self,
        service_name: str,
        *,
        sample_ratio: float = 1.0,
        resource_attributes: Mapping[str, str] | None = None,
    ) -> None:
        own = {**(resource_attributes or {}), "service.name": service_name}
        self.provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            # Not Resource.create: it loads plug-ins, which blocks the event loop.
            resource=OTELResourceDetector().detect().merge(Resource(own)),
            shutdown_on_exit=False,  # the provider of the application does it
        )
        # Where ended spans go, once the application runs.
        self.exporter: SpanExporter | None = None
        self._tracer = self.provider.get_tracer("lexigram")

    def start_span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        context: SpanContext | None = None,
    ) -> OtelSpan:
        """A running span; child of ``context``, else of the current span, else a new trace."""
        given = {key: _fact(value) for key, value in attributes.items()} if attributes else None
        if context is None:
            # Asked through us and not the library: an ended span is nobody's parent.
            current = self.get_current_span()
            outside = trace.INVALID_SPAN if current is None else current.recorded
            return OtelSpan(self._start(name, given, outside))
        carried = context.baggage if isinstance(context, CarriedContext) else None
        return OtelSpan(self._start(name, given, _remote(context)), carried)

    def get_current_span(self) -> OtelSpan | None:
        """The innermost span entered by this task or a parent of it."""
        entered, recorded = _current(), trace.get_current_span()
        if entered is not None and entered.recorded is recorded:
            return entered.innermost_running()
        # A span that another library entered directly.
        return OtelSpan(recorded) if recorded.get_span_context().is_valid else None

    def inject_context(
        self, carrier: MutableMapping[str, str], context: SpanContext | None = None
    ) -> None:
        """Write ``traceparent``, ``tracestate`` and ``baggage`` into the carrier."""
        if context is None:
            current = self.get_current_span()
            context = current.context if current is not None else None
        if context is None or not is_valid(context):
            return
        write_context(carrier, context)
        carried = context.baggage if isinstance(context, CarriedContext) else baggage.get_all()
        if carried:
            remove_headers(carrier, (BAGGAGE,))
            _BAGGAGE.inject(carrier, _with_baggage(carried, otel_context.Context()))

    def extract_context(self, carrier: Mapping[str, str]) -> SpanContext | None:
        """Read the W3C headers; None when ``traceparent`` is missing or malformed."""
        context = read_context(carrier)
        text = header(carrier, BAGGAGE) if context is not None else None
        if context is None or not text:
            return context
        carried = baggage.get_all(_BAGGAGE.extract({BAGGAGE: text}, otel_context.Context()))
        return CarriedContext(**vars(context), baggage=carried) if carried else context

    def _start(self, name: str, attributes: dict[str, Any] | None, parent: Span) -> Span:
        return self._tracer.start_span(
            name, context=trace.set_span_in_context(parent), attributes=attributes
        )


@dataclass(frozen=True)
class CarriedContext(SpanContext):
    """A context that came with W3C baggage."""

    baggage: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)


class OtelSpan:
    """One span of OpenTelemetry; ``recorded`` is the library's own."""

    __slots__ = (
        "_baggage",
        "_below",
        "_ended",
        "_entered",
        "_foreign",
        "_outside",
        "_status",
        "recorded",
    )

    def __init__(self, recorded: Span, carried: Mapping[str, Any] | None = None) -> None:
        self.recorded = recorded
        self._baggage = carried or {}
        self._entered = False
        self._ended = False
        self._status: tuple[StatusCode, str | None] | None = None
        # What was current when this was entered: one of ours, or what another library entered.
        self._below: OtelSpan | None = None
        self._foreign: Span = trace.INVALID_SPAN
        self._outside = otel_context.Context()

    @property
    def context(self) -> SpanContext | None:
        """What to hand to other processes."""
        inner = self.recorded.get_span_context()
        if not inner.is_valid:
            return None
        return SpanContext(
            trace_id=trace.format_trace_id(inner.trace_id),
            span_id=trace.format_span_id(inner.span_id),
            sampled=inner.trace_flags.sampled,
            trace_state=inner.trace_state.to_header(),
        )

    def set_attribute(self, key: str, value: Any) -> None:
        """Attach a fact; what OpenTelemetry has no type for is attached as text."""
        if not self._ended:
            self.recorded.set_attribute(key, _fact(value))

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Note that something happened now."""
        if not self._ended:
            facts = {key: _fact(value) for key, value in (attributes or {}).items()}
            self.recorded.add_event(name, facts)

    def record_exception(self, exception: BaseException) -> None:
        """Note an exception."""
        if not self._ended:
            self.recorded.record_exception(exception)

    def set_status(self, status: str, description: str | None = None) -> None:
        """Set "ok" or "error"; the last call wins, and another word is an error so described."""
        # Kept until the end: for OpenTelemetry an "ok" is final, for our contract it is not.
        if status == "ok":
            self._status = (StatusCode.OK, None)  # OpenTelemetry describes errors only
        else:
            self._status = (
                StatusCode.ERROR,
                description or (status if status != "error" else None),
            )

    def end(self) -> None:
        """Stop the time. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        if self._status is not None:
            self.recorded.set_status(*self._status)
        self.recorded.end()

    def innermost_running(self) -> OtelSpan | None:
        """This span, or the nearest one below it that has not ended."""
        span = self
        while span._ended:
            if span._below is None:
                valid = span._foreign.get_span_context().is_valid
                return OtelSpan(span._foreign) if valid else None
            span = span._below
        return span

    def __enter__(self) -> Self:
        if self._ended or self._entered:
            return self
        self._entered = True
        entered, recorded = _current(), trace.get_current_span()
        if entered is not None and entered.recorded is recorded:
            self._below = entered
        else:
            self._foreign = recorded
        self._outside = otel_context.get_current()
        _make_current(self, self.recorded, _with_baggage(self._baggage, self._outside))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        if exc is not None:
            self.record_exception(exc)
            self.set_status("error", str(exc) or type(exc).__name__)
        self.end()
        # Not by token: a span left in another task than it was entered in must not complain.
        if _current() is self:
            outer = self.innermost_running()
            recorded = outer.recorded if outer is not None else trace.INVALID_SPAN
            _make_current(outer, recorded, self._outside)

    def __repr__(self) -> str:
        return f"<OtelSpan {self.context}>"


_CURRENT = otel_context.create_key("lexigram-span")
_BAGGAGE = W3CBaggagePropagator()


def _current() -> OtelSpan | None:
    found = otel_context.get_value(_CURRENT)
    return found if isinstance(found, OtelSpan) else None


def _make_current(span: OtelSpan | None, recorded: Span, context: otel_context.Context) -> None:
    inside = trace.set_span_in_context(recorded, context)
    otel_context.attach(otel_context.set_value(_CURRENT, span, inside))


def _with_baggage(
    carried: Mapping[str, Any], context: otel_context.Context
) -> otel_context.Context:
    for key, value in carried.items():
        context = baggage.set_baggage(key, value, context)
    return context


def _remote(context: SpanContext) -> Span:
    """The parent in another process; ids that are none begin a new trace."""
    if not is_valid(context):
        return trace.INVALID_SPAN
    return NonRecordingSpan(
        trace.SpanContext(
            trace_id=int(context.trace_id, 16),
            span_id=int(context.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
            trace_state=TraceState.from_header([context.trace_state]),
        )
    )


def _fact(value: Any) -> Any:
    """A value OpenTelemetry takes: itself, a list of one simple type, or its text."""
    if isinstance(value, bool | int | float | str) or _is_simple_list(value):
        return value
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - attributes are objects of others
        return f"<{type(value).__name__}>"


def _is_simple_list(value: Any) -> bool:
    if type(value) not in (list, tuple):
        return False
    kinds: set[type] = {type(item) for item in value}
    return len(kinds) <= 1 and kinds <= {bool, int, float, str}
