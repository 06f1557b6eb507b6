"""Values to plain data: the write function of each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, get_args, get_origin

from lexigram.serialization import types as t
from lexigram.serialization.errors import EncodeError
from lexigram.serialization.fast import key_order
from lexigram.serialization.problems import at
from lexigram.serialization.registry import TypeRegistry
from lexigram.serialization.types import TAG, VALUE, Dialect
from lexigram.serialization.unions import UnionPlan

Write = Callable[[Any], Any]
LISTS = (list, tuple, set, frozenset)


class Writers:
    """The write functions of one format.

    A value that is not of its declared type is written as what it is, where that has a form.
    ``lossless``: it is refused where no type is declared that would make it of that form again.
    """

    def __init__(self, registry: TypeRegistry, dialect: Dialect, *, lossless: bool = False) -> None:
        self._registry = registry
        self._dialect = dialect
        self._lossless = lossless
        self._made: dict[Any, Write] = {}

    def of(self, kind: Any) -> Write:
        """The write function of ``kind``, made once."""
        write = self._made.get(kind)
        if write is None:
            write = self._made[kind] = self._make(kind)
        return write

    def _make(self, declared: Any) -> Write:
        kind = t.bare(declared)
        origin, args = get_origin(kind) or kind, get_args(kind)
        if t.is_any(kind) or kind is None or kind is type(None) or t.is_literal(kind):
            return self._any
        if t.is_scalar(kind):
            return self._scalar(kind)
        if t.is_union(kind):
            return self._union(kind)
        if origin is tuple and args and args[-1] is not Ellipsis:
            return partial(self._write_fixed, [self._late(arg) for arg in args])
        if origin is tuple or origin in t.SEQUENCES:
            return partial(self._sequence, self._late(args[0]) if args else self._any)
        if origin in t.MAPPINGS:
            return self._mapping_of(args)
        if t.is_record(kind):
            return self._record(kind, origin)
        if isinstance(kind, type):
            return self._any  # a subclass of a plain type, or an error that names the place
        raise t.unsupported_error(declared)

    def _late(self, kind: Any) -> Write:
        """The writer of ``kind``, made at first use: a type may contain itself."""
        if t.is_scalar(kind):
            return self.of(kind)
        made: list[Write] = []

        def write(value: Any) -> Any:
            if not made:
                made.append(self.of(kind))
            return made[0](value)

        return write

    def _scalar(self, kind: Any) -> Write:
        exact = self._exact(kind)

        def same(value: Any) -> Any:
            return value if value.__class__ is kind else self._any(value)

        def write(value: Any) -> Any:
            return exact(value) if value.__class__ is kind else self._any(value)

        return same if exact is _same else write

    def _exact(self, kind: Any) -> Write:
        """For values of just this class; texts are made by msgspec, as on the fast path."""
        from msgspec import to_builtins

        if t.is_enum(kind):
            return _member_value if t.by_value(kind) else _member_name
        if kind is float and not self._dialect.all_floats:
            return _finite
        if kind is datetime:
            return _instant
        if kind is time:
            return _clock_time
        if kind in t.PRIMITIVES or kind in self._dialect.natives:
            return _same
        return to_builtins

    def _any(self, value: Any) -> Any:
        cls = value.__class__
        if value is None or cls is str or cls is int or cls is bool:
            return value
        if t.is_scalar(cls):
            data = self.of(cls)(value)
            if self._lossless and not (data is value or data == value):
                raise _lossy_error(value, data)
            return data
        if cls in LISTS:
            if self._lossless and cls is not list:
                raise _lossy_error(value, [])
            return self._sequence(self._any, value)
        if t.is_record(cls):
            return self._write_tagged(value, {})
        if isinstance(value, dict):
            return self._write_untyped(value)
        return self._any(_plainer(value))

    def _write_untyped(self, value: dict[Any, Any]) -> dict[str, Any]:
        if TAG in value:
            raise EncodeError(
                f"the key {TAG!r} is kept for type names",
                details={"key": TAG},
                hint="use another key",
            )
        return self._mapping(self._any, value)

    def _write_tagged(self, value: Any, names: Mapping[type[Any], str]) -> dict[str, Any]:
        """A record with the name of its class, where the declared type does not tell it."""
        cls = value.__class__
        name = names.get(cls) or self._registry.name_of(cls)
        if name is None:
            raise EncodeError(
                f"a {t.label(cls)} stands where its class must be named, and has no name",
                details={"class": t.label(cls)},
                hint=f"lexigram.serialization.register({cls.__name__}), at writer and reader",
            )
        return {TAG: name, **self.of(cls)(value)}

    def _sequence(self, write: Write, value: Any) -> Any:
        if not isinstance(value, LISTS):
            return self._any(value)
        index, items = 0, []
        try:
            for index, item in enumerate(value):  # noqa: B007 - needed on failure
                items.append(write(item))
        except Exception as error:
            _note(error, index)
            raise
        return items

    def _write_fixed(self, writers: list[Write], value: Any) -> Any:
        if not isinstance(value, LISTS) or len(value) != len(writers):
            return self._any(value)
        index, items = 0, []
        try:
            for index, (write, item) in enumerate(zip(writers, value, strict=True)):  # noqa: B007 - same
                items.append(write(item))
        except Exception as error:
            _note(error, index)
            raise
        return items

    def _mapping_of(self, args: tuple[Any, ...]) -> Write:
        if not args:
            return self._any
        key = t.bare(args[0])
        if not (t.is_any(key) or t.is_key(key)):
            raise t.unsupported_error(key, " as the key of a mapping")
        write = self._late(args[1])
        return lambda value: (
            self._mapping(write, value, key) if isinstance(value, Mapping) else self._any(value)
        )

    def _mapping(
        self, write: Write, value: Mapping[Any, Any], declared: Any = Any
    ) -> dict[str, Any]:
        data: dict[str, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                data[key if key.__class__ is str else self._key(key, declared)] = write(item)
        except Exception as error:
            _note(error, str(key)[:100])
            raise
        if len(data) != len(value):
            raise EncodeError(
                "two keys of the mapping have the same text",
                details={"keys": len(value), "texts": len(data)},
                hint="use keys of one type",
            )
        return data

    def _key(self, key: Any, declared: Any) -> str:
        text = self._key_text(key)
        if self._lossless and key.__class__ is not declared and text != key:
            raise EncodeError(
                f"the key {key!r:.100} would come back as text",
                details={"class": t.label(key.__class__)},
                hint="use text as keys, or declare their type: give an attrs class or dataclass "
                f"with a field such as dict[{t.label(key.__class__)}, …]",
            )
        return text

    def _key_text(self, key: Any) -> str:
        text = key
        if t.is_scalar(key.__class__) and t.is_key(key.__class__):
            text = self.of(key.__class__)(key)
        elif isinstance(key, str):
            text = self._any(key)
        if text.__class__ is int:
            return str(text)
        if text.__class__ is not str:
            raise EncodeError(
                f"a {t.label(key.__class__)} cannot be a key in data",
                details={"class": t.label(key.__class__)},
                hint="use text, whole numbers, enums, dates, UUIDs or Decimals as keys",
            )
        return str(text)

    def _record(self, kind: Any, cls: type[Any]) -> Write:
        known = {field.name: self._late(field.type) for field in t.record_fields(kind)}
        fields = [(name, known[name]) for name in key_order(cls, list(known))]

        def write(value: Any) -> Any:
            if value.__class__ is not cls:
                return self._write_tagged(value, {}) if isinstance(value, cls) else self._any(value)
            data: dict[str, Any] = {}
            name = ""
            try:
                for name, write_field in fields:
                    data[name] = write_field(getattr(value, name))
            except Exception as error:
                _note(error, name)
                raise
            return data

        return write

    def _union(self, kind: Any) -> Write:
        if any(map(t.is_any, t.members(kind)[0])):
            return self._any
        union = UnionPlan(kind, self._registry, self._dialect)
        writers = [self._late(member) for member in union.members]

        def write(value: Any) -> Any:
            if value is None:
                return None
            index = union.member_of(value)
            if index is None:
                return self._any(value)
            if union.tags_records and t.is_record(value.__class__):
                return self._write_tagged(value, union.names)
            data = writers[index](value)
            name = union.wrappers.get(index)
            return data if name is None else {TAG: name, VALUE: data}

        return write


def _lossy_error(value: Any, data: Any) -> EncodeError:
    name = t.label(value.__class__)
    form = {str: "text", list: "a list"}.get(data.__class__, f"{data!r:.100}")
    return EncodeError(
        f"a {name} would come back as {form}",
        details={"class": name},
        hint=f"write it as {form} yourself, or declare its type: give an attrs class or dataclass "
        f"with a field of type {name}",
    )


def _note(error: Exception, key: str | int) -> None:
    if not isinstance(error, RecursionError):  # its thousand frames explain nothing
        at(error, key)


def _same(value: Any) -> Any:
    return value


def _member_value(value: Any) -> Any:
    return value.value


def _member_name(value: Any) -> Any:
    return value.name


def _finite(value: float) -> float:
    if not isfinite(value):
        raise EncodeError(
            f"{value} is not a number that JSON can hold",
            details={"value": str(value)},
            hint="use None for a missing number, or the msgpack codec",
        )
    return value


def _instant(value: datetime) -> Any:
    """RFC 3339 knows whole minutes only; another offset becomes UTC, the same instant."""
    from msgspec import to_builtins

    offset = value.utcoffset()
    if offset is not None and (offset.seconds % 60 or offset.microseconds):
        value = value.astimezone(UTC)
    return to_builtins(value)


def _clock_time(value: time) -> Any:
    from msgspec import to_builtins

    offset = value.utcoffset()
    if value.tzinfo is not None and (offset is None or offset.seconds % 60 or offset.microseconds):
        raise EncodeError(
            f"the offset of {value!r} is not a number of whole minutes",
            details={"tzinfo": str(value.tzinfo)},
            hint="use a datetime, or a time with a fixed offset",
        )
    return to_builtins(value)


def _plainer(value: Any) -> Any:
    """A subclass of a plain type as that type."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    bases: tuple[Any, ...] = (str, int, float, bytes, Decimal, list, tuple, set, frozenset)
    for base in bases:
        if isinstance(value, base):
            return str.__str__(value) if base is str else base(value)
    raise EncodeError(
        f"a {t.label(value.__class__)} has no form in data",
        details={"class": t.label(value.__class__)},
        hint="use an attrs class or dataclass, or a type from the table of the docs",
    )
