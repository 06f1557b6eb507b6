"""A tracer that keeps its spans, so that a test can look at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

from attrs import frozen

from lexigram.contracts.core.clock import ClockProtocol
from lexigram.contracts.observability.tracing import SpanContext
from lexigram.testing.fakes.clock import FakeClock

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# Version 00 ends after the flags; a later version may go on, and ff is never valid.
_TRACEPARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)


class FakeTracer:
    """Keeps every span in ``spans``, in the order they were started.

    Ids count up from 1, so a test can write them down. Nothing is sampled away.
    """

    def __init__(self, clock: ClockProtocol | None = None) -> None:
        self.clock: ClockProtocol = clock if clock is not None else FakeClock()
        self.spans: list[FakeSpan] = []
        self._traces = 0
        self._span_ids = 0
        # Entered spans of the running task, innermost last.
        self._entered: ContextVar[tuple[FakeSpan, ...]] = ContextVar("fake_spans", default=())

    def start_span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        context: SpanContext | None = None,
    ) -> FakeSpan:
        """A running span; child of ``context``, else of the current span, else a new trace."""
        current = self.get_current_span()
        parent = context or (current.context if current else None)
        span = FakeSpan(self, name, self._context_below(parent), parent, attributes or {})
        self.spans.append(span)
        return span

    def get_current_span(self) -> FakeSpan | None:
        """The innermost span entered by this task or a parent of it."""
        running = [span for span in self._entered.get() if not span.ended]
        return running[-1] if running else None

    def inject_context(
        self, carrier: MutableMapping[str, str], context: SpanContext | None = None
    ) -> None:
        """Write ``traceparent``, and ``tracestate`` where there is one, into the carrier."""
        current = self.get_current_span()
        context = context or (current.context if current else None)
        if context is None:
            return
        for header in [key for key in carrier if key.lower() in {TRACEPARENT, TRACESTATE}]:
            del carrier[header]
        flags = "01" if context.sampled else "00"
        carrier[TRACEPARENT] = f"00-{context.trace_id}-{context.span_id}-{flags}"
        if context.trace_state:
            carrier[TRACESTATE] = context.trace_state

    def extract_context(self, carrier: Mapping[str, str]) -> SpanContext | None:
        """Read the W3C headers, in upper or lower case; None when missing or malformed."""
        headers = {key.lower(): value for key, value in carrier.items()}
        found = _TRACEPARENT.fullmatch(headers.get(TRACEPARENT, "").strip())
        if found is None or (found["version"] == "00" and found["rest"]):
            return None
        if not (int(found["trace"], 16) and int(found["span"], 16)):
            return None
        sampled = bool(int(found["flags"], 16) & 1)
        return SpanContext(found["trace"], found["span"], sampled, headers.get(TRACESTATE, ""))

    @property
    def finished(self) -> list[FakeSpan]:
        """Spans that have ended, in the order they were started."""
        return [span for span in self.spans if span.ended]

    def named(self, name: str) -> list[FakeSpan]:
        """Spans of that name."""
        return [span for span in self.spans if span.name == name]

    def children_of(self, span: FakeSpan) -> list[FakeSpan]:
        """Spans started directly below ``span``."""
        return [child for child in self.spans if child.parent == span.context]

    def assert_span(self, name: str, /, **attributes: Any) -> FakeSpan:
        """The first span of that name with these attributes; fails and lists the spans."""
        for span in self.named(name):
            if attributes.items() <= span.attributes.items():
                return span
        wanted = f"{name!r} with {attributes}" if attributes else repr(name)
        seen = "".join(f"\n  {span.name!r} {span.attributes}" for span in self.spans)
        raise AssertionError(f"no span {wanted}; there are:{seen or ' none'}")

    def clear(self) -> None:
        """Forget the spans; those entered stay current."""
        self.spans.clear()

    def _context_below(self, parent: SpanContext | None) -> SpanContext:
        self._span_ids += 1
        span_id = f"{self._span_ids:016x}"
        if parent is not None:
            return SpanContext(parent.trace_id, span_id, parent.sampled, parent.trace_state)
        self._traces += 1
        return SpanContext(f"{self._traces:032x}", span_id)


@frozen
class FakeSpanEvent:
    """Something noted on a span."""

    name: str
    attributes: Mapping[str, Any]
    at: float  # on the tracer's monotonic clock


class FakeSpan:
    """One span with everything that was said of it."""

    def __init__(
        self,
        tracer: FakeTracer,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: Mapping[str, Any],
    ) -> None:
        self._tracer = tracer
        self._context = context
        self.name = name
        self.parent = parent
        self.attributes: dict[str, Any] = dict(attributes)
        self.events: list[FakeSpanEvent] = []
        self.exceptions: list[BaseException] = []
        self.status: str | None = None
        self.description: str | None = None
        self.started_at = tracer.clock.monotonic()
        self.ended_at: float | None = None

    @property
    def context(self) -> SpanContext:
        """What to hand to other processes."""
        return self._context

    @property
    def ended(self) -> bool:
        """True from ``end`` on."""
        return self.ended_at is not None

    @property
    def duration(self) -> float | None:
        """Seconds on the tracer's clock; None while it runs."""
        return None if self.ended_at is None else self.ended_at - self.started_at

    def set_attribute(self, key: str, value: Any) -> None:
        """Attach a fact."""
        if not self.ended:
            self.attributes[key] = value

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Note that something happened."""
        if not self.ended:
            now = self._tracer.clock.monotonic()
            self.events.append(FakeSpanEvent(name, dict(attributes or {}), now))

    def record_exception(self, exception: BaseException) -> None:
        """Note an exception."""
        if not self.ended:
            self.exceptions.append(exception)

    def set_status(self, status: str, description: str | None = None) -> None:
        """Set "ok" or "error"."""
        if not self.ended:
            self.status, self.description = status, description

    def end(self) -> None:
        """Stop the time; only the first call counts."""
        if not self.ended:
            self.ended_at = self._tracer.clock.monotonic()

    def __enter__(self) -> Self:
        entered = self._tracer._entered  # noqa: SLF001 - the two are one fake in two classes
        entered.set((*entered.get(), self))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        # Not by token: a span left in another task than it was entered in must not raise.
        entered = self._tracer._entered  # noqa: SLF001 - the two are one fake in two classes
        entered.set(tuple(span for span in entered.get() if span is not self))
        if exc is not None:
            self.record_exception(exc)
            self.set_status("error", str(exc) or type(exc).__name__)
        self.end()

    def __repr__(self) -> str:
        return f"<FakeSpan {self.name!r} {self.attributes}>"
