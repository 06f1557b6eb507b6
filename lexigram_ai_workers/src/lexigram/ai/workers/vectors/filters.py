"""Filters over metadata: whether a record matches, and the same as a condition for LanceDB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from lexigram.ai.workers.vectors.errors import VectorFilterError, VectorRecordError

# Metadata with a column of its own, because nearly every filter names one of them. A value that
# is no text, and every other key, is found by its fact.
COLUMNS: Final = ("document_id", "source", "uri", "mime_type")


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True when every key of the filter equals its value, or one of its list."""
    return all(
        key in metadata and _plain(metadata[key]) in {_plain(value) for value in _choices(choice)}
        for key, choice in wanted.items()
    )


def where(wanted: Mapping[str, Any]) -> str:
    """The filter as a condition. Values and keys only ever stand inside quoted text."""
    return " AND ".join(f"({_condition(key, choice)})" for key, choice in wanted.items())


def ids_in(ids: list[str]) -> str:
    """The condition that the id is one of these."""
    return f"id IN ({', '.join(map(_quoted, ids))})"


def facts_of(metadata: Mapping[str, Any]) -> Iterator[str]:
    """The facts a record is found by, besides its columns."""
    for key, value in metadata.items():
        if not _in_column(key, value):
            yield _fact(key, value)


def columns_of(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """What goes into the columns; None where there is nothing, or no text."""
    return {key: metadata[key] if _in_column(key, metadata.get(key)) else None for key in COLUMNS}


def all_facts(metadata: Mapping[str, Any]) -> list[str]:
    """Every fact, for stores without columns."""
    return [_fact(key, value) for key, value in metadata.items()]


def wanted_facts(wanted: Mapping[str, Any]) -> list[list[str]]:
    """For every key of the filter the facts of which a record must have one."""
    return [[_fact(key, value) for value in _choices(choice)] for key, choice in wanted.items()]


def check_filter(wanted: Mapping[str, Any]) -> None:
    """Raise VectorFilterError unless it can be used to replace or remove."""
    if not wanted:
        raise VectorFilterError(
            "an empty filter would mean every record",
            hint="name what to remove, or delete the collection",
        )
    check_values(wanted)


def check_values(wanted: Mapping[str, Any]) -> None:
    """Raise VectorFilterError for a value that metadata cannot hold."""
    for key, choice in wanted.items():
        try:
            for value in _choices(choice):
                _plain(value)
        except VectorRecordError as error:
            raise VectorFilterError(f"filter {key!r}: {error.message}", hint=error.hint) from error


def _condition(key: str, choice: Any) -> str:
    values = _choices(choice)
    if not values:
        return "false"
    told = [value for value in values if _in_column(key, value)]
    facts = [_fact(key, value) for value in values if not _in_column(key, value)]
    parts: list[str] = []
    if told:
        parts.append(f"{key} IN ({', '.join(map(_quoted, told))})")
    if facts:
        parts.append(f"array_has_any(facts, [{', '.join(map(_quoted, facts))}])")
    return " OR ".join(parts)


def _choices(choice: Any) -> list[Any]:
    if isinstance(choice, list | tuple | set | frozenset):
        return list(cast("Iterable[Any]", choice))
    return [choice]


def _in_column(key: str, value: Any) -> bool:
    return key in COLUMNS and isinstance(value, str)


def _fact(key: str, value: Any) -> str:
    return f"{json.dumps(key)}:{_plain(value)}"


def _plain(value: Any) -> str:
    """One text per value: 1 and 1.0 are equal, true and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise VectorRecordError(
            f"{value!r} is no JSON value", hint="metadata is text, numbers, true, lists, objects"
        ) from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
