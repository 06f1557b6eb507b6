"""What a message may hold when it is published: one list of bounds for every way into the bus.

Brokers differ in what they take, and some fail late: a name that is too long ends a connection, an
infinite delay makes a message that never comes. So every driver refuses the same, by the name of the
field and before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from lexigram.contracts.queue.errors import InvalidMessageError
from lexigram.contracts.queue.headers import DELIVER_AT, FAIRNESS_KEY, ORDERING_KEY
from lexigram.contracts.queue.types import BusMessage, DeliveryGuarantee

MAX_NAME_BYTES: Final = 255  # of a topic, a group, an ordering key or a fairness key, in UTF-8
MAX_ID_BYTES: Final = 512
MAX_HEADER_NAME_BYTES: Final = 128
MAX_HEADERS_BYTES: Final = (
    30_000  # names and values of one message; brokers have one frame for them
)
MAX_HEADERS: Final = 1_000  # of one message; a script of Redis takes less than 4,000
MAX_PRIORITY: Final = 9
MAX_RETRIES: Final = 2**31 - 1
MAX_SECONDS: Final = 100 * 365 * 86_400  # of a delay or a time to live
# Of a timestamp and of deliver-at, seconds since 1970: the year 2286. As milliseconds since 1970,
# a frequent mistake, the same moment is beyond it.
MAX_TIMESTAMP: Final = 9_999_999_999


def check_topic(topic: str) -> None:
    """Raise InvalidMessageError for a topic that no message can be published to."""
    check_pattern(topic)
    if "*" in topic:
        _refuse("topic", topic, "is a pattern", "publish to one topic; * is for consumers")


def check_pattern(topic: str) -> None:
    """Raise InvalidMessageError for a topic or pattern that no consumer can receive from."""
    _check_text("topic", topic, MAX_NAME_BYTES)
    if ">" in topic:
        _refuse("topic", topic, "contains >, a wildcard of some brokers", "* stands for any text")


def check_group(group: str) -> None:
    """Raise InvalidMessageError for a name that no group can have."""
    _check_text("group", group, MAX_NAME_BYTES)


def check_delay(delay: float) -> None:
    """Raise InvalidMessageError for a delay that is no number of seconds, or too long."""
    _check_number("delay", delay, MAX_SECONDS)


def check_message(message: BusMessage) -> None:
    """Raise InvalidMessageError for the first field that is out of bounds; payload and topic excepted.

    For nearly every message this is one condition: 0.3 µs, where a message costs 3 to make.
    """
    identity = message.id
    try:
        if (
            message.ttl is not None
            or message.priority is not _NONE
            or message.retry_count is not _NONE
            or message.max_retries is not _RETRIES
            or message.delivery_guarantee is not _ORDINARY
            or message.timestamp.__class__ is not float
            or not 0.0 <= message.timestamp <= MAX_TIMESTAMP
            or identity.__class__ is not str
            or not 0 < len(identity) <= _SHORT
            or not identity.isprintable()
        ):
            _check_fields(message)
        if message.headers:
            _check_headers(message.headers)
    except InvalidMessageError as error:
        error.details |= {"message_id": _show(identity), "topic": message.topic}
        error.topic = message.topic
        raise


def _check_fields(message: BusMessage) -> None:
    _check_text("id", message.id, MAX_ID_BYTES)
    _check_number("timestamp", message.timestamp, MAX_TIMESTAMP)
    if message.ttl is not None:
        _check_number("ttl", message.ttl, MAX_SECONDS)
    _check_whole("priority", message.priority, MAX_PRIORITY)
    _check_whole("max_retries", message.max_retries, MAX_RETRIES)
    _check_whole("retry_count", message.retry_count, message.max_retries)
    if message.delivery_guarantee.__class__ is not DeliveryGuarantee:
        guarantee: Any = message.delivery_guarantee
        _refuse("delivery_guarantee", guarantee, "is unknown", "use a member of DeliveryGuarantee")


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        problem = f"are {len(headers)} and may be {MAX_HEADERS}"
        _refuse("headers", _HIDDEN, problem, "move some of them into the payload")
    if not _are_ordinary(headers):
        size = 0
        for name, value in headers.items():
            size += _check_text("header name", name, MAX_HEADER_NAME_BYTES)
            size += _check_text(f"header {name}", value, MAX_HEADERS_BYTES, is_value=True)
        if size > MAX_HEADERS_BYTES:
            problem = f"have {size} bytes and may have {MAX_HEADERS_BYTES}"
            _refuse("headers", _HIDDEN, problem, "move large values into the payload")
    for key in (ORDERING_KEY, FAIRNESS_KEY):
        if key in headers:
            _check_text(key, headers[key], MAX_NAME_BYTES)
    if DELIVER_AT in headers and read_moment(headers[DELIVER_AT]) is None:
        _refuse(
            DELIVER_AT,
            headers[DELIVER_AT],
            f"is not a number of seconds since 1970 from 0 to {MAX_TIMESTAMP}",
            "use delay=, or repr(time.time() + seconds)",
        )


def _are_ordinary(headers: Mapping[str, str]) -> bool:
    """Whether nothing can be wrong with any of them: one look at all texts, for they are many."""
    try:
        names = "".join(headers)
        text = names + "".join(headers.values())
    except TypeError:
        return False
    return (
        text.isascii()
        and text.isprintable()
        and len(names) <= MAX_HEADER_NAME_BYTES
        and len(text) <= MAX_HEADERS_BYTES
        and "" not in headers
    )


def is_text(text: str, most: int) -> bool:
    """Whether another producer's id or topic could be published here too."""
    if text.isprintable() or not _CONTROL.search(text):
        return 0 < len(text) <= most // 4 or 0 < len(text.encode()) <= most
    return False


def read_moment(text: str) -> float | None:
    """Seconds since 1970 in a header; None where it holds no time that a message can have."""
    return read_number(text, MAX_TIMESTAMP)


def read_number(text: str, most: float, least: float = 0.0) -> float | None:
    """The number from ``least`` to ``most`` in a header, or None."""
    if len(text) > _LONGEST_NUMBER:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if least <= number <= most else None


def _check_text(field: str, text: object, most: int, *, is_value: bool = False) -> int:
    """Its length in bytes. The value of a header may be empty, or a secret, which no error shows."""
    if not isinstance(text, str):
        kind = type(text).__name__
        _refuse(field, text, f"is a {kind}, not text", "convert it with str(...)")
    shown = _HIDDEN if is_value else text
    if not (text or is_value):
        _refuse(field, text, "is empty", f"give the {field} a text, or leave it out")
    if not text.isprintable() and (found := _CONTROL.search(text)):
        _refuse(
            field,
            shown,
            f"contains the character U+{ord(found[0]):04X}",
            "remove control characters, line breaks and lone surrogates",
        )
    size = len(text) if text.isascii() else len(text.encode())
    if size > most:
        _refuse(field, shown, f"has {size} bytes and may have {most}", "shorten it")
    return size


def _check_number(field: str, number: float, most: float) -> None:
    if number.__class__ not in _NUMBERS or not 0 <= number <= most:  # not NaN either
        _refuse(field, number, f"is not a number from 0 to {most}", "give seconds, or leave it out")


def _check_whole(field: str, number: int, most: int) -> None:
    if number.__class__ is not int or not 0 <= number <= most:
        limit = f"{most} (max_retries)" if field == "retry_count" else str(most)
        _refuse(field, number, f"is not a whole number from 0 to {limit}", _HINTS[field])


def _refuse(field: str, value: object, problem: str, hint: str) -> NoReturn:
    shown = "" if value is _HIDDEN else f" {_show(value)}"
    raise InvalidMessageError(
        f"{field}{shown} {problem}",
        details={"field": field, "value": _show(value)},
        hint=hint,
    )


def _show(value: object) -> str:
    text = ascii(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_NONE: Final = 0  # the interpreter has small numbers once: ``is`` refuses True and 0.0 too
_RETRIES: Final = BusMessage().max_retries
_ORDINARY: Final = DeliveryGuarantee.AT_LEAST_ONCE
_SHORT: Final = MAX_ID_BYTES // 4  # characters that cannot be more bytes
_SHOWN: Final = 80
_HIDDEN: Final = "(not shown)"
_LONGEST_NUMBER: Final = 40
_NUMBERS: Final = (float, int)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_HINTS: Final = {
    "priority": "higher is more urgent",
    "max_retries": "a retry policy of the consumer may say more",
    "retry_count": "leave it at 0: the bus counts",
}
