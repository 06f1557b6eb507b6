"""Messages as Pub/Sub carries them: attributes beside the bare body."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from lexigram.contracts.queue import BusMessage, DeadLetterEntry, DeadLetterReason
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.contracts.queue.limits import MAX_RETRIES, read_moment, read_number
from lexigram.queue.backends.clouds import hash_text, json_object
from lexigram.queue.runtime.envelope import (
    SHOWN,
    from_dead_headers,
    from_headers,
    keep_known,
    mark_unreadable,
    to_headers,
)

LONGEST_DELAY: Final = 600  # seconds, of one delivery
MAX_MESSAGES_PER_REQUEST: Final = 1000  # of a publish, an acknowledgement or a pull
MOST_BYTES: Final = 10_000_000  # of a publish, and so of a message
MOST_ATTRIBUTES: Final = 100
MAX_USER_ATTRIBUTES: Final = 90  # attributes at first; retries and dead letters add some
MAX_RETRY_ATTRIBUTES: Final = 2  # of these, what comes back with the message: retries, begun
FEW_ATTRIBUTES: Final = 50  # so few leave room for all that is added
LONGEST_NAME, LONGEST_VALUE = 256, 1024  # bytes, of an attribute
LONGEST_KEY: Final = 1024  # bytes

HEADERS: Final = 130_000  # bytes: what attributes can be, and a little more
SPARE: Final = 2_000  # bytes of a publish around its message, and for a note that it was cut

ONLY: Final = "lexonly"  # the group a message is for
DUE: Final = "lexdue"  # not before, seconds since 1970
LONG: Final = "lexlong"  # which attributes are in pieces, and in how many
NATIVE: Final = ("CloudPubSub", "googclient_")
SOURCE_COUNT: Final = "CloudPubSubDeadLetterSourceDeliveryCount"


@frozen(kw_only=True)
class Out:
    """A message for the wire."""

    body: bytes
    attributes: dict[str, str]
    key: str

    @property
    def size(self) -> int:
        attributes = sum(len(name) + len(text) * 3 + 16 for name, text in self.attributes.items())
        return len(self.body) + attributes + len(self.key) + 16

    def native(self) -> dict[str, Any]:
        return {"data": self.body, "attributes": self.attributes, "ordering_key": self.key}


def chunks(outs: Sequence[Out]) -> Generator[list[Out]]:
    """What one request takes: messages of one key, so many, so large."""
    chunk, size = list[Out](), 0
    for out in outs:
        full = len(chunk) == MAX_MESSAGES_PER_REQUEST or size + out.size > MOST_BYTES - HEADERS
        if chunk and (full or chunk[-1].key != out.key):
            yield chunk
            chunk, size = [], 0
        chunk.append(out)
        size += out.size
    if chunk:
        yield chunk


def to_attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as attributes; long ones in pieces, names of Google's behind a tilde."""
    found: dict[str, str] = {}
    pieces: dict[str, int] = {}
    for header, value in headers.items():
        name = f"~{header}" if header.startswith(("goog", "~")) else header
        text = value.encode("utf-8", "replace").decode()
        if len(text.encode()) <= LONGEST_VALUE:
            found[name] = text
            continue
        size = LONGEST_VALUE if text.isascii() else LONGEST_VALUE // 4
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        found.update({f"{name}~{number}": part for number, part in enumerate(parts)})
        pieces[name] = len(parts)
    if pieces:
        found[LONG] = json.dumps(pieces)
    return found


def own_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Attributes without those the service and its client libraries add."""
    return {name: text for name, text in attributes.items() if not name.startswith(NATIVE)}


def _headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """The inverse of ``to_attributes``; a message of another program has none of our marks."""
    found = own_attributes(attributes)
    found.pop(ONLY, None)
    wrong = list[str]()
    if (due := found.pop(DUE, None)) is not None and read_moment(due) is None:
        wrong.append(f"{DUE} {due[:SHOWN]!a}")
    pieces = found.pop(LONG, None)
    if pieces is not None:
        numbers = json_object(pieces)
        if not _join(found, numbers):
            wrong.append(f"{LONG} {pieces[:SHOWN]!a}")
    headers = {name.removeprefix("~"): text for name, text in found.items()}
    if wrong:
        mark_unreadable(headers, *wrong)
    return headers


def _join(found: dict[str, str], pieces: Mapping[str, Any]) -> bool:
    """Put long values together again; False where the pieces are not there."""
    if not pieces:
        return False
    for name, number in pieces.items():
        if not isinstance(number, int) or not 0 < number <= MOST_ATTRIBUTES:
            return False
        parts = [found.pop(f"{name}~{one}", None) for one in range(number)]
        if None in parts:
            return False
        found[name] = "".join(part for part in parts if part is not None)
    return True


def read_message(native: Any, topic: str) -> BusMessage:
    headers = _headers(native.attributes)
    if native.ordering_key and "ce-id" not in headers:
        headers.setdefault(ORDERING_KEY, native.ordering_key)
    message = from_headers(headers, bytes(native.data), topic=topic, fallback_id=native.message_id)
    number = len(native.attributes)
    # A message without our own attributes has more of them when it is sent again.
    if (
        number > FEW_ATTRIBUTES
        and len(to_attributes(to_headers(message))) > MAX_USER_ATTRIBUTES + MAX_RETRY_ATTRIBUTES
    ):
        kept = keep_known(message.headers)
        mark_unreadable(kept, f"{number} attributes, which leave none for a retry")
        return replace(message, headers=kept)
    return message


def read_dead_letter(native: Any, topic: str, group: str) -> DeadLetterEntry:
    """A dead letter, also one that the service made."""
    headers, body = _headers(native.attributes), bytes(native.data)
    if "dead-reason" in headers:
        return from_dead_headers(headers, body, topic=topic, fallback_id=native.message_id)
    message = read_message(native, topic)
    times = native.attributes.get(SOURCE_COUNT, "")
    return DeadLetterEntry(
        message=message,
        error=f"Pub/Sub delivered it {times or 'too many'} times",
        failed_at=datetime.fromtimestamp(read_publish_time(native), UTC),
        retry_count=message.retry_count,
        reason=DeadLetterReason.POISON,
        attempts=int(read_number(times, MAX_RETRIES) or message.retry_count),
        group=group,
    )


def due_of(native: Any) -> float:
    return read_moment(native.attributes.get(DUE, "")) or 0.0


def read_publish_time(native: Any) -> float:
    """Seconds since 1970."""
    return float(native.publish_time.seconds + native.publish_time.nanos / 1e9)


def turn_of(raw: Any) -> float:
    """When it could be delivered first; messages of a key stay in their order."""
    published = read_publish_time(raw.message)
    return published if raw.message.ordering_key else max(published, due_of(raw.message))


def count_deliveries(raw: Any) -> int:
    """Deliveries to a handler: those of a message that was not due are not counted."""
    waited = due_of(raw.message) - read_publish_time(raw.message)
    early = 1 + int(waited // LONGEST_DELAY) if waited > 0 else 0
    return max(1, int(raw.delivery_attempt) - early)


def fit_key(key: str) -> str:
    return key if len(key.encode("utf-8", "replace")) <= LONGEST_KEY else hash_text(key)
