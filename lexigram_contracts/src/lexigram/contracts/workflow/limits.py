"""Bounds of what a durable run may hold: one table for REST, command line, engine and definitions.

Databases differ in what they take, and some fail late: SQLite stores a priority of 2**63 as a
fraction and can read the row no more, PostgreSQL refuses the statement. So every entry refuses the
same, by the name of the field and before anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from math import isfinite
from typing import Any, Final, NoReturn, cast
from uuid import UUID

from lexigram.contracts.workflow.errors import InvalidRunError

MAX_ID: Final = 2**63 - 1  # of runs, groups, batches and steps; also of an offset
MAX_PER_REQUEST: Final = 10_000  # records of one answer
MAX_ROWS_PER_PAGE: Final = 1_000
MAX_PAGE: Final = MAX_ID // MAX_ROWS_PER_PAGE  # so that its offset is an offset
MIN_PRIORITY: Final = -(2**31)
MAX_PRIORITY: Final = 2**31 - 1
MAX_RETRIES: Final = 2**31 - 1
MAX_CONSUMERS: Final = 10_000  # of one pool of a worker
MAX_SECONDS: Final = 100 * 365 * 86_400  # of a delay, a timeout or a backoff; as for messages
MAX_NAME_LENGTH: Final = 255  # characters of a name or a key
MAX_TEXT_LENGTH: Final = 10_000  # characters of a reason, a question, an error or a URI
MAX_DEFINITION_LENGTH: Final = 1_000_000  # characters of a YAML document
MAX_VALUE_DEPTH: Final = 254  # lists and dictionaries inside each other
MAX_VALUE_BYTES: Final = 64 * 2**20  # of a value as JSON
MIN_INTEGER: Final = -(2**63)  # in a value
MAX_INTEGER: Final = 2**64 - 1  # in a value


def check_id(field: str, number: object) -> None:
    """Raise InvalidRunError for a number that no run, group, batch or step can have."""
    _check_whole(field, number, 0, MAX_ID, "give a number that a list or a submit returned")


def check_optional_ids(**numbers: object) -> None:
    """``check_id`` for those that are given."""
    for field, number in numbers.items():
        if number is not None:
            check_id(field, number)


def check_page(limit: object, offset: object) -> None:
    """Raise InvalidRunError for a part of a list that cannot be read."""
    _check_whole("limit", limit, 1, MAX_ID, "read the rest with offset")
    _check_whole("offset", offset, 0, MAX_ID, "count from the first record, which is 0")


def check_priority(field: str, number: object) -> None:
    """Raise InvalidRunError for a priority beyond 32 bits."""
    _check_whole(field, number, MIN_PRIORITY, MAX_PRIORITY, "0 is ordinary, more is sooner")


def check_retries(field: str, number: object) -> None:
    """Raise InvalidRunError for a number of attempts that is none."""
    _check_whole(field, number, 1, MAX_RETRIES, "1 is a single attempt")


def check_consumers(field: str, number: object) -> None:
    """Raise InvalidRunError for a size that no pool of a worker can have."""
    _check_whole(field, number, 1, MAX_CONSUMERS, "start more workers for more steps at once")


def check_seconds(field: str, number: object, least: float = 0) -> None:
    """Raise InvalidRunError for a time that is not finite, too short or too long."""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not least <= cast("float", number) <= MAX_SECONDS:  # not NaN either
        _refuse(field, number, f"is not a number from {least} to {MAX_SECONDS}", "give seconds")


def check_timeout(field: str, number: object) -> None:
    """``check_seconds``, and nothing can be done in 0."""
    check_seconds(field, number)
    if not number:
        _refuse(field, number, "is no time at all", "give seconds above 0, or None for no limit")


def check_name(field: str, text: object) -> None:
    """Raise InvalidRunError for a name or key that is empty, too long or not storable."""
    if text == "":
        _refuse(field, text, "is empty", "give it a text, or leave it out")
    check_text(field, text, MAX_NAME_LENGTH)


def check_optional_names(**texts: object) -> None:
    """``check_name`` for those that are given."""
    for field, text in texts.items():
        if text is not None:
            check_name(field, text)


def check_text(field: str, text: object, most: int = MAX_TEXT_LENGTH) -> None:
    """Raise InvalidRunError for a text that is too long or that no database stores."""
    if not isinstance(text, str):
        _refuse(field, text, f"is a {type(text).__name__}, not text", "convert it with str(...)")
    if len(text) > most:
        _refuse(field, text, f"has {len(text)} characters and may have {most}", "shorten it")
    if not text.isprintable() and (found := _UNSTORABLE.search(text)):
        problem = f"contains the character U+{ord(found[0]):04X}"
        _refuse(field, text, problem, "remove NUL characters and lone surrogates")


def check_value(field: str, value: object) -> None:
    """Raise InvalidRunError for a value that would not be the same after it was stored as JSON.

    The field in the error is the path of what is wrong: ``result['rows'][3].price``.
    """
    for path, problem, hint, inner in find_unstorable(value, field):
        _refuse(path, inner, problem, hint)


def find_unstorable(value: object, path: str) -> Iterator[tuple[str, str, str, object]]:
    """Path, problem, fix and value of everything that JSON cannot hold.

    Dates, UUIDs and enums become text, dataclasses become dictionaries.
    """
    return _find(value, path, 1)


def _find(value: object, path: str, depth: int) -> Iterator[tuple[str, str, str, object]]:
    kind = type(value).__name__
    if value is None or isinstance(value, _PLAIN):
        return
    if isinstance(value, Enum):
        yield from _find(value.value, path, depth)
    elif isinstance(value, str):
        if found := _SURROGATE.search(value):
            problem = f"contains the character U+{ord(found[0]):04X}"
            yield path, problem, "remove lone surrogates, or encode the text", value
    elif isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            yield path, "is beyond 64 bits", "store it as text", value
    elif isinstance(value, float):
        if not isfinite(value):
            yield path, "is no number that JSON can hold", "use None for a missing number", value
    elif not isinstance(value, dict | list | tuple) and not _is_record(value):
        yield path, f"is a {kind}, which JSON cannot hold", _FIXES.get(kind, _FIX), value
    elif depth > MAX_VALUE_DEPTH:
        problem = f"is nested more than {MAX_VALUE_DEPTH} levels deep"
        yield path, problem, "flatten it, and let nothing contain itself", _HIDDEN
    elif isinstance(value, list | tuple):
        for number, item in enumerate(cast("list[object]", value)):
            yield from _find(item, f"{path}[{number}]", depth + 1)
    elif isinstance(value, dict):
        yield from _find_entries(cast("dict[object, object]", value), path, depth)
    else:
        for field in fields(cast("Any", value)):
            yield from _find(getattr(value, field.name), f"{path}.{field.name}", depth + 1)


def _find_entries(
    values: dict[object, object], path: str, depth: int
) -> Iterator[tuple[str, str, str, object]]:
    for key, item in values.items():
        if not isinstance(key, str):
            problem = f"is a key of the type {type(key).__name__}, not text"
            yield path, problem, "convert keys with str(...)", key
        elif found := _SURROGATE.search(key):
            problem = f"is a key with the character U+{ord(found[0]):04X}"
            yield path, problem, "remove lone surrogates, or encode the text", key
        else:
            yield from _find(item, f"{path}[{key[:_SHOWN]!r}]", depth + 1)


def _is_record(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _check_whole(field: str, number: object, least: int, most: int, hint: str) -> None:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or not least <= cast("int", number) <= most:
        _refuse(field, number, f"is not a whole number from {least} to {most}", hint)


def _refuse(field: str, value: object, problem: str, hint: str) -> NoReturn:
    shown = "" if value is _HIDDEN else _show(value)
    if len(field) > _PATH_SHOWN:
        field = f"{field[:_PATH_SHOWN]}..."
    raise InvalidRunError(
        " ".join(filter(None, (field, shown, problem))),
        details={"field": field, "value": shown},
        hint=hint,
    )


def _show(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _BITS:
        return f"({value.bit_length()} bits)"  # Python refuses to write very long numbers
    text = ascii(value[:_SHOWN] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_SHOWN: Final = 80
_PATH_SHOWN: Final = 200
_HIDDEN: Final = object()
_PLAIN: Final = (bool, date, time, UUID)  # a datetime is a date
_BITS: Final = 256
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_FIX: Final = "use texts, numbers, booleans, None, lists and dictionaries"
_FIXES: Final = {
    "set": "convert it with sorted(...)",
    "frozenset": "convert it with sorted(...)",
    "bytes": "write it to an artifact, or encode it as text",
    "bytearray": "write it to an artifact, or encode it as text",
}
