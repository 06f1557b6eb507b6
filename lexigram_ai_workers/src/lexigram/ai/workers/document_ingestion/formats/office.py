"""Word, PowerPoint and Excel files; the libraries are in the extra ``office``."""

from __future__ import annotations

import importlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from lexigram.ai.workers.document_ingestion.blocks import escape_markdown, scan, title_of
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    DocumentTooLargeError,
    IngestionInputError,
    ParserExtraMissingError,
    TooManyPagesError,
)
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.formats.tables import row_texts
from lexigram.ai.workers.document_ingestion.types import Document

_EXTRA = "office"
# Maximum unpacked size, as a multiple of max_bytes; more is a zip bomb.
_MAX_UNPACK_RATIO = 20
_HEADING = re.compile(r"^(?:heading|überschrift|titre)\s*(\d)$", re.IGNORECASE)


def parse_docx(data: bytes, source: Source) -> Document:
    """Parse paragraphs, lists and tables in order; heading styles become headings."""
    document = _open("docx", "Document", data, source)
    content = "\n\n".join(filter(None, _read(source, lambda: list(_word_parts(document)))))
    blocks = scan(content)
    title = document.core_properties.title or title_of(blocks)
    return Document(content, {"title": title} if title else {}, blocks)


def parse_pptx(data: bytes, source: Source) -> Document:
    """Parse title, texts and notes of every slide; slides are pages."""
    presentation = _open("pptx", "Presentation", data, source)
    slides = list(presentation.slides)
    if len(slides) > source.max_pages:
        raise TooManyPagesError(source.name, len(slides), source.max_pages)
    texts = _read(source, lambda: [_slide_text(n, s) for n, s in enumerate(slides, 1)])
    content, starts = "", list[int]()
    for text in texts:
        content += "\n\n" if content else ""
        starts.append(len(content))
        content += text
    title = presentation.core_properties.title
    metadata: dict[str, Any] = {"total_pages": len(slides), **({"title": title} if title else {})}
    return Document(content, metadata, scan(content), starts)


def parse_xlsx(data: bytes, source: Source) -> Document:
    """Parse the rows of every sheet, with the column names of the first row."""
    book = _open("openpyxl", "load_workbook", data, source, read_only=True, data_only=True)
    try:
        sheets = _read(
            source,
            lambda: [
                (sheet.title, list(row_texts(sheet.iter_rows(values_only=True))))
                for sheet in book.worksheets
            ],
        )
    finally:
        book.close()
    parts = [
        part for name, rows in sheets if rows for part in (f"# {' '.join(name.split())}", *rows)
    ]
    content = "\n\n".join(parts)
    return Document(content, {"sheets": [name for name, _ in sheets]}, scan(content))


def _open(module: str, name: str, data: bytes, source: Source, **options: Any) -> Any:
    _check_unpacked(data, source)
    try:
        opener = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ParserExtraMissingError(source.suffix or module, _EXTRA) from error
    return _read(source, lambda: opener(io.BytesIO(data), **options))


def _read(source: Source, work: Callable[[], Any]) -> Any:
    """Run ``work``; any error of the libraries becomes DocumentBrokenError."""
    try:
        return work()
    except (IngestionInputError, MemoryError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise DocumentBrokenError(source.name, why) from error


def _check_unpacked(data: bytes, source: Source) -> None:
    with _read(source, lambda: zipfile.ZipFile(io.BytesIO(data))) as archive:
        unpacked = sum(item.file_size for item in archive.infolist())
    limit = source.max_bytes * _MAX_UNPACK_RATIO
    if unpacked > limit:
        raise DocumentTooLargeError(source.name, unpacked, limit)


def _word_parts(document: Any) -> Iterator[str]:
    for item in document.iter_inner_content():
        if hasattr(item, "rows"):
            yield from row_texts([cell.text for cell in row.cells] for row in item.rows)
            continue
        text = item.text.strip()
        style = item.style.name if item.style is not None else ""
        heading = _HEADING.match(style or "")
        if not text:
            continue
        if heading is not None or style == "Title":
            level = int(heading[1]) if heading is not None else 1
            yield f"{'#' * min(level, 6)} {' '.join(text.split())}"
        elif (style or "").startswith("List"):
            yield f"- {escape_markdown(text)}"
        else:
            yield escape_markdown(text)


def _slide_text(number: int, slide: Any) -> str:
    title = slide.shapes.title
    named = " ".join(title.text_frame.text.split()) if title is not None else ""
    parts = [f"# {named or f'Slide {number}'}"]
    for shape in slide.shapes:
        if shape is title or (title is not None and shape.shape_id == title.shape_id):
            continue
        parts.extend(_shape_texts(shape))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        parts.append(escape_markdown(slide.notes_slide.notes_text_frame.text.strip()))
    return "\n\n".join(filter(None, parts))


def _shape_texts(shape: Any) -> Iterator[str]:
    if shape.has_text_frame:
        yield escape_markdown(shape.text_frame.text.replace("\v", "\n").strip())
    elif getattr(shape, "has_table", False):
        yield from row_texts([cell.text for cell in row.cells] for row in shape.table.rows)
    elif hasattr(shape, "shapes"):  # a group
        for inner in shape.shapes:
            yield from _shape_texts(inner)
