"""Reading annotations: what a type is made of."""

from __future__ import annotations

import dataclasses
import types
from collections import abc
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

import attrs
from attrs import frozen

from lexigram.serialization.errors import UnsupportedTypeError

PRIMITIVES: Final = (bool, int, float, str)
SCALARS: Final = (bytes, datetime, date, time, timedelta, UUID, Decimal)  # exact types
# What is built for a declared collection; abstract ones get the plain builtin.
SEQUENCES: Final[dict[Any, type[Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: set,
    abc.MutableSet: set,
}
MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)


TAG: Final = "$type"  # the key of a type name in data
VALUE: Final = "$value"  # and of what it stands before, where that is no object


@frozen(kw_only=True)
class Dialect:
    """What one format can hold by itself, beyond text, numbers, lists and objects."""

    native_bytes: bool
    all_floats: bool  # NaN and the infinities too

    @property
    def natives(self) -> tuple[type[Any], ...]:
        return (bytes,) if self.native_bytes else ()


@frozen(kw_only=True)
class RecordField:
    """One field of an attrs class or dataclass that its constructor takes."""

    name: str
    type: Any


def is_record(cls: Any) -> bool:
    """Whether ``cls`` (or what ``Box[int]`` was made of) is an attrs class or a dataclass."""
    origin = get_origin(cls) or cls
    return isinstance(origin, type) and (attrs.has(origin) or dataclasses.is_dataclass(origin))


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def is_any(kind: Any) -> bool:
    return kind is Any or kind is object or isinstance(kind, TypeVar)


def is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def bare(kind: Any) -> Any:
    """``kind`` without ``Annotated``, ``NewType`` and ``type X = …`` around it."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        else:
            return kind


def is_scalar(kind: Any) -> bool:
    return kind in PRIMITIVES or kind in SCALARS or is_enum(kind)


def is_key(kind: Any) -> bool:
    """Whether values of ``kind`` can be keys of an object: they have a text of their own."""
    if is_enum(kind):
        return not issubclass(kind, Flag)
    return kind in (str, int) or (kind in SCALARS and kind is not bytes)


def by_value(kind: Any) -> bool:
    """Whether an enum stands in data by its value; else by its name."""
    return issubclass(kind, Flag) or plain_enum(kind) is not None


def is_wrapped(kind: Any) -> bool:
    return bare(kind) is not kind


def members(union: Any) -> tuple[list[Any], bool]:
    """The members of a union without None, and whether None is one of them."""
    args = [bare(arg) for arg in get_args(union)]
    return [arg for arg in args if arg is not type(None)], type(None) in args


def plain_enum(kind: type[Any]) -> type[Any] | None:
    """``str`` or ``int`` where all values are, and looking one up has no surprises."""
    if issubclass(kind, Flag) or "_missing_" in _own_names(kind):
        return None
    classes = {member.value.__class__ for member in kind.__members__.values()}
    return next((base for base in (str, int) if classes == {base}), None)


def unsupported_error(kind: Any, why: str = "") -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{label(kind)} cannot be serialized{why}",
        details={"type": label(kind)},
        hint="use attrs classes, dataclasses, enums, the scalars and collections of the docs, "
        "and unions of those",
    )


def label(kind: Any) -> str:
    """A type as a person writes it."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def record_fields(kind: Any) -> list[RecordField]:
    """The constructor's fields with their types, type variables bound as ``kind`` says."""
    cls = get_origin(kind) or kind
    bound = _bindings(kind)
    return [
        RecordField(name=field.name, type=_bind(field.type, bound))
        for field in raw_fields(cls)
        if field.init
    ]


def raw_fields(cls: type[Any]) -> list[Any]:
    """The attributes or dataclass fields, with annotations resolved."""
    try:
        if attrs.has(cls):
            return list(attrs.fields(attrs.resolve_types(cls, include_extras=True)))
        return _dataclass_fields(cls)
    except NameError as error:
        raise UnsupportedTypeError(
            f"an annotation of {cls.__qualname__} names {error.name!r}, which is not known",
            details={"class": cls.__qualname__, "name": error.name},
            hint="define it at module level and import it for real, not under TYPE_CHECKING",
        ) from error


def _own_names(kind: type[Any]) -> set[str]:
    bases = kind.__mro__[: kind.__mro__.index(Enum)]
    return {name for base in bases if base.__module__ != "enum" for name in vars(base)}


def _dataclass_fields(cls: type[Any]) -> list[Any]:
    from typing import get_type_hints

    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        copy = dataclasses.field()
        copy.name, copy.type, copy.init = field.name, hints[field.name], field.init
        copy.default, copy.default_factory = field.default, field.default_factory
        found.append(copy)
    return found


def _bindings(kind: Any) -> dict[Any, Any]:
    """Type variables of ``kind`` and its generic bases, as bound on the way."""
    origin = get_origin(kind) or kind
    bound = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
    for base in getattr(origin, "__orig_bases__", ()):
        if get_origin(base) is not None and hasattr(get_origin(base), "__parameters__"):
            bound = {**_bindings(_bind(base, bound)), **bound}
    return bound


def _bind(annotation: Any, bound: dict[Any, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type):
        return annotation
    return annotation[tuple(bound.get(parameter, Any) for parameter in parameters)]
