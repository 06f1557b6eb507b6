"""State values to bytes and back, equal to what they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, cast
from uuid import UUID

from attrs import frozen

from lexigram.serialization import EncodeError, SerializationError, get_codec, register


@frozen
class _Moment:
    value: datetime


@frozen
class _Date:
    value: date


@frozen
class _Time:
    value: time


@frozen
class _Span:
    value: timedelta


@frozen
class _Uuid:
    value: UUID


@frozen
class _Decimal:
    value: Decimal


@frozen
class _Bytes:
    value: bytes


@frozen
class _Tuple:
    value: list[Any]


@frozen
class _Set:
    value: list[Any]


@frozen
class _FrozenSet:
    value: list[Any]


# A dict whose keys are not all text, or that uses the key that names types.
@frozen
class _Pairs:
    value: list[Any]


# What JSON has no form for, by its exact class: the codec alone would give text or a list back.
_SCALARS: dict[type[Any], type[Any]] = {
    datetime: _Moment,
    date: _Date,
    time: _Time,
    timedelta: _Span,
    UUID: _Uuid,
    Decimal: _Decimal,
    bytes: _Bytes,
}
_GROUPS: dict[type[Any], type[Any]] = {tuple: _Tuple, set: _Set, frozenset: _FrozenSet}
_BACK: dict[type[Any], type[Any]] = {_Tuple: tuple, _Set: set, _FrozenSet: frozenset}
_PLAIN = (str, int, float, bool, type(None))

for _original, _wrapper in (_SCALARS | _GROUPS).items():
    register(_wrapper, f"lexigram.workflow.{_original.__name__}")
register(_Pairs, "lexigram.workflow.pairs")

# Well within the limits of the codec, which then need no look.
_SMALL_BYTES = 1 << 20
_SHALLOW = 32

_WRAPPED = frozenset(_SCALARS.values())


def encode(document: dict[str, Any]) -> bytes:
    """The bytes of a document; EncodeError names the place of what cannot be kept."""
    # Most steps change a few texts and numbers. For those msgspec writes the same bytes as the
    # codec, 7 µs a step instead of 41 on a busy machine. What it refuses, the codec explains.
    if _is_plain(document, 0):
        try:
            data = _writer()(document)
        except UnicodeEncodeError:
            pass
        else:
            if len(data) <= _SMALL_BYTES:
                return data
    return get_codec("json").encode(
        {key: _out(item, key) for key, item in document.items()}, object
    )


@cache
def _writer() -> Callable[[Any], bytes]:
    from msgspec.json import Encoder

    return Encoder().encode


def _is_plain(value: Any, depth: int) -> bool:
    """True for what JSON holds as it is, not too deep."""
    cls = value.__class__
    if cls is str or cls is int or value is None or cls is bool:
        return True
    if depth > _SHALLOW:
        return False
    if cls is dict:
        return "$type" not in value and all(
            key.__class__ is str and _is_plain(item, depth + 1) for key, item in value.items()
        )
    if cls is list:
        return all(_is_plain(item, depth + 1) for item in value)
    return cls is float and isfinite(value)


def decode(data: bytes) -> dict[str, Any]:
    """The document; equal to the one that was encoded."""
    found: Any = get_codec("json").decode(data, object)
    if not isinstance(found, dict):
        raise SerializationError("a checkpoint is not what the engine wrote")
    document = cast("dict[str, Any]", found)
    return {key: _in(item) for key, item in document.items()}


def _out(value: Any, place: str) -> Any:
    cls = value.__class__
    if cls in _PLAIN:
        return value
    if cls is dict:
        if all(key.__class__ is str for key in value) and "$type" not in value:
            return {key: _out(item, f"{place}.{key}") for key, item in value.items()}
        pairs = [[_out(k, place), _out(item, f"{place}[{k!r}]")] for k, item in value.items()]
        return _Pairs(pairs)
    if cls is list:
        return [_out(item, f"{place}[{at}]") for at, item in enumerate(value)]
    if cls in _SCALARS:
        return _SCALARS[cls](value)
    if cls in _GROUPS:
        return _GROUPS[cls]([_out(item, f"{place}[…]") for item in value])
    if issubclass(cls, dict):
        return _out(dict(value), place)
    if isinstance(value, Enum) and not isinstance(value, str | int):
        raise EncodeError(
            f"{cls.__name__} at {place} is an enum that is neither text nor a number",
            details={"path": place, "type": cls.__name__},
        )
    try:
        # Records are written by their registered name; anything else is refused here, where
        # the place is known.
        get_codec("json").encode(value, object)
    except SerializationError as error:
        raise EncodeError(
            f"{cls.__name__} at {place} cannot be stored: {error.message}",
            details={"path": place, "type": cls.__name__},
        ) from error
    return value


def _in(value: Any) -> Any:
    cls = value.__class__
    if cls in _PLAIN:
        return value
    if cls is dict:
        return {key: _in(item) for key, item in value.items()}
    if cls is list:
        return [_in(item) for item in value]
    if cls in _WRAPPED:
        return value.value
    if cls in _BACK:
        return _BACK[cls](_in(item) for item in value.value)
    if cls is _Pairs:
        return {_in(key): _in(item) for key, item in value.value}
    return value
