"""Metadata filters: match records in memory, and build conditions for LanceDB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from lexigram.ai.workers.vectors.errors import VectorFilterError, VectorRecordError

# Metadata keys with a separate column, because most filters use them. Other keys, and values that
# are not text, are in the column ``facts``.
COLUMNS: Final = ("document_id", "source", "uri", "mime_type")


def matches(metadata: Mapping[str, Any], filter_: Mapping[str, Any]) -> bool:
    """True if every key of the filter has its value, or one of a list of values."""
    return all(
        key in metadata and _plain(metadata[key]) in {_plain(value) for value in _choices(choice)}
        for key, choice in filter_.items()
    )


def where(filter_: Mapping[str, Any]) -> str:
    """Build the SQL condition of a filter; keys and values are always quoted."""
    return " AND ".join(f"({_condition(key, choice)})" for key, choice in filter_.items())


def ids_in(ids: list[str]) -> str:
    """Build the condition for a list of ids."""
    return f"id IN ({', '.join(map(_quote, ids))})"


def facts_of(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts of metadata that is not in columns."""
    for key, value in metadata.items():
        if not _in_column(key, value):
            yield _fact(key, value)


def columns_of(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the column values; None for missing values and values that are not text."""
    return {key: metadata[key] if _in_column(key, metadata.get(key)) else None for key in COLUMNS}


def all_facts(metadata: Mapping[str, Any]) -> list[str]:
    """Return the facts of all metadata, for stores without columns."""
    return [_fact(key, value) for key, value in metadata.items()]


def filter_facts(filter_: Mapping[str, Any]) -> list[list[str]]:
    """Return per key of the filter the alternative facts of a matching record."""
    return [[_fact(key, value) for value in _choices(choice)] for key, choice in filter_.items()]


def check_filter(filter_: Mapping[str, Any]) -> None:
    """Raise VectorFilterError for an empty or invalid filter."""
    if not filter_:
        raise VectorFilterError(
            "the filter is empty and would match all records",
            hint="set a filter, or delete the collection",
        )
    check_values(filter_)


def check_values(filter_: Mapping[str, Any]) -> None:
    """Raise VectorFilterError for values that are not valid metadata."""
    for key, choice in filter_.items():
        try:
            for value in _choices(choice):
                _plain(value)
        except VectorRecordError as error:
            raise VectorFilterError(f"filter {key!r}: {error.message}", hint=error.hint) from error


def _condition(key: str, choice: Any) -> str:
    values = _choices(choice)
    if not values:
        return "false"
    texts = [value for value in values if _in_column(key, value)]
    facts = [_fact(key, value) for value in values if not _in_column(key, value)]
    parts: list[str] = []
    if texts:
        parts.append(f"{key} IN ({', '.join(map(_quote, texts))})")
    if facts:
        parts.append(f"array_has_any(facts, [{', '.join(map(_quote, facts))}])")
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
    """Normalize a value to JSON: 1 and 1.0 are equal, true and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise VectorRecordError(
            f"{value!r} is not a JSON value", hint="use text, numbers, booleans, lists or objects"
        ) from error


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
