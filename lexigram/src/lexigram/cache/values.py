"""What a cache holds: keys, times to live, and values as bytes that come back as they were."""

from __future__ import annotations

from math import isfinite
from sys import getsizeof
from typing import Any, Protocol

import attrs

from lexigram.contracts.infra.cache import (
    CacheError,
    CacheKeyError,
    CacheReadError,
    CacheWriteError,
)
from lexigram.serialization import SerializationError, get_codec

MAX_KEY = 512  # characters; 2 KiB in UTF-8, which an index of PostgreSQL can just hold
MAX_TTL = 100 * 366 * 24 * 3600.0  # a century, in seconds; no clock overflows

_UNCHANGING: tuple[type[Any], ...] = (str, int, float, bool, type(None), bytes)
_PROBE = b"\x00\xff"


class ValueCodec(Protocol):
    """Turns values into what a backend keeps, and back."""

    def write(self, key: str, value: Any) -> Any: ...
    def read(self, key: str, kept: Any) -> Any: ...


class Values:
    """Values as bytes of a serializer; only those whose copy is equal and of the same class.

    They are None, bool, int, float, str, bytes (not with json), lists and dicts with text keys of
    these, and objects of classes given to ``lexigram.serialization.register``. All others are
    refused: a tuple would come back as a list, a date as text.
    """

    def __init__(self, serializer: str = "msgpack") -> None:
        self._codec = codec = get_codec(serializer)
        self.serializer = serializer
        self._plain: frozenset[type[Any]] = frozenset(_UNCHANGING)
        if codec.decode(codec.encode(_PROBE, object), object) != _PROBE:
            self._plain -= {bytes}

    def write(self, key: str, value: Any) -> bytes:
        """The bytes; CacheWriteError when it would not come back the same."""
        self._check(key, value)
        try:
            return self._codec.encode(value, object)
        except SerializationError as error:
            raise CacheWriteError(key, error.message, hint=error.hint, cause=error) from error

    def read(self, key: str, kept: Any) -> Any:
        """The value; CacheReadError when the bytes are not ours or name an unknown class."""
        try:
            return self._codec.decode(bytes(kept), object)
        except SerializationError as error:
            raise CacheReadError(
                f"the value of {key!r} cannot be read: {error.message}",
                hint=f"it was not written with {self.serializer}, or its class is not "
                "registered here; delete the key",
                cause=error,
            ) from error

    def _check(self, key: str, value: Any) -> None:
        pending = [value]
        for item in pending:  # grows while it is walked: depth costs no stack
            kind = item.__class__
            if kind in self._plain:
                continue
            if kind is list:
                pending.extend(item)
            elif kind is dict and all(name.__class__ is str for name in item):
                pending.extend(item.values())
            elif not _is_record(kind):
                raise _write_error(key, item)
            if len(pending) > _ENDLESS:
                raise CacheWriteError(key, "it has too many parts, or contains itself")


class Copies(Values):
    """For a cache in memory: what cannot change is kept as it is, lists and dicts as a copy, and
    objects of registered classes as bytes. The limits of a format (64-bit numbers, 16 MiB) hold
    for bytes only.
    """

    def write(self, key: str, value: Any) -> Any:
        """The value itself, or a copy in a wrapper."""
        if value.__class__ in self._plain:
            return value
        try:
            return Packed(_copy(value, self._plain))
        except _NotPlainError:
            return Packed(super().write(key, value))
        except RecursionError:
            raise CacheWriteError(key, "it is nested too deep, or contains itself") from None

    def read(self, key: str, kept: Any) -> Any:
        """The value, the caller's own."""
        if kept.__class__ is not Packed:
            return kept
        data = kept.data
        return super().read(key, data) if data.__class__ is bytes else _copy(data, self._plain)


class Shared:
    """For a cache in memory that keeps the objects themselves, whatever they are."""

    def write(self, key: str, value: Any) -> Any:
        """The object."""
        return value

    def read(self, key: str, kept: Any) -> Any:
        """The same object."""
        return kept


class Packed:
    """The copy of a value that could change, or its bytes; a value that is bytes is not packed."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data: Any = data


class _NotPlainError(Exception):
    """There is more than lists, dicts and what cannot change."""


def _copy(value: Any, plain: frozenset[type[Any]]) -> Any:
    """Lists and dicts made anew; copy.deepcopy would take ten times as long."""
    if value.__class__ is dict:
        made: dict[str, Any] = {}
        for name, item in value.items():
            if name.__class__ is not str:
                raise _NotPlainError
            made[name] = item if item.__class__ in plain else _copy(item, plain)
        return made
    if value.__class__ is list:
        return [item if item.__class__ in plain else _copy(item, plain) for item in value]
    raise _NotPlainError


def size_of(kept: Any) -> int:
    """Bytes of what ``Copies`` made, as Python keeps it."""
    if kept.__class__ is not Packed:
        return getsizeof(kept)
    size = 0
    pending: list[Any] = [kept.data]
    for item in pending:  # grows while it is walked
        size += getsizeof(item)
        if item.__class__ is list:
            pending.extend(item)
        elif item.__class__ is dict:
            pending.extend(item)
            pending.extend(item.values())
    return size


def problem_of_key(key: Any) -> CacheError | None:
    """Why no backend can hold the key, or None."""
    if not isinstance(key, str):
        reason = f"a key is text, not {type(key).__name__}"
    elif not 0 < len(key) <= MAX_KEY:
        reason = f"a key has 1 to {MAX_KEY} characters, this one has {len(key)}"
    elif "\0" in key or not (key.isascii() or _is_unicode(key)):
        reason = f"{key!r} holds a NUL or half a character"
    else:
        return None
    return CacheKeyError(reason, hint="put a hash of a long or foreign text into the key")


def problem_of_ttl(ttl: Any) -> CacheError | None:
    """Why nothing can be kept so long, or None."""
    if ttl is None or (isinstance(ttl, (int, float)) and isfinite(ttl) and 0 < ttl <= MAX_TTL):
        return None
    return CacheKeyError(
        f"a value cannot be kept for {ttl!r} s",
        hint="give seconds above 0, or None to keep it while there is room",
    )


def problem(keys: Any, ttl: float | None = None) -> CacheError | None:
    """The first problem of several keys and a ttl."""
    for key in keys:
        if (found := problem_of_key(key)) is not None:
            return found
    return problem_of_ttl(ttl)


def literal_start(pattern: str) -> str:
    """What every key that matches the glob begins with."""
    for at, character in enumerate(pattern):
        if character in "*?[":
            return pattern[:at]
    return pattern


_ENDLESS = 5_000_000  # parts; 16 MiB, the limit of the codecs, cannot hold more anyway
_records: dict[type[Any], bool] = {}


def _is_record(kind: type[Any]) -> bool:
    known = _records.get(kind)
    if known is None:
        known = _records[kind] = attrs.has(kind) or hasattr(kind, "__dataclass_fields__")
    return known


def _write_error(key: str, item: Any) -> CacheWriteError:
    kind = (
        "a dict with keys that are not text"
        if item.__class__ is dict
        else f"{item.__class__.__qualname__}"
    )
    return CacheWriteError(
        key,
        f"{kind} would not come back as it is",
        hint="store None, bool, int, float, str, bytes (msgpack only), lists and dicts with text "
        "keys, or attrs and dataclass objects registered with lexigram.serialization.register",
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
