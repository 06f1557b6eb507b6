"""Messages as Service Bus carries them: application properties beside the bare body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lexigram import clock
from lexigram.contracts.queue import BusMessage, DeadLetterEntry, DeadLetterReason
from lexigram.contracts.queue.headers import CONTENT_TYPE, CORRELATION_ID, ORDERING_KEY
from lexigram.contracts.queue.limits import MAX_ID_BYTES, is_text
from lexigram.queue.backends.azure_servicebus._links import EXTRA
from lexigram.queue.backends.clouds import hash_text
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.errors import AzureServiceBusQueueError
from lexigram.queue.runtime.envelope import (
    as_text,
    delay_of,
    from_dead_headers,
    from_headers,
    to_headers,
)

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage
LONGEST_TTL: Final = 49 * 24 * 3600.0  # seconds; the field on the wire holds 49.7 days
LONGEST_ID: Final = 128  # characters, also of a session
LONGEST_METADATA: Final = 1024
NATIVE: Final = ("DeadLetterReason", "DeadLetterErrorDescription", "Diagnostic-Id")


def encode(
    message: BusMessage,
    *,
    sessions: bool,
    delay: float = 0.0,
    native_id: str | None = None,
) -> ServiceBusMessage:
    """A message for the wire: headers beside the bare body."""
    headers, now = to_headers(message), clock.timestamp()
    delay = max(delay, delay_of(message, now))
    due = datetime.fromtimestamp(now + delay, UTC) if delay > 0 else None
    key = message.headers.get(ORDERING_KEY) if sessions else None
    make = require_library("azure.servicebus", extra=EXTRA).ServiceBusMessage
    made: ServiceBusMessage = make(
        message.payload,
        application_properties=dict(headers),
        message_id=fit_id(native_id or message.id),
        session_id=fit_id(key) if key else None,
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        scheduled_enqueue_time_utc=due,
    )
    if message.ttl is not None:
        left = message.timestamp + message.ttl - now - delay
        if 0 < left < LONGEST_TTL:  # what is over already is left to the runtime
            # Not by its own field: that one cuts to whole seconds.
            header = require_library("azure.servicebus.amqp", extra=EXTRA).AmqpMessageHeader
            made.raw_amqp_message.header = header(time_to_live=int(left * 1000) or 1)
    return made


def headers_of(raw: Any) -> dict[str, Any]:
    """The application's properties, without those of the service."""
    properties: Mapping[str | bytes, Any] = raw.application_properties or {}
    found = {as_text(name): value for name, value in properties.items()}
    return {name: value for name, value in found.items() if name not in NATIVE}


def _body(raw: Any) -> bytes:
    """The bytes; of a foreign producer that sent a value, its text."""
    kind = str(getattr(raw.body_type, "value", raw.body_type))
    if kind == "data":
        return b"".join(raw.body)
    value = raw.body if kind == "value" else list(raw.body)
    return value if isinstance(value, bytes) else as_text(value).encode()


def read_message(raw: Any, topic: str) -> BusMessage:
    headers = headers_of(raw)
    if "ce-id" not in headers:
        for name, value in ((CONTENT_TYPE, raw.content_type), (CORRELATION_ID, raw.correlation_id)):
            if value:
                headers.setdefault(name, value)
    return from_headers(headers, _body(raw), topic=topic, fallback_id=_native_id(raw))


def _native_id(raw: Any) -> str:
    given = as_text(raw.message_id)
    return given if is_text(given, MAX_ID_BYTES) else str(raw.sequence_number)


def read_dead_letter(raw: Any, topic: str, group: str) -> DeadLetterEntry:
    """A dead letter, also one that the service made."""
    headers = headers_of(raw)
    if "dead-reason" in headers:
        return from_dead_headers(headers, _body(raw), topic=topic, fallback_id=_native_id(raw))
    reason, message = str(raw.dead_letter_reason or ""), read_message(raw, topic)
    return DeadLetterEntry(
        message=message,
        error=str(raw.dead_letter_error_description or reason),
        failed_at=raw.enqueued_time_utc or datetime.now(UTC),
        retry_count=message.retry_count,
        reason=_REASONS.get(reason, DeadLetterReason.REJECTED),
        attempts=message.retry_count,
        group=group,
    )


_REASONS: Final = {
    "TTLExpiredException": DeadLetterReason.EXPIRED,
    "MaxDeliveryCountExceeded": DeadLetterReason.POISON,
}


def is_scheduled(raw: Any) -> bool:
    return str(getattr(raw.state, "name", raw.state)) == "SCHEDULED"


def to_metadata(**facts: Any) -> str:
    text = json.dumps(facts, ensure_ascii=False)
    if len(text) > LONGEST_METADATA:
        raise AzureServiceBusQueueError(
            f"the names have {len(text)} characters, and Service Bus keeps {LONGEST_METADATA}",
            topic=str(facts.get("topic", "unknown"))[:100],
            hint="use shorter names of topics and groups",
        )
    return text


def fit_id(text: str) -> str:
    return text if len(text) <= LONGEST_ID else hash_text(text)


def size_of(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(text.encode("utf-8", "replace")) for name, text in headers.items())
