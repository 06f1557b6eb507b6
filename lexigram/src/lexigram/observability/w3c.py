"""W3C trace context: headers into a ``SpanContext`` and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final

from lexigram.contracts.observability.tracing import SpanContext

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

# Version 00 ends after the flags; a later version may go on, and ff is never valid.
_TRACEPARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)
_IDS = re.compile(r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}")


def read_context(carrier: Mapping[str, str]) -> SpanContext | None:
    """The context in the headers, whose names are in upper or lower case; None when missing or malformed."""
    parent = header(carrier, TRACEPARENT)
    found = _TRACEPARENT.fullmatch(parent.strip()) if parent else None
    if found is None or (found["version"] == "00" and found["rest"]):
        return None
    context = SpanContext(
        trace_id=found["trace"],
        span_id=found["span"],
        sampled=bool(int(found["flags"], 16) & 1),
        trace_state=header(carrier, TRACESTATE) or "",
    )
    return context if is_valid(context) else None


def write_context(carrier: MutableMapping[str, str], context: SpanContext) -> None:
    """Write ``traceparent``, and ``tracestate`` where there is one, in place of older ones."""
    remove_headers(carrier, (TRACEPARENT, TRACESTATE))
    flags = "01" if context.sampled else "00"
    carrier[TRACEPARENT] = f"00-{context.trace_id}-{context.span_id}-{flags}"
    if context.trace_state:
        carrier[TRACESTATE] = context.trace_state


def is_valid(context: SpanContext) -> bool:
    """True when both ids have their length in lower-case hex and are not all zeros."""
    return _IDS.fullmatch(f"{context.trace_id}-{context.span_id}") is not None


def header(carrier: Mapping[str, str], name: str) -> str | None:
    """The header of that name, in upper or lower case; None when it is missing or no text."""
    value: object = carrier.get(name)
    if value is None:
        value = next((text for key, text in carrier.items() if _lower(key) == name), None)
    return value if isinstance(value, str) else None


def remove_headers(carrier: MutableMapping[str, str], names: Iterable[str]) -> None:
    """Remove headers of these names, in upper or lower case."""
    wanted = frozenset(names)
    for key in [key for key in carrier if _lower(key) in wanted]:
        del carrier[key]


def _lower(key: object) -> str:
    # Headers come from brokers and clients of others; a key that is no text is not ours.
    return key.lower() if isinstance(key, str) else ""
