"""Messages as entries of a stream: the bare body in a field, the rest in fields of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from lexigram.contracts.queue import (
    BusMessage,
    CapabilityError,
    DeadLetterEntry,
    MessageTooLargeError,
)
from lexigram.contracts.queue.headers import FAIRNESS_KEY, ORDERING_KEY
from lexigram.queue.runtime.envelope import delay_of, from_dead_headers, to_headers

NAME: Final = "redis"
BODY: Final = b"body"  # the first field of this name; a header called body comes after it
LANES: Final = 16  # keys of one lane share it
HIGHEST_LEVEL: Final = 9
MAX_BYTES: Final = 500 * 1024 * 1024  # Redis takes 512 MB in one string
BATCH_BYTES: Final = 16 * 1024 * 1024  # of one call of the publish script


def pages_of(
    messages: Sequence[BusMessage], about: Sequence[Any]
) -> Iterable[tuple[list[BusMessage], list[Any]]]:
    """Messages for one call of the publish script, with its arguments; ``about`` come first."""
    page: list[BusMessage] = []
    arguments: list[Any] = []
    size = 0
    for message in messages:
        if page and size + len(message.payload) > BATCH_BYTES:
            yield page, [*about, len(page), *arguments]
            page, arguments, size = [], [], 0
        kind = _check_kind(message)
        delay = delay_of(message) if message.headers else 0.0
        fields = to_fields(to_headers(message), message.payload)
        arguments += (
            message.topic,
            kind,
            message.id,
            milliseconds(delay) if delay else 0,
            len(fields),
        )
        arguments += fields
        page.append(message)
        size += len(message.payload)
    if page:
        yield page, [*about, len(page), *arguments]


def _check_kind(message: BusMessage) -> str:
    if len(message.payload) > MAX_BYTES:
        raise MessageTooLargeError(
            f"{len(message.payload)} bytes are more than the {MAX_BYTES} Redis takes",
            backend=NAME,
            topic=message.topic,
            hint="store large content elsewhere (lexigram.blobs) and send a reference",
        )
    kind = kind_of(message)
    if message.priority and kind.startswith("lane"):
        raise CapabilityError(
            "on redis a message has a priority or a fairness or ordering key, not both",
            backend=NAME,
            topic=message.topic,
            hint="leave priority at 0, or leave the key out",
        )
    return kind


def kind_of(message: BusMessage) -> str:
    """The kind of stream a message belongs to."""
    if message.headers:
        key = message.headers.get(ORDERING_KEY) or message.headers.get(FAIRNESS_KEY)
        if key:
            return f"lane{lane_of(key)}"
    return f"level{min(message.priority, HIGHEST_LEVEL)}" if message.priority > 0 else ""


def lane_of(key: str) -> int:
    """The lane of an ordering or fairness key, 0 to 15; keys of one lane wait for each other."""
    return crc32(key.encode("utf-8", "surrogatepass")) % LANES


def to_fields(headers: dict[str, str], body: bytes) -> list[Any]:
    fields: list[Any] = [BODY, body]
    for item in headers.items():
        fields += item
    return fields


def from_fields(fields: Sequence[bytes]) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of an entry; one without the field ``body`` is a foreign one."""
    if fields and fields[0] == BODY:
        return dict(zip(fields[2::2], fields[3::2], strict=False)), fields[1]
    pairs = list(zip(fields[::2], fields[1::2], strict=False))
    for at, (name, value) in enumerate(pairs):
        if name == BODY:
            return dict(pairs[:at] + pairs[at + 1 :]), value
    if len(pairs) == 1:
        return {}, pairs[0][1]
    flat = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs
    }
    return {}, json.dumps(flat).encode()


def read_dead_letter(topic: str, number: bytes, fields: Sequence[bytes]) -> DeadLetterEntry:
    headers, body = from_fields(fields)
    return from_dead_headers(headers, body, topic=topic, fallback_id=number.decode())


def read_pair(field: bytes) -> tuple[str, str]:
    topic, _, group = field.decode("utf-8", "replace").partition("\n")
    return topic, group


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
