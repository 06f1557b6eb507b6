"""Follow one piece of work through processes, without knowing who records it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable


@dataclass(frozen=True)
class SpanContext:
    """The part of a span that travels: W3C ids as lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool = True
    trace_state: str = ""


@runtime_checkable
class SpanProtocol(Protocol):
    """One timed piece of work. Used as a context manager, or ended by hand.

    Entering makes the span current for the task and its children; leaving ends it, and an
    exception that passes (cancellation too) is recorded, with status "error", and goes on.
    No method raises; after ``end`` all of them do nothing.
    """

    @property
    def context(self) -> SpanContext | None:
        """What to hand to other processes; None when nothing is recorded."""
        ...

    def set_attribute(self, key: str, value: Any) -> None:
        """Attach a fact; a second call with the key replaces it."""
        ...

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Note that something happened now; each call notes again."""
        ...

    def record_exception(self, exception: BaseException) -> None:
        """Note an exception; does not change the status."""
        ...

    def set_status(self, status: str, description: str | None = None) -> None:
        """Set "ok" or "error"; the last call wins."""
        ...

    def end(self) -> None:
        """Stop the time. Only the first call counts."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class TracerProtocol(Protocol):
    """Starts spans and carries their context in and out of headers. No method raises.

    Not guaranteed: that a span is recorded (sampling), delivered, or delivered once.
    """

    def start_span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        context: SpanContext | None = None,
    ) -> SpanProtocol:
        """A running span; child of ``context``, else of the current span, else a new trace.

        It becomes current only when entered. A caller that starts it without ``with`` must end it.
        """
        ...

    def get_current_span(self) -> SpanProtocol | None:
        """The innermost span entered by this task or a parent of it."""
        ...

    def inject_context(
        self, carrier: MutableMapping[str, str], context: SpanContext | None = None
    ) -> None:
        """Write W3C headers for ``context`` or the current span into the carrier.

        Headers of that name are replaced; without a span the carrier stays as it is.
        """
        ...

    def extract_context(self, carrier: Mapping[str, str]) -> SpanContext | None:
        """Read W3C headers; None when they are missing or malformed."""
        ...


class NoOpSpan:
    """A span that records nothing."""

    __slots__ = ()

    @property
    def context(self) -> SpanContext | None:
        """None: nothing is recorded."""
        return None

    def set_attribute(self, key: str, value: Any) -> None:
        """Ignored."""

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Ignored."""

    def record_exception(self, exception: BaseException) -> None:
        """Ignored."""

    def set_status(self, status: str, description: str | None = None) -> None:
        """Ignored."""

    def end(self) -> None:
        """Nothing to stop."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Exceptions pass."""


_NOOP_SPAN = NoOpSpan()  # one for all: a no-op call must cost no allocation


class NoOpTracer:
    """A tracer that records nothing: what a library uses when the application has none."""

    __slots__ = ()

    def start_span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        context: SpanContext | None = None,
    ) -> SpanProtocol:
        """The shared span that records nothing."""
        return _NOOP_SPAN

    def get_current_span(self) -> SpanProtocol | None:
        """None."""
        return None

    def inject_context(
        self, carrier: MutableMapping[str, str], context: SpanContext | None = None
    ) -> None:
        """Leaves the carrier as it is."""

    def extract_context(self, carrier: Mapping[str, str]) -> SpanContext | None:
        """None."""
        return None
