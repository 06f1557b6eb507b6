"""Which types msgspec reads and writes exactly as our converter does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, time
from decimal import Decimal
from operator import attrgetter
from typing import Any, get_args, get_origin

import attrs
from attrs import define, field

from lexigram.serialization import types as t
from lexigram.serialization.registry import TypeRegistry

LEVELS = 8  # containers inside each other that plain data may have on the short way


@define(kw_only=True)
class Shape:
    """What matters about one type; found by looking at everything it is made of."""

    encode: bool = True
    decode: bool = True
    bounded: bool = True  # the type itself says how deep its values can be
    floats: bool = False
    # Records inside: one of a subclass would be written without its name.
    records: list[type[Any]] = field(factory=list)
    # Ways to each moment inside: msgspec rounds odd offsets, so only UTC and naive ones pass.
    moments: list[Callable[[Any], Any]] = field(factory=list)

    def fits(self, value: Any) -> bool:
        """Whether msgspec may write this very value."""
        for record in self.records:
            if record.__subclasses__():
                return False
        for get in self.moments:
            moment = get(value)
            if moment is not None and moment.tzinfo is not None and moment.tzinfo is not UTC:
                return False
        return True


def shape_of(kind: Any, registry: TypeRegistry, *, native_moments: bool) -> Shape:
    """Look at ``kind``; ``native_moments`` says that the format has moments of its own kind."""
    return _Look(registry, native_moments=native_moments).at(kind)


def is_plain(value: Any, levels: int) -> bool:
    """Whether a dict or list holds only what JSON has, down to its leaves, and no type name.

    What nests deeper than ``levels`` is left to the converter, which measures it.
    """
    if value.__class__ is dict:
        if not _TEXT.issuperset(map(type, value)) or t.TAG in value:
            return False
        items = value.values()
    else:
        items = value
    if _PLAIN.issuperset(map(type, items)):
        return True
    # A loop: ``all`` over a generator took half as long again.
    for item in items:
        kind = item.__class__
        if kind is dict or kind is list:
            if levels <= 1 or not is_plain(item, levels - 1):
                return False
        elif kind not in _PLAIN:
            return False
    return True


def is_flat(values: Iterable[Any]) -> bool:
    """Whether none of them is a container, or anything else but what JSON has."""
    return _PLAIN.issuperset(map(type, values))


_TEXT = frozenset({str})
_PLAIN = frozenset({str, int, float, bool, type(None)})


def key_order(cls: type[Any], names: list[str]) -> list[str]:
    """The order in which msgspec writes the fields of ``cls``: not always that of the class."""
    from msgspec.json import decode, encode

    if not (_has_plain_new(cls) and _writes_fields_only(cls)):
        return names
    blank = object.__new__(cls)
    for name in names:
        object.__setattr__(blank, name, None)
    written = list(decode(encode(blank)))
    return written if sorted(written) == sorted(names) else names


class _Look:
    def __init__(self, registry: TypeRegistry, *, native_moments: bool) -> None:
        self._registry = registry
        self._native_moments = native_moments
        self._shape = Shape()
        self._open: list[Any] = []  # records being looked at: meeting one again is a recursion
        self._seen: list[Any] = []  # records met where no path leads: once is enough
        self._root: Any = None

    def at(self, kind: Any) -> Shape:
        self._root = kind
        self._visit(kind, "")
        if not self._shape.bounded and self._shape.moments:
            self._shape.encode = False  # a recursive value has more of them than paths lead to
        return self._shape

    def _visit(self, kind: Any, path: str | None) -> None:
        """``path`` leads there by attributes, ``""`` at the root; None: not by attributes only."""
        origin = get_origin(kind) or kind
        if kind in (str, int, bool, float) or kind in t.SCALARS:
            self._scalar(kind, path)
        elif kind is None or kind is type(None):
            pass
        elif t.is_enum(kind):
            self._needs(t.plain_enum(kind) is not None)
        elif t.is_literal(kind):
            self._needs(all(choice.__class__ in (str, int) for choice in get_args(kind)))
        elif t.is_union(kind):
            self._union(kind, path)
        elif origin in (list, set, frozenset, tuple, dict):
            self._collection(origin, get_args(kind))
        elif t.is_record(kind):
            self._record(kind, path)
        else:
            self._other(kind, origin)

    def _other(self, kind: Any, origin: Any) -> None:
        """Any may hold type names; what is left is rare, or refused by the converter."""
        self._needs(False)
        if t.is_wrapped(kind):
            self._visit(t.bare(kind), None)
        elif get_args(kind) and (origin in t.SEQUENCES or origin in t.MAPPINGS):
            for arg in get_args(kind):
                self._visit(arg, None)
        else:
            self._shape.bounded = False

    def _scalar(self, kind: Any, path: str | None) -> None:
        if kind is float:
            self._shape.floats = True
        elif kind is Decimal:
            self._shape.decode = False  # msgspec also reads numbers, digit by digit
        elif kind in (datetime, time):
            if path and not (kind is datetime and self._native_moments):
                self._shape.moments.append(attrgetter(path))
            else:
                self._shape.encode = False

    def _union(self, kind: Any, path: str | None) -> None:
        members, optional = t.members(kind)
        single = optional and len(members) == 1
        self._needs(single)
        # An attribute of None has no attributes: a record behind `| None` ends the path.
        keep = path if single and not t.is_record(members[0]) else None
        for member in members:
            self._visit(member, keep)

    def _collection(self, origin: Any, args: tuple[Any, ...]) -> None:
        if not args:
            self._needs(False)
            self._shape.bounded = False
            return
        if origin is dict:
            self._needs(args[0] is str)
        for arg in args:
            if arg is not Ellipsis:
                self._visit(arg, None)

    def _record(self, kind: Any, path: str | None) -> None:
        cls = get_origin(kind) or kind
        if (kind is not self._root or self._open) and cls not in self._shape.records:
            self._shape.records.append(cls)
        if kind in self._open:
            self._shape.bounded = False
            return
        if path is None and kind in self._seen:
            return
        self._needs(kind is cls and _is_plain(cls) and not self._is_open(cls))
        self._shape.encode = self._shape.encode and _writes_fields_only(cls)
        self._open.append(kind)
        for item in t.record_fields(kind):
            below = None if path is None else f"{path}.{item.name}".lstrip(".")
            self._visit(item.type, below)
        self._open.pop()
        if path is None:
            self._seen.append(kind)

    def _is_open(self, cls: type[Any]) -> bool:
        return any(known is not cls for known in self._registry.kinds_of(cls).values())

    def _needs(self, holds: bool) -> None:
        self._shape.encode = self._shape.encode and holds
        self._shape.decode = self._shape.decode and holds


def _is_plain(cls: type[Any]) -> bool:
    """Whether building one is only setting its fields: msgspec does not call ``__init__``."""
    if not _has_plain_new(cls):
        return False
    if any(not item.init or item.name.startswith("_") for item in t.raw_fields(cls)):
        return False
    if attrs.has(cls):
        return _is_plain_attrs(cls)
    params: Any = getattr(cls, "__dataclass_params__", None)
    own = "__dataclass_params__" in vars(cls)
    return own and params.init and not hasattr(cls, "__post_init__")


def _has_plain_new(cls: type[Any]) -> bool:
    made_by: Any = cls.__new__
    return made_by is object.__new__ and not inspect.isabstract(cls)


def _is_plain_attrs(cls: type[Any]) -> bool:
    names = ("__attrs_init__", "__attrs_pre_init__", "__attrs_post_init__")
    if any(hasattr(cls, name) for name in names) or "__attrs_attrs__" not in vars(cls):
        return False
    return not any(
        item.validator is not None
        or item.converter is not None
        or item.alias != item.name
        or getattr(item.default, "takes_self", False)
        for item in attrs.fields(cls)
    )


def _writes_fields_only(cls: type[Any]) -> bool:
    """Msgspec writes all that an attrs object holds, also what was cached on it."""
    if not attrs.has(cls):
        return True
    slots = {name for base in cls.__mro__ for name in vars(base).get("__slots__", ())}
    names = {item.name for item in attrs.fields(cls)}
    return cls.__dictoffset__ == 0 and slots - {"__weakref__"} == names
