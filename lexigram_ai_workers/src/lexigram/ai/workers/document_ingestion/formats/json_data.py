"""JSON and JSON lines: values with the path to them, one paragraph per item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

from lexigram.ai.workers.document_ingestion.blocks import escaped, scan
from lexigram.ai.workers.document_ingestion.charset import decode
from lexigram.ai.workers.document_ingestion.errors import DocumentBrokenError
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.types import Document

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def parse_json(data: bytes, source: Source) -> Document:
    """``path.to.key: value`` in lines; items of the outermost list or object are apart."""
    text, charset = decode(data, source.name, source.charset)
    try:
        value = _value(text, lines=source.suffix in (".jsonl", ".ndjson"))
        items = list(_items(value))
    except json.JSONDecodeError as error:
        why = f"it is no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise DocumentBrokenError(source.name, why) from error
    except RecursionError as error:
        raise DocumentBrokenError(source.name, "its JSON is nested too deeply") from error
    content = "\n\n".join(filter(None, items))
    title = value.get("title") if isinstance(value, dict) else None
    metadata = {"charset": charset, **({"title": title} if isinstance(title, str) else {})}
    return Document(content, metadata, scan(content, markdown=False))


def _value(text: str, *, lines: bool) -> Json:
    if lines:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    value: Json = json.loads(text)
    return value


def _items(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield escaped("\n".join(_leaves(item, "")))
    elif isinstance(value, dict):
        for key, item in value.items():
            parts = item if isinstance(item, list) and _has_structure(item) else [item]
            for part in parts:
                yield escaped("\n".join(_leaves(part, key)))
    else:
        yield escaped(str(value))


def _leaves(value: Json, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if not _has_structure(value):
            if value:
                yield _leaf(", ".join(map(_shown, value)), path)
            return
        for item in value:
            yield from _leaves(item, path)
    elif value is not None and value != "":
        yield _leaf(_shown(value), path)


def _has_structure(items: list[Json]) -> bool:
    return any(isinstance(item, dict | list) for item in items)


def _leaf(text: str, path: str) -> str:
    return f"{path}: {text}" if path else text


def _shown(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
