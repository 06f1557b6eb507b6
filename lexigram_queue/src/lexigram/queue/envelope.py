"""A whole message as native headers and a bare body, and back.

Names follow CloudEvents in binary mode, so that producers and consumers of others can read them:
``ce-id``, ``ce-type``, ``ce-time`` and so on (``ce_…`` where a broker wants that). The headers
of the application travel under their own names. What is missing takes the default of the field,
so a message of a foreign producer without any header is a message too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
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
from lexigram.contracts.queue.headers import DELIVER_AT

SOURCE: Final = "/lexigram"  # ce-source where the application gave none
ERROR_CHARACTERS: Final = 2_000  # brokers bound their headers
TRACEBACK_CHARACTERS: Final = 8_000

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

    ``topic`` and ``fallback_id`` are what the broker knows: the id must be the same at every
    delivery. A header that cannot be read counts as missing; nothing here raises.
    """
    names = _names(prefix)
    headers = _as_text(native or {})
    take = headers.pop
    take(names.version, None)
    moment = take(names.time, None)
    sent_to = take(names.topic, None) or topic
    timestamp = _number(take(names.timestamp, None))
    ttl = _number(take(names.ttl, None))
    priority = _number(take(names.priority, None))
    retries = _number(take(names.retries, None))
    most = _number(take(names.max_retries, None))
    identity = take(names.id, None) or fallback_id
    guarantee = _guarantee(take(names.guarantee, None))
    if headers.get(names.source) == SOURCE:
        del headers[names.source]
    if headers.get(names.type) == sent_to:
        del headers[names.type]
    return BusMessage(
        identity,
        sent_to,
        body,
        headers,
        _moment(moment) if timestamp is None else timestamp,
        ttl,
        0 if priority is None else int(priority),
        guarantee,
        0 if retries is None else int(retries),
        _MAX_RETRIES if most is None else int(most),
    )


def reserved(headers: Mapping[str, str], *, prefixes: tuple[str, ...] = ("ce-", "ce_")) -> set[str]:
    """Headers an application must not set: they would be taken for parts of the message."""
    taken = {name for prefix in prefixes for name in _names(prefix).fixed}
    return {name for name in headers if name.lower() in taken}


def delay_of(message: BusMessage, now: float | None = None) -> float:
    """Seconds until the message may be delivered (deliver-at); 0 when it is due.

    ``now`` is the wall time; without it, that of the clock in effect.
    """
    at = _number(message.headers.get(DELIVER_AT)) if message.headers else None
    if at is None:
        return 0.0
    return max(0.0, at - (clock.timestamp() if now is None else now))


def redriven(message: BusMessage) -> BusMessage:
    """A dead letter as it is sent again: no retries used, and its time to live begins anew."""
    timestamp = message.timestamp if message.ttl is None else clock.timestamp()
    headers = {name: text for name, text in message.headers.items() if name != DELIVER_AT}
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


def from_dead_headers(
    native: Mapping[Any, Any],
    body: bytes,
    *,
    topic: str,
    fallback_id: str,
    prefix: str = "ce-",
) -> DeadLetterEntry:
    """The inverse of ``dead_headers``."""
    headers = {_text(key): _text(value) for key, value in native.items()}
    take = headers.pop
    reason = take("dead-reason", "")
    known = reason in DeadLetterReason.__members__.values()
    error, at = take("dead-error", ""), take("dead-at", None)
    retries, attempts = _number(take("dead-retries", None)), _number(take("dead-attempts", None))
    group, trace = take("dead-group", "default"), take("dead-traceback", None)
    return DeadLetterEntry(
        message=from_headers(headers, body, topic=topic, fallback_id=fallback_id, prefix=prefix),
        error=error,
        failed_at=datetime.fromtimestamp(_moment(at), UTC),
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
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


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


def _as_text(native: Mapping[Any, Any]) -> dict[str, str]:
    try:  # nearly always bytes of UTF-8, and three times as quick as asking
        return {str(key, "utf-8"): str(value, "utf-8") for key, value in native.items()}
    except (TypeError, UnicodeDecodeError):
        return {_text(key): _text(value) for key, value in native.items()}


def _text(value: Any) -> str:
    if value.__class__ is str:
        return str(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _iso(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # beyond the calendar; our own header still says it


def _moment(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else clock.timestamp()
    except (ValueError, OverflowError, OSError):
        return clock.timestamp()


def _guarantee(text: str | None) -> DeliveryGuarantee:
    try:
        return DeliveryGuarantee(text) if text else DeliveryGuarantee.AT_LEAST_ONCE
    except ValueError:
        return DeliveryGuarantee.AT_LEAST_ONCE
