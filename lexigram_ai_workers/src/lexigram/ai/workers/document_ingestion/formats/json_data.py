"""JSON and JSON Lines: values with their paths, one paragraph per item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

from lexigram.ai.workers.document_ingestion.blocks import escape_markdown, join_lazily, scan
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    DocumentNestedError,
)
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.sniffing import decode
from lexigram.ai.workers.document_ingestion.types import Document

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_MAX_DEPTH = 100  # the limit of the json library depends on the Python version
_MAX_PATH_LENGTH = 200  # characters


def parse_json(data: bytes, source: Source) -> Document:
    """Convert to lines ``path.to.key: value``; every top-level item is a paragraph."""
    text, charset = decode(data, source.name, source.charset)
    title: Json = None
    try:
        items: Iterator[str]
        if source.suffix in (".jsonl", ".ndjson"):
            items = (
                item for line in text.split("\n") if line.strip() for item in _parse_line(line)
            )
        else:
            value: Json = json.loads(text)
            items = _items(value)
            title = value.get("title") if isinstance(value, dict) else None
        content = join_lazily(filter(None, items), "\n\n")
    except json.JSONDecodeError as error:
        why = f"invalid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise DocumentBrokenError(source.name, why) from error
    except ValueError as error:  # a number with too many digits
        raise DocumentBrokenError(source.name, f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise DocumentNestedError(source.name, "levels of JSON", _MAX_DEPTH) from error
    metadata = {"charset": charset, **({"title": title} if isinstance(title, str) else {})}
    return Document(content, metadata, scan(content, markdown=False))


def _parse_line(line: str) -> Iterator[str]:
    return _items([json.loads(line)])


def _items(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield _item(item, "")
    elif isinstance(value, dict):
        for key, item in value.items():
            parts = item if isinstance(item, list) and _has_structure(item) else [item]
            for part in parts:
                yield _item(part, key[:_MAX_PATH_LENGTH])
    else:
        yield escape_markdown(str(value))


def _item(value: Json, path: str) -> str:
    lines: list[str] = []
    _add_leaves(value, path, lines, 1)
    return escape_markdown("\n".join(lines))


def _add_leaves(value: Json, path: str, lines: list[str], level: int) -> None:
    if level > _MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            _add_leaves(item, below[:_MAX_PATH_LENGTH], lines, level + 1)
    elif isinstance(value, list):
        if not _has_structure(value):
            if value:
                lines.append(_leaf(", ".join(map(_format_value, value)), path))
            return
        for item in value:
            _add_leaves(item, path, lines, level + 1)
    elif value is not None and value != "":
        lines.append(_leaf(_format_value(value), path))


def _has_structure(items: list[Json]) -> bool:
    return any(isinstance(item, dict | list) for item in items)


def _leaf(text: str, path: str) -> str:
    return f"{path}: {text}" if path else text


def _format_value(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
