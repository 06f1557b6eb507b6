"""What the control topic says: groups, pauses, and where topics without a group stood."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field, frozen

if TYPE_CHECKING:
    from confluent_kafka import Message


LONGEST_NUMBER: Final = 10  # digits of a partition
LARGEST_OFFSET: Final = 2**63 - 1

Marks = dict[str, dict[int, int]]


@frozen
class Declared:
    value: dict[str, Any]

    @property
    def marks(self) -> Marks:
        return {name: offsets_of(offsets) for name, offsets in self.value["marks"].items()}


@define
class State:
    """What the control topic says."""

    groups: dict[tuple[str, str], Declared] = field(factory=dict[tuple[str, str], Declared])
    paused: set[tuple[str, str]] = field(factory=set[tuple[str, str]])
    # Where a topic was when its last group went: its next first group begins there.
    kept: dict[str, dict[int, int]] = field(factory=dict[str, dict[int, int]])

    def covers(self, topic: str) -> bool:
        return any(one == topic for one, _ in self.groups)

    def count(self, topic: str) -> int:
        return sum(one == topic for one, _ in self.groups)

    def apply(self, message: Message) -> None:
        """Take over one record; what is not of this driver means nothing."""
        match parse_json(message.key()), parse_json(message.value()):
            case ["pause", str() as topic, str() as group], bool() as paused:
                at = (topic, group)
                (self.paused.add if paused else self.paused.discard)(at)
            case ["group", str() as topic, str() as group], {
                "dropped": True,
                "marks": {**marks},
            }:
                at, offsets = (topic, group), offsets_of(cast("dict[str, Any]", marks))
                self.groups.pop(at, None)
                self.paused.discard(at)
                if offsets:
                    self.kept[topic] = offsets
            case (
                ["group", str() as topic, str() as group],
                {"marks": {**marks}, "temporary": bool()} as value,
            ) if all(isinstance(one, dict) for one in marks.values()):
                self.groups.setdefault((topic, group), Declared(value))
            case _:
                return


def parse_json(raw: bytes | None) -> Any:
    """Bytes as JSON; None where they are not."""
    try:
        return json.loads(raw or b"")
    except (ValueError, RecursionError):
        return None


def offsets_of(offsets: Mapping[str, Any]) -> dict[int, int]:
    """By the number of the partition: JSON has no numbers as keys."""
    return {
        int(number): offset
        for number, offset in offsets.items()
        if number.isdecimal() and len(number) < LONGEST_NUMBER and _is_offset(offset)
    }


def _is_offset(value: Any) -> bool:
    """Whether the client takes it: it raises for larger ones, and negative ones have a meaning."""
    return value.__class__ is int and 0 <= value <= LARGEST_OFFSET
