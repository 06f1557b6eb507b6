"""How the members of a union are distinguished, in values and in data."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from lexigram.serialization.registry import TypeRegistry
from lexigram.serialization.types import (
    MAPPINGS,
    PRIMITIVES,
    SCALARS,
    SEQUENCES,
    Dialect,
    by_value,
    is_enum,
    is_literal,
    is_record,
    label,
    members,
    plain_enum,
    unsupported_error,
)


class UnionPlan:
    """The rules of one union.

    Records are named by a tag where there are two or more; others stand as they are where
    their form in data is theirs alone, and are wrapped with their name where it is not.
    """

    def __init__(self, kind: Any, registry: TypeRegistry, dialect: Dialect) -> None:
        self.members, self.optional = members(kind)
        records = [member for member in self.members if is_record(member)]
        self._check_values(kind)
        wires = [wires_of(member, dialect) for member in self.members]
        shared = {wire for wire in set().union(*wires) if sum(wire in w for w in wires) > 1}
        self.tags_records = len(records) > 1
        self.names = self._record_names(kind, records, registry) if self.tags_records else {}
        self.wrappers = {
            index: label(member)
            for index, member in enumerate(self.members)
            if wires[index] & shared and not (self.tags_records and is_record(member))
        }
        self.by_wire = {
            wire: index
            for index, found in enumerate(wires)
            for wire in found
            if index not in self.wrappers
            and not (self.tags_records and is_record(self.members[index]))
        }
        if "float" in self.by_wire and not any("int" in found for found in wires):
            self.by_wire["int"] = self.by_wire["float"]
        self.named = {name: cls for cls, name in self.names.items()} | {
            name: self.members[index] for index, name in self.wrappers.items()
        }

    def wrapped(self, name: str) -> bool:
        return name in self.wrappers.values()

    def member_of(self, value: Any) -> int | None:
        """The member that ``value`` is of: by its exact class, else by its nearest."""
        literal = self._literal_of(value)
        if literal is not None:
            return literal
        bases = (
            [*value.__class__.__mro__, float] if isinstance(value, int) else value.__class__.__mro__
        )
        for base in bases:
            for index, runtime in enumerate(self._runtimes):
                if base is runtime:
                    return index
        return None

    def _literal_of(self, value: Any) -> int | None:
        for index, member in enumerate(self.members):
            if is_literal(member) and any(
                choice.__class__ is value.__class__ and choice == value
                for choice in get_args(member)
            ):
                return index
        return None

    def _check_values(self, kind: Any) -> None:
        self._runtimes = [runtime_of(member) for member in self.members]
        known = [runtime for runtime in self._runtimes if runtime is not None]
        if len(set(known)) != len(known):
            raise unsupported_error(kind, ": two of its members have values of one class")

    @staticmethod
    def _record_names(
        kind: Any, records: list[Any], registry: TypeRegistry
    ) -> dict[type[Any], str]:
        names: dict[type[Any], str] = {}
        for member in records:
            cls = get_origin(member) or member
            if get_args(member):
                raise unsupported_error(kind, ": a generic class cannot be named in data")
            names |= {found: name for name, found in registry.kinds_of(cls).items()}
            names.setdefault(cls, registry.name_of(cls) or cls.__name__)
        if len(set(names.values())) != len(names):
            raise unsupported_error(
                kind, ": two of its classes have one name; register one as another"
            )
        return names


def runtime_of(kind: Any) -> Any:
    """The class of the values of a union member."""
    if is_literal(kind):
        return None
    origin = get_origin(kind) or kind
    if origin in MAPPINGS:
        return dict
    return SEQUENCES.get(origin, origin)


def wires_of(kind: Any, dialect: Dialect) -> set[str]:
    """The forms that values of ``kind`` have in data."""
    origin = get_origin(kind) or kind
    if is_literal(kind):
        return {wire_of(choice) for choice in get_args(kind)}
    if kind in PRIMITIVES:
        return {str(kind.__name__)}
    if is_enum(kind):
        return {"int"} if by_value(kind) and plain_enum(kind) is not str else {"str"}
    if kind is bytes and dialect.native_bytes:
        return {"bytes"}
    if kind in SCALARS:
        return {"str"}
    if origin in MAPPINGS or is_record(kind):
        return {"object"}
    if origin is tuple or origin in SEQUENCES:
        return {"list"}
    raise unsupported_error(kind)


def wire_of(value: Any) -> str:
    """The form of plain data."""
    if value.__class__ is dict:
        return "object"
    return str(value.__class__.__name__)
