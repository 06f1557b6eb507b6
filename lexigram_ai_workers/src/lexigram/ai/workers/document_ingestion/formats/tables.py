"""CSV, and rows of any table: each row is a paragraph that names its columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from lexigram.ai.workers.document_ingestion.blocks import escaped, scan
from lexigram.ai.workers.document_ingestion.charset import decode
from lexigram.ai.workers.document_ingestion.errors import DocumentBrokenError
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.types import Document

_DELIMITERS = ",;\t|"
_SAMPLE = 64 * 1024


def parse_csv(data: bytes, source: Source) -> Document:
    """Rows with the names of the first row; a chunk of a table is of use only with them."""
    text, charset = decode(data, source.name, source.charset)
    rows = csv.reader(io.StringIO(text), delimiter=_delimiter(text, source), strict=True)
    try:
        content = "\n\n".join(row_texts(rows))
    except csv.Error as error:
        raise DocumentBrokenError(source.name, f"it is no CSV: {error}") from error
    return Document(content, {"charset": charset}, scan(content, markdown=False))


def row_texts(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """``name: Ann; town: Rome`` for every row under the first; a table of one row is that row."""
    names: list[str] | None = None
    count = 0
    for row in rows:
        cells = ["" if cell is None else " ".join(str(cell).split()) for cell in row]
        if not any(cells):
            continue
        if names is None:
            names = cells
            continue
        count += 1
        text = "; ".join(_cells(names, cells))
        if text:
            yield escaped(text)
    if names is not None and not count:
        yield escaped("; ".join(filter(None, names)))


def _cells(names: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if cell:
            name = names[number] if number < len(names) else ""
            yield f"{name}: {cell}" if name else cell


def _delimiter(text: str, source: Source) -> str:
    if source.suffix == ".tsv":
        return "\t"
    first = text[:_SAMPLE].lstrip("\n").partition("\n")[0]
    return max(_DELIMITERS, key=first.count) if first else ","
