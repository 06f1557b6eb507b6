"""CSV and table rows: each row is a paragraph with column names."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from lexigram.ai.workers.document_ingestion.blocks import escape_markdown, join_lazily, scan
from lexigram.ai.workers.document_ingestion.errors import DocumentBrokenError
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.sniffing import decode
from lexigram.ai.workers.document_ingestion.types import Document

_DELIMITERS = ",;\t|"
_SAMPLE = 64 * 1024
_NAME = 200  # characters of a column name


def parse_csv(data: bytes, source: Source) -> Document:
    """Parse rows; every cell has its column name, so that a chunk is understandable alone."""
    text, charset = decode(data, source.name, source.charset)
    rows = csv.reader(_lines(text), delimiter=_delimiter(text, source), strict=True)
    try:
        content = join_lazily(row_texts(rows), "\n\n")
    except csv.Error as error:
        raise DocumentBrokenError(source.name, f"invalid CSV: {error}") from error
    return Document(content, {"charset": charset}, scan(content, markdown=False))


def row_texts(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield ``name: Ann; town: Rome`` for every row after the header; a single row as it is."""
    names: list[str] | None = None
    count = 0
    for row in rows:
        cells = ["" if cell is None else " ".join(str(cell).split()) for cell in row]
        if not any(cells):
            continue
        if names is None:
            names = [cell[:_NAME] for cell in cells]
            continue
        count += 1
        text = "; ".join(_cells(names, cells))
        if text:
            yield escape_markdown(text)
    if names is not None and not count:
        yield escape_markdown("; ".join(filter(None, names)))


def _cells(names: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if cell:
            name = names[number] if number < len(names) else ""
            yield f"{name}: {cell}" if name else cell


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _delimiter(text: str, source: Source) -> str:
    if source.suffix == ".tsv":
        return "\t"
    first = text[:_SAMPLE].lstrip("\n").partition("\n")[0]
    return max(_DELIMITERS, key=first.count) if first else ","
