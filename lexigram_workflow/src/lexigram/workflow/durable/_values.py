"""Values that users give to runs and get back from them, as JSON that is the same after reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from attrs import Attribute

from lexigram.contracts.workflow.errors import InvalidRunError
from lexigram.contracts.workflow.limits import MAX_TEXT_LENGTH, MAX_VALUE_BYTES, check_value
from lexigram.sql.text import storable_text


def json_text(field: str, value: Any) -> str:
    """The value as JSON. InvalidRunError names the path of what JSON cannot hold."""
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        check_value(field, value)
        raise InvalidRunError(
            f"{field} cannot be written as JSON: {error}", details={"field": field}
        ) from error
    if b"null" in data:  # None; or NaN and infinity, which orjson writes like None
        check_value(field, value)
    if len(data) > MAX_VALUE_BYTES:
        raise InvalidRunError(
            f"{field} has {len(data)} bytes as JSON and may have {MAX_VALUE_BYTES}",
            details={"field": field},
            hint="write large values to an artifact",
        )
    return data.decode()


def result_text(value: Any) -> str | None:
    """What a handler returned: its dict, or the value under ``result``; None is nothing."""
    if value is None:
        return None
    if isinstance(value, dict):
        return json_text("result", value)
    return f'{{"result":{json_text("result", value)}}}'


def validate_with(
    check: Callable[[str, object], None],
) -> Callable[[Any, Attribute[Any], Any], None]:
    """A validator of attrs that is a check of ``lexigram.contracts.workflow.limits``."""
    return lambda _, attribute, value: check(attribute.name, value)


def error_text(error: Exception) -> str:
    """An error as it is stored and shown."""
    return storable_text(f"{type(error).__name__}: {error}"[:MAX_TEXT_LENGTH])
