"""Messages as NATS carries them: headers of ASCII beside the bare body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from attrs import define

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.limits import read_number
from lexigram.queue.backends.nats._names import percent
from lexigram.queue.runtime.envelope import (
    cut_dead,
    escape,
    from_headers,
    keep_known,
    mark_unreadable,
    unescape,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg
CHUNK_BYTES: Final = 4 * 1024 * 1024  # sent before the confirms are waited for
CHUNK_MESSAGES: Final = 1000
HEADER_FRAME: Final = 64  # bytes of a message with headers that are in none of them, and spare
MAX_BLOCK: Final = 65_535  # bytes of headers in a message of a stream; the server refuses more
BLOCK_ROOM: Final = 16 * 1024  # bytes of them for what a retry or a dead letter adds

NANOSECONDS: Final = 1_000_000_000
ACK, NAK, PROGRESS = b"+ACK", b"-NAK", b"+WPI"
MESSAGE_ID: Final = "Nats-Msg-Id"
_MAX_COUNT: Final = 2**31 - 1
SEQUENCE: Final = "Nats-Sequence"  # of a message that was asked for, behind its own headers
SHORT_REPLY: Final = 9  # parts of the subject that settles a message; newer ones have more


@define(slots=True, eq=False)
class Receipt:
    """What settles a delivery, and until when that is ours to do."""

    reply: str
    consumer: str
    sequence: int
    delivered: int
    ends: float
    record: int = 0  # the sequence of what was written about it
    has_body: bool = False
    uncounted: int = 0  # deliveries that were settled
    begun: int = 0
    settled: bool = False


@define(slots=True, eq=False)
class Arrived:
    message: Msg
    receipt: Receipt
    record: Msg | None = None
    not_before: float = 0.0


class OutboundMessage:
    """What is published."""

    __slots__ = ("block", "body", "headers", "size", "subject")

    def __init__(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        self.subject, self.body, self.headers = subject, body, headers
        # four bytes around each header, and the line before them
        text = len("".join(headers)) + len("".join(headers.values()))
        self.block = text + 4 * len(headers) + HEADER_FRAME
        self.size = len(body) + self.block

    def cut(self, most: int) -> None:
        """Shorten the dead letter until it fits."""
        over = self.block - MAX_BLOCK
        if over > 0:
            cut_dead(
                self.headers, b"", over
            )  # what is no part of its trace has room, see read_message
            self.size -= over
        if self.size > most:
            self.body = cut_dead(self.headers, self.body, self.size - most)


def receipt_of(consumer: str, message: Msg, ends: float) -> Receipt:
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.…, since 2.10 maybe with domain and account
    tokens = message.reply.split(".")
    at = 4 if len(tokens) == SHORT_REPLY else 6
    return Receipt(message.reply, consumer, int(tokens[at + 1]), int(tokens[at]), ends)


def to_native(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as NATS takes them: names are tokens, values one trimmed line of ASCII."""
    text = "".join(headers.values())
    if text.isascii() and text.isprintable() and " " not in text and "%" not in text:
        return {_header_name(name): value for name, value in headers.items()}
    return {_header_name(name): to_line(value) for name, value in headers.items()}


def from_native(native: Mapping[str, str]) -> dict[str, str]:
    """The inverse, without what the server and the driver added."""
    headers = {name: value for name, value in native.items() if not name.startswith(_ADDED)}
    if "%" not in "".join(headers) and "%" not in "".join(headers.values()):
        return headers
    return {
        "" if name == "%" else unescape(name): unescape(value) for name, value in headers.items()
    }


def to_line(value: str) -> str:
    is_plain = value.isascii() and value.isprintable() and "%" not in value
    text = value if is_plain else escape(value)
    if text[:1] == " " or text[-1:] == " ":
        inner = text.strip(" ")
        at = text.index(inner) if inner else len(text)
        text = "%20" * at + inner + "%20" * (len(text) - at - len(inner))
    return text


@lru_cache(maxsize=10_000)
def _header_name(name: str) -> str:
    text = _NO_TOKEN.sub(percent, name) or "%"
    # What the server itself obeys must not come from an application.
    return f"%{ord(text[0]):02X}{text[1:]}" if text.lower().startswith(_TAKEN) else text


_NO_TOKEN: Final = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]+")
_TAKEN: Final = ("nats-", "lex-", "status", "description")
_ADDED: Final = ("Nats-", "Lex-")
_OURS: Final = "ce-lextopic"


def read_message(
    native: Mapping[str, str], body: bytes, topic: str, fallback_id: str
) -> BusMessage:
    if _OURS in native:
        headers = from_native(native)
        del headers[_OURS]  # the subject says where it was sent to, whatever others write here
    else:  # of a foreign producer, who escapes nothing
        headers = {name: value for name, value in native.items() if not name.startswith(_ADDED)}
    message = from_headers(headers, body, topic=topic, fallback_id=fallback_id)
    own = message.headers
    if (len("".join([*own, *own.values()]).encode()) + len(own)) * 4 <= MAX_BLOCK - BLOCK_ROOM:
        return message  # nearly always: they fit however they are escaped
    block = OutboundMessage("", b"", to_native(own)).block
    if block <= MAX_BLOCK - BLOCK_ROOM:
        return message
    kept = keep_known(own)  # a retry would write them once more
    mark_unreadable(kept, f"{len(own)} headers of {block} bytes on the wire")
    return replace(message, headers=kept)


def nak(delay: float) -> bytes:
    if delay <= 0:
        return NAK
    return NAK + b' {"delay": %d}' % int(delay * NANOSECONDS)


def chunks(numbers: Sequence[int], batch: Sequence[OutboundMessage]) -> Iterable[list[int]]:
    chunk: list[int] = []
    size = 0
    for number in numbers:
        chunk.append(number)
        size += batch[number].size
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_MESSAGES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def is_message(answer: Msg) -> bool:
    """Whether what was asked for is there; a message may have a header Status of its own."""
    return SEQUENCE in (answer.headers or {})


def read_count(text: str | None) -> int:
    return int(read_number(text or "", _MAX_COUNT) or 0)
