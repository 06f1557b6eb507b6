"""Messages as AMQP carries them: properties and headers beside the bare body."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from lexigram.contracts.queue import BusMessage, DeadLetterEntry, DeadLetterReason, Delivery
from lexigram.contracts.queue.headers import CONTENT_TYPE, CORRELATION_ID, UNREADABLE
from lexigram.contracts.queue.limits import MAX_ID_BYTES, is_text, read_moment
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.rabbitmq._frames import UNDECODABLE
from lexigram.queue.runtime.envelope import (
    SHOWN,
    as_text,
    delay_of,
    from_dead_headers,
    from_headers,
    to_headers,
)

NAME: Final = "rabbitmq"
HIGHEST_PRIORITY: Final = 9

# Our own headers, never seen by the application: deliveries before this copy was made, and the
# time before which it is not due.
DELIVERIES: Final = "x-lex-deliveries"
DUE: Final = "x-lex-due"
_ROUTING: Final = ("CC", "BCC")
_MAYBE_ROUTING: Final = "CC"  # a part of both: one look at all names
_BROKERS: Final = (
    "x-death",
    "x-first-death-",
    "x-last-death-",
    "x-delivery-count",
    "x-acquired-count",
    "x-lex-",
)


class Out(NamedTuple):
    """One message on its way to the broker."""

    exchange: str
    key: str
    properties: Any
    body: bytes


def outgoing(
    exchange: str, key: str, message: BusMessage, headers: dict[str, Any] | None = None
) -> Out:
    """A message for the wire: headers beside the bare body, persistent."""
    native: dict[str, Any] = to_headers(message) if headers is None else headers
    if _MAYBE_ROUTING in "".join(native):
        native = {f"~{name}" if _is_routing(name) else name: text for name, text in native.items()}
    properties = properties_class()(
        headers=native,
        delivery_mode=2,
        message_id=message.id,
        content_type=_cut(native.get(CONTENT_TYPE)),
        correlation_id=_cut(native.get(CORRELATION_ID)),
        priority=min(max(message.priority, 0), HIGHEST_PRIORITY) or None,
    )
    return Out(exchange, key, properties, message.payload)


def note_deliveries(properties: Any, deliveries: int) -> None:
    if deliveries:
        properties.headers[DELIVERIES] = deliveries


def parse_json(body: bytes) -> Any:
    """Bytes as JSON; None where they are not."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def mark_of(delivery: Delivery) -> bytes:
    return delivery.message.id.encode("utf-8", "surrogatepass")


def native_headers(raw: Any) -> dict[str, Any]:
    headers: dict[str, Any] | None = raw.header.properties.headers
    return headers or {}


def _applications(raw: Any) -> dict[str, Any]:
    """The headers without those of brokers and of this driver."""
    own = {name: one for name, one in native_headers(raw).items() if not name.startswith(_BROKERS)}
    if _MAYBE_ROUTING not in "".join(own):
        return own
    return {name[name[0] == "~" :] if _is_routing(name) else name: own[name] for name in own}


def _is_routing(name: str) -> bool:
    """Whether the name stands behind one tilde more on the wire."""
    return name.lstrip("~") in _ROUTING


def read_message(raw: Any, topic: str, exchange: str) -> BusMessage:
    """The message of a delivery, ours or of others; the id is empty where it has none."""
    properties = raw.header.properties
    headers = _applications(raw)
    if raw.delivery.exchange == exchange and raw.delivery.routing_key:
        topic = raw.delivery.routing_key
    if "ce-id" not in headers:
        for name, value in (
            (CONTENT_TYPE, properties.content_type),
            (CORRELATION_ID, properties.correlation_id),
            ("ce-lexpriority", properties.priority),
        ):
            if value:
                headers.setdefault(name, value)
    if properties.cluster_id == UNDECODABLE:
        headers[UNREADABLE] = "all properties and headers"
    elif (due := native_headers(raw).get(DUE)) is not None and read_moment(as_text(due)) is None:
        headers[UNREADABLE] = f"{DUE} {as_text(due)[:SHOWN]!a}"
    return from_headers(headers, raw.body, topic=topic, fallback_id=_native_id(properties))


def _native_id(properties: Any) -> str:
    """The id that another producer gave; empty where it is none that can be published."""
    given: str = properties.message_id or ""
    return given if is_text(given, MAX_ID_BYTES) else ""


def read_dead_letter(raw: Any, topic: str, group: str, exchange: str) -> DeadLetterEntry:
    """A dead letter, also one that the broker made."""
    native = native_headers(raw)
    nameless = sha256(as_text(native).encode() + raw.body).hexdigest()
    if "dead-reason" in native:
        return from_dead_headers(
            _applications(raw),
            raw.body,
            topic=topic,
            fallback_id=_native_id(raw.header.properties) or nameless,
        )
    match native.get("x-death"):
        case [{"reason": str() as reason, "time": datetime() as failed_at}, *_]:
            pass
        case _:
            reason, failed_at = "unknown", datetime.now(UTC)
    message = read_message(raw, topic, exchange)
    if not message.id:
        message = replace(message, id=nameless)  # the same whenever it is looked at
    return DeadLetterEntry(
        message=message,
        error=f"set aside by the broker: {reason}",
        failed_at=failed_at,
        retry_count=message.retry_count,
        reason=_REASONS.get(reason, DeadLetterReason.REJECTED),
        attempts=message.retry_count,
        group=group,
    )


_REASONS: Final = {
    "expired": DeadLetterReason.EXPIRED,
    "delivery_limit": DeadLetterReason.POISON,
}


def delay_left(message: BusMessage, headers: Mapping[str, Any]) -> float:
    """Seconds until it is due."""
    now = time.time()
    due = read_moment(as_text(headers[DUE])) if DUE in headers else None
    return max(delay_of(message, now), (due or 0.0) - now)


@lru_cache
def properties_class() -> Any:
    return require_library("pamqp.commands", extra=NAME).Basic.Properties


def _cut(text: str | None) -> str | None:
    """A short text of AMQP, or nothing where it is too long for one."""
    return text if text and len(text.encode()) < 256 else None


def size_of(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(text.encode()) for name, text in headers.items())


def whole(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0
