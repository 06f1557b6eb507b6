"""A whole message as native headers and a bare body, and back.

Names follow CloudEvents in binary mode, so that producers and consumers of others can read them:
``ce-id``, ``ce-type``, ``ce-time`` and so on (``ce_…`` where a broker wants that). The headers
of the application travel under their own names. What is missing takes the default of the field,
so a message of a foreign producer without any header is a message too. What cannot be read is named
in one more header (UNREADABLE), and nothing here raises: the runtime sets such a message aside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from attrs import frozen

from lexigram import clock
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    DeliveryGuarantee,
)
from lexigram.contracts.queue.headers import (
    BEGUN,
    CONTENT_TYPE,
    DELIVER_AT,
    FAIRNESS_KEY,
    ORDERING_KEY,
    UNREADABLE,
)
from lexigram.contracts.queue.limits import (
    MAX_HEADERS,
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_TIMESTAMP,
    is_text,
    read_moment,
    read_number,
)

SOURCE: Final = "/lexigram"  # ce-source where the application gave none
ERROR_CHARACTERS: Final = 2_000  # brokers bound their headers
TRACEBACK_CHARACTERS: Final = 8_000
# Of headers that others wrote, names and values: a dead letter adds to them, and brokers have one
# frame of 128 KiB for all.
MAX_FOREIGN_BYTES: Final = 64 * 1024
SHOWN: Final = 60  # characters of a header that cannot be read
CUT: Final = "body:"  # begins the note that a body had no room in a dead letter
NOTE_BYTES: Final = 200  # for that note
MAX_UNREADABLE: Final = 1_000  # characters of the note about unreadable headers

_MAX_RETRIES: Final[int] = BusMessage().max_retries


def to_headers(message: BusMessage, *, prefix: str = "ce-") -> dict[str, str]:
    """Everything but the payload, as text by native header name."""
    names = _names(prefix)
    headers = {
        names.version: "1.0",
        names.source: SOURCE,
        names.type: message.topic,
        **message.headers,
        names.id: message.id,
        names.time: _iso(message.timestamp),
        names.topic: message.topic,
        names.timestamp: repr(message.timestamp),
    }
    if message.ttl is not None:
        headers[names.ttl] = repr(message.ttl)
    if message.priority:
        headers[names.priority] = str(message.priority)
    if message.delivery_guarantee is not DeliveryGuarantee.AT_LEAST_ONCE:
        headers[names.guarantee] = message.delivery_guarantee.value
    if message.retry_count:
        headers[names.retries] = str(message.retry_count)
    if message.max_retries != _MAX_RETRIES:
        headers[names.max_retries] = str(message.max_retries)
    return headers


def from_headers(
    native: Mapping[Any, Any] | None,
    body: bytes,
    *,
    topic: str,
    fallback_id: str,
    prefix: str = "ce-",
) -> BusMessage:
    """The message in native headers, whose keys and values may be bytes, text or numbers.

    ``topic`` and ``fallback_id`` come from the broker: the id must be the same at every
    delivery. What cannot be read takes its default and is named in the header UNREADABLE.
    """
    names = _names(prefix)
    headers = _as_text(native or {})
    unread: list[str] = []
    take = headers.pop
    take(names.version, None)
    moment = take(names.time, None)
    ttl = _take_number(headers, names.ttl, unread, MAX_SECONDS)
    priority = _take_whole(headers, names.priority, unread, least=-MAX_RETRIES)
    guarantee = _take_guarantee(headers, names.guarantee, unread)
    retries = _take_whole(headers, names.retries, unread)
    most = _take_whole(headers, names.max_retries, unread)
    sent_to = _take_text(headers, names.topic, unread, MAX_NAME_BYTES) or topic
    identity = _take_text(headers, names.id, unread, MAX_ID_BYTES) or fallback_id
    timestamp = _take_number(headers, names.timestamp, unread, MAX_TIMESTAMP)
    if timestamp is None:
        timestamp = _read_time(names.time, moment, unread)
    if headers.get(names.source) == SOURCE:
        del headers[names.source]
    if headers.get(names.type) == sent_to:
        del headers[names.type]
    whole = "".join([*headers, *headers.values()])
    size = len(whole) if whole.isascii() else len(whole.encode())
    if size > MAX_FOREIGN_BYTES or len(headers) > MAX_HEADERS:
        unread.append(f"{len(headers)} headers of {size} bytes")
        headers = keep_known(headers)
    if unread:
        mark_unreadable(headers, *unread)
    return BusMessage(
        identity,
        sent_to,
        body,
        headers,
        timestamp,
        ttl,
        0 if priority is None else priority,
        guarantee,
        0 if retries is None else retries,
        _MAX_RETRIES if most is None else most,
    )


def keep_known(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that the bus and its drivers look at, of headers that are too many to be sent again."""
    return {name: headers[name][:MAX_UNREADABLE] for name in _KEPT if name in headers}


def mark_unreadable(headers: dict[str, str], *parts: str) -> None:
    """Note in the headers of a message what of it could not be read; once each."""
    known = headers.get(UNREADABLE)
    text = "; ".join(dict.fromkeys([*(known.split("; ") if known else ()), *parts]))
    headers[UNREADABLE] = text[:MAX_UNREADABLE]


def as_text(value: Any) -> str:
    """A native name or value as text that every broker takes; nothing raises."""
    if value.__class__ is str:
        return _valid(value)
    if value is None:
        return ""
    try:
        if isinstance(value, bytes | bytearray):
            return value.decode("utf-8", "replace")
        view: object = value
        if isinstance(view, memoryview):
            return view.tobytes().decode("utf-8", "replace")
        return _valid(str(value))
    except Exception:  # noqa: BLE001 - the value may be of any class, and nested without end
        return f"<{type(value).__name__}>"


def find_reserved(headers: Mapping[str, str]) -> set[str]:
    """Headers an application must not set: they would be taken for parts of the message."""
    return {name for name in headers if name.lower() in _RESERVED}


def delay_of(message: BusMessage, now: float | None = None) -> float:
    """Seconds until the message may be delivered (deliver-at); 0 when it is due.

    ``now`` is the wall time; without it, that of the clock in effect.
    """
    at = due_of(message)
    return max(0.0, at - (clock.timestamp() if now is None else now)) if at else 0.0


def due_of(message: BusMessage) -> float:
    """When the message may be delivered (deliver-at), in seconds since 1970; 0 without a time."""
    text = message.headers.get(DELIVER_AT) if message.headers else None
    return 0.0 if text is None else read_moment(text) or 0.0


def strip_begun_count(message: BusMessage) -> BusMessage:
    """The message without the count of begun handlers, which belongs to one delivery only."""
    if BEGUN not in message.headers:
        return message
    headers = {name: text for name, text in message.headers.items() if name != BEGUN}
    return replace(message, headers=headers)


def redriven(message: BusMessage) -> BusMessage:
    """A dead letter as it is sent again: no retries used, and its time to live begins anew.

    What could not be read is tried again: the headers are there, and so may a body be by now. One
    that was cut stays as it is.
    """
    timestamp = message.timestamp if message.ttl is None else clock.timestamp()
    gone = (DELIVER_AT, BEGUN)
    headers = {name: text for name, text in message.headers.items() if name not in gone}
    if CUT not in headers.get(UNREADABLE, ""):
        headers.pop(UNREADABLE, None)
    return replace(message, retry_count=0, timestamp=timestamp, headers=headers)


def dead_headers(entry: DeadLetterEntry, *, prefix: str = "ce-") -> dict[str, str]:
    """A dead letter as native headers beside its payload; long texts are cut."""
    headers = to_headers(entry.message, prefix=prefix)
    headers.update(
        {
            "dead-reason": entry.reason.value,
            "dead-error": entry.error[:ERROR_CHARACTERS],
            "dead-at": entry.failed_at.isoformat(),
            "dead-retries": str(entry.retry_count),
            "dead-attempts": str(entry.attempts),
            "dead-group": entry.group,
        }
    )
    if entry.traceback:
        # the end of a traceback names the error; the beginning is our own frames
        headers["dead-traceback"] = entry.traceback[-TRACEBACK_CHARACTERS:]
    return headers


def cut_dead(headers: dict[str, str], body: bytes, over: int) -> bytes:
    """Shorten a dead letter by ``over`` bytes: trace, error, then what its producer wrote.

    Our own messages leave room for what a dead letter adds. One of another producer may be as large
    as the broker takes, and would come again for ever if it could not be set aside. Returns the body.
    """
    own = ("dead-", *(name for name in headers if name.startswith(("ce-", "ce_"))), *_KEPT)
    others = [name for name in headers if not name.startswith(own)]
    for name in (
        "dead-traceback",
        "dead-error",
        *sorted(others, key=lambda one: -len(headers[one])),
    ):
        if over > 0 and name in headers:
            whole = headers[name]
            headers[name] = whole[over:]
            over -= len(whole) - len(headers[name])
    if over <= 0:
        return body
    kept = max(0, len(body) - over - NOTE_BYTES)
    mark_unreadable(headers, f"{CUT} {kept} of {len(body)} bytes are kept")
    return body[:kept]


def from_dead_headers(
    native: Mapping[Any, Any],
    body: bytes,
    *,
    topic: str,
    fallback_id: str,
    prefix: str = "ce-",
) -> DeadLetterEntry:
    """The inverse of ``dead_headers``. What cannot be read takes its default; nothing raises."""
    headers = _as_text(native)
    take = headers.pop
    reason = take("dead-reason", "")
    known = reason in DeadLetterReason.__members__.values()
    error, at = take("dead-error", ""), take("dead-at", None)
    retries = read_number(take("dead-retries", ""), MAX_RETRIES)
    attempts = read_number(take("dead-attempts", ""), MAX_RETRIES)
    group, trace = take("dead-group", "default"), take("dead-traceback", None)
    return DeadLetterEntry(
        message=from_headers(headers, body, topic=topic, fallback_id=fallback_id, prefix=prefix),
        error=error,
        failed_at=datetime.fromtimestamp(_parse_time(at) or clock.timestamp(), UTC),
        retry_count=int(retries or 0),
        reason=DeadLetterReason(reason) if known else DeadLetterReason.REJECTED,
        traceback=trace,
        attempts=int(attempts or 0),
        group=group,
    )


def escape(value: str) -> str:
    """Text for headers that hold one line of visible ASCII: the rest is percent-encoded."""
    return _NOT_PLAIN.sub(_percent, value)


def unescape(value: str) -> str:
    """The inverse of ``escape``."""
    return unquote(value) if "%" in value else value


_NOT_PLAIN = re.compile(r"[^ -$&-~]+")  # printable ASCII without %


def _percent(found: re.Match[str]) -> str:
    return f"%{found[0].encode('utf-8', 'surrogatepass').hex('%').upper()}"


@frozen
class _Names:
    version: str
    id: str
    source: str
    type: str
    time: str
    topic: str
    timestamp: str
    ttl: str
    priority: str
    guarantee: str
    retries: str
    max_retries: str
    fixed: frozenset[str]  # those that are always taken out; source and type may be given


@lru_cache
def _names(prefix: str) -> _Names:
    own = {
        "topic": f"{prefix}lextopic",  # CloudEvents: extensions are lower-case letters and digits
        "timestamp": f"{prefix}lextimestamp",  # ce-time has microseconds, a float has more
        "ttl": f"{prefix}lexttl",
        "priority": f"{prefix}lexpriority",
        "guarantee": f"{prefix}lexguarantee",
        "retries": f"{prefix}lexretries",
        "max_retries": f"{prefix}lexmaxretries",
    }
    common = {name: f"{prefix}{name}" for name in ("id", "time")} | {
        "version": f"{prefix}specversion"
    }
    fixed = frozenset([*own.values(), *common.values()])
    return _Names(source=f"{prefix}source", type=f"{prefix}type", fixed=fixed, **own, **common)


# Under the names of every broker: a message may be moved to another one.
_RESERVED: Final = _names("ce-").fixed | _names("ce_").fixed | {UNREADABLE}
# What of too many headers is left: how to read the body, and what drivers look at.
_KEPT: Final = (CONTENT_TYPE, DELIVER_AT, ORDERING_KEY, FAIRNESS_KEY, UNREADABLE)


def _as_text(native: Mapping[Any, Any]) -> dict[str, str]:
    try:  # nearly always bytes of UTF-8, and three times as fast as checking
        return {str(key, "utf-8"): str(value, "utf-8") for key, value in native.items()}
    except (TypeError, UnicodeDecodeError):
        return {as_text(key): as_text(value) for key, value in native.items()}


def _valid(text: str) -> str:
    """Without lone surrogates: no broker takes them, and a dead letter must be writable."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _keep(headers: dict[str, str], name: str, text: str, unread: list[str]) -> None:
    """Leave a header where it was, and note that it cannot be read."""
    headers[name] = text
    unread.append(f"{name} {text[:SHOWN]!a}")


def _take_text(headers: dict[str, str], name: str, unread: list[str], most: int) -> str | None:
    text = headers.pop(name, None)
    if not text or is_text(text, most):
        return text
    _keep(headers, name, text, unread)
    return None


def _take_number(
    headers: dict[str, str], name: str, unread: list[str], most: float
) -> float | None:
    text = headers.pop(name, None)
    if text is None:
        return None
    number = read_number(text, most)
    if number is None:
        _keep(headers, name, text, unread)
    return number


def _take_whole(
    headers: dict[str, str], name: str, unread: list[str], *, least: int = 0
) -> int | None:
    text = headers.pop(name, None)
    if text is None:
        return None
    number = read_number(text, MAX_RETRIES, least)
    if number is None or not number.is_integer():
        _keep(headers, name, text, unread)
        return None
    return int(number)


def _take_guarantee(headers: dict[str, str], name: str, unread: list[str]) -> DeliveryGuarantee:
    text = headers.pop(name, None)
    if text is None:
        return DeliveryGuarantee.AT_LEAST_ONCE
    try:
        return DeliveryGuarantee(text)
    except ValueError:
        _keep(headers, name, text, unread)
        return DeliveryGuarantee.AT_LEAST_ONCE


def _read_time(name: str, text: str | None, unread: list[str]) -> float:
    """The time of CloudEvents; now where there is none."""
    moment = _parse_time(text) if text else None
    if text and moment is None:
        unread.append(f"{name} {text[:SHOWN]!a}")
    return clock.timestamp() if moment is None else moment


def _parse_time(text: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return moment if 0.0 <= moment <= MAX_TIMESTAMP else None


def _iso(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # beyond the calendar; our own header has it
