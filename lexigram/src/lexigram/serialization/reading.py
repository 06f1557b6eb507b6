"""Plain data to values: the read function of each type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Flag
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lexigram.serialization import types as t
from lexigram.serialization.errors import DecodeError, UnknownTypeError
from lexigram.serialization.problems import at, expect_error
from lexigram.serialization.registry import TypeRegistry
from lexigram.serialization.types import TAG, VALUE, Dialect
from lexigram.serialization.unions import UnionPlan, wire_of

if TYPE_CHECKING:
    from cattrs import Converter

Read = Callable[[Any, Any], Any]


class Readers:
    """The read functions of one format; cattrs generates those of records from them."""

    def __init__(self, converter: Converter, registry: TypeRegistry, dialect: Dialect) -> None:
        self._converter = converter
        self._registry = registry
        self._dialect = dialect
        self._made: dict[Any, Read] = {}

    def of(self, kind: Any) -> Read:
        """The read function of ``kind``, made once.

        Not by cattrs' own dispatch: it would prefer its lenient hooks for plain types.
        """
        read = self._made.get(kind)
        if read is None:
            read = self._made[kind] = self._make(kind)
        return read

    def _make(self, declared: Any) -> Read:
        kind = t.bare(declared)
        origin = get_origin(kind) or kind
        if t.is_any(kind):
            return self._any
        if kind is None or kind is type(None):
            return _none
        if t.is_scalar(kind):
            return self._scalar(kind)
        if t.is_literal(kind):
            return partial(_literal, get_args(kind))
        if t.is_union(kind):
            return self._union(kind)
        if origin is tuple:
            return self._tuple(get_args(kind))
        if origin in t.SEQUENCES:
            return partial(
                _sequence, t.SEQUENCES[origin], self._late((get_args(kind) or (Any,))[0])
            )
        if origin in t.MAPPINGS:
            return self._mapping(get_args(kind) or (str, Any))
        if t.is_record(kind):
            return self._record(kind, origin)
        raise t.unsupported_error(declared)

    def _late(self, kind: Any) -> Read:
        """The reader of ``kind``, made at first use: a type may contain itself."""
        if t.is_scalar(kind):
            return self.of(kind)
        made: list[Read] = []

        def read(value: Any, _: Any) -> Any:
            if not made:
                made.append(self.of(kind))
            return made[0](value, kind)

        return read

    def _scalar(self, kind: Any) -> Read:
        """Texts are read by msgspec here too, so that both paths know one grammar."""
        from msgspec import convert

        if t.is_enum(kind) and t.plain_enum(kind) is None:
            return partial(_flag if issubclass(kind, Flag) else _enum_by_name, kind)
        natives = self._dialect.natives
        exact = kind if kind in t.PRIMITIVES or kind in natives else None

        def read(value: Any, _: Any) -> Any:
            if value.__class__ is exact:
                return value
            return convert(value, kind, builtin_types=natives)

        return read

    def _any(self, value: Any, _: Any) -> Any:
        if value.__class__ is list:
            return _sequence(list, self._any, value, Any)
        if value.__class__ is not dict:
            return value
        if TAG not in value:
            return _mapping(_same_key, self._any, value, Any)
        name = value[TAG]
        cls = self._registry.class_of(name) if name.__class__ is str else None
        if cls is None:
            raise unknown_type(name, self._registry.names())
        return self.of(cls)(value, cls)

    def _tuple(self, args: tuple[Any, ...]) -> Read:
        if not args:
            return partial(_sequence, tuple, self._any)
        if args[-1] is Ellipsis:
            return partial(_sequence, tuple, self._late(args[0]))
        return partial(_read_fixed, [self._late(arg) for arg in args])

    def _mapping(self, args: tuple[Any, ...]) -> Read:
        return partial(_mapping, self._key(t.bare(args[0])), self._late(args[1]))

    def _key(self, kind: Any) -> Read:
        """Keys are text in data; numbers are read from it."""
        from msgspec import convert

        if kind is str or t.is_any(kind):
            return _same_key
        if kind is int or (t.is_enum(kind) and t.plain_enum(kind) is int):
            return lambda value, _: convert(value, kind, strict=False)
        if t.is_key(kind):
            return self._scalar(kind)
        raise t.unsupported_error(kind, " as the key of a mapping")

    def _record(self, kind: Any, cls: type[Any]) -> Read:
        plain = self._generate(kind)
        kinds = self._registry.kinds_of(cls)
        is_open = any(known is not cls for known in kinds.values())
        is_abstract = inspect.isabstract(cls)

        def read(value: Any, _: Any) -> Any:
            if value.__class__ is not dict:
                raise expect_error(cls, value)
            if (is_open or is_abstract) and TAG in value:
                named = kinds.get(value[TAG]) if value[TAG].__class__ is str else None
                if named is None:
                    raise unknown_type(value[TAG], sorted(kinds))
                if named is not cls:
                    return self.of(named)(value, named)
            if is_abstract:
                raise DecodeError(
                    f"{cls.__qualname__} is abstract, and the data do not say which kind it is",
                    details={"class": cls.__qualname__, "known": sorted(kinds)},
                    hint=f"write it with the type name under {TAG!r}: dumps(value, BaseClass)",
                )
            return plain(value, kind)

        return read

    def _generate(self, kind: Any) -> Read:
        from cattrs.gen import make_dict_structure_fn, override

        hooks: dict[str, Any] = {
            field.name: override(struct_hook=self._late(field.type))
            for field in t.record_fields(kind)
        }
        made: Read = make_dict_structure_fn(
            kind, self._converter, _cattrs_detailed_validation=True, **hooks
        )
        return made

    def _union(self, kind: Any) -> Read:
        if any(map(t.is_any, t.members(kind)[0])):
            return self._any
        union = UnionPlan(kind, self._registry, self._dialect)
        readers = [self._late(member) for member in union.members]
        by_name = {name: self._late(target) for name, target in union.named.items()}
        by_wire = {wire: readers[index] for wire, index in union.by_wire.items()}

        def read(value: Any, _: Any) -> Any:
            if value is None and union.optional:
                return None
            if isinstance(value, dict) and TAG in value and by_name:
                name = value[TAG]
                reader = by_name.get(name) if name.__class__ is str else None
                if reader is not None:
                    return reader(value[VALUE] if union.wrapped(name) else value, Any)
                if "object" not in by_wire:  # else a subclass of the only record may be named
                    raise unknown_type(name, sorted(by_name))
            found = by_wire.get(wire_of(value))
            if found is None:
                raise expect_error(kind, value)
            return found(value, Any)

        return read


def unknown_type(name: Any, known: list[str]) -> UnknownTypeError:
    return UnknownTypeError(
        f"the data name the type {name!r:.100}, which may not stand here",
        details={"name": repr(name)[:100], "known": known},
        hint="lexigram.serialization.register(Class, name=...) before reading; "
        f"known here: {', '.join(known) or 'none'}",
    )


def _none(value: Any, _: Any) -> None:
    if value is not None:
        raise expect_error("null", value)


def _same_key(value: Any, _: Any) -> Any:
    if value.__class__ is not str:
        raise expect_error("a text key", value)
    return value


def _literal(allowed: tuple[Any, ...], value: Any, _: Any) -> Any:
    for choice in allowed:
        if choice.__class__ is value.__class__ and choice == value:
            return choice
    raise DecodeError(
        f"expected one of {', '.join(map(repr, allowed))}",
        details={"allowed": list(map(repr, allowed))},
        hint="compare the data with the type they are read as",
    )


def _flag(kind: Any, value: Any, _: Any) -> Any:
    if value.__class__ is not int:
        raise expect_error("int", value)
    return kind(value)


def _enum_by_name(kind: Any, value: Any, _: Any) -> Any:
    member = kind.__members__.get(value) if value.__class__ is str else None
    if member is None:
        raise expect_error(f"the name of a {t.label(kind)}", value)
    return member


def _sequence(build: Any, read: Read, value: Any, _: Any) -> Any:
    if value.__class__ is not list:
        raise expect_error("a list", value)
    index, items = 0, []
    try:
        for index, item in enumerate(value):  # noqa: B007 - needed on failure
            items.append(read(item, Any))
    except Exception as error:
        at(error, index)
        raise
    return items if build is list else build(items)


def _read_fixed(readers: list[Read], value: Any, _: Any) -> Any:
    if value.__class__ is not list:
        raise expect_error("a list", value)
    if len(value) != len(readers):
        raise expect_error(f"a list of {len(readers)}", value)
    index, items = 0, []
    try:
        for index, (read, item) in enumerate(zip(readers, value, strict=True)):  # noqa: B007 - same
            items.append(read(item, Any))
    except Exception as error:
        at(error, index)
        raise
    return tuple(items)


def _mapping(read_key: Read, read: Read, value: Any, _: Any) -> Any:
    if value.__class__ is not dict:
        raise expect_error("an object", value)
    data, key = {}, None
    try:
        for key, item in value.items():
            data[read_key(key, Any)] = read(item, Any)
    except Exception as error:
        at(error, str(key)[:100])
        raise
    return data
