"""PDF with pdfium: the text of the pages; headings are detected by font size.

pdfium is not thread-safe, also not for different documents: call this in a process with one task at
a time.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lexigram.ai.workers.document_ingestion.blocks import escape_markdown, scan, title_of
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    DocumentEncryptedError,
    TooManyPagesError,
)
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.types import Document

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage  # type: ignore[import-untyped]

_TAIL_BYTES = 4096  # a complete file ends with a table of its objects
_PASSWORD = 4  # FPDF_ERR_PASSWORD
_IMAGE = 3  # FPDF_PAGEOBJ_IMAGE
_HEADING_RATIO = 1.15  # of the usual font size
_HEADING_LENGTH = 150
_LEVELS = 4
# pdfium marks a hyphenated line end with one of these.
_HYPHENATION = re.compile(r"[\x02\ufffe]\r?\n?")


@frozen
class PdfLine:
    """A line of a page."""

    text: str
    # font height; 0 if unknown
    height: float


@frozen
class PdfPages:
    """The lines of some pages of a file."""

    pages: list[list[PdfLine]]
    # page numbers, from 1, of scanned pages
    scanned: list[int]
    # pages of the whole file
    total: int
    title: str | None


def parse_pdf(data: bytes, source: Source) -> Document:
    """Parse the text of all pages; scanned pages are listed in the metadata."""
    return document_of([read_pages(data, source)])


def read_pages(data: bytes, source: Source) -> PdfPages:
    """Read the pages in ``source.pages``, for long files that are read in parts."""
    from pypdfium2 import PdfiumError  # pyright: ignore[reportMissingTypeStubs] - has none

    pdf = _open(data, source)
    try:
        total = _count_pages(pdf, source)
        first, last = source.pages or (1, total)
        pages: list[list[PdfLine]] = []
        scanned: list[int] = []
        for number in range(first - 1, min(last, total)):
            page = pdf[number]
            lines = list(_lines(page))
            if not lines and _has_image(page):
                scanned.append(number + 1)
            pages.append(lines)
            page.close()
        title = (pdf.get_metadata_dict().get("Title") or "").strip()
    except PdfiumError as error:
        raise DocumentBrokenError(source.name, str(error)) from error
    finally:
        pdf.close()
    return PdfPages(pages, scanned, total, title or None)


def document_of(parts: list[PdfPages]) -> Document:
    """Join parts of a file to a document; the result does not depend on the division."""
    content, starts = _join_pages([lines for part in parts for lines in part.pages])
    blocks = scan(content)
    metadata: dict[str, Any] = {"total_pages": parts[0].total}
    if scanned := [number for part in parts for number in part.scanned]:
        metadata["pages_needing_ocr"] = scanned
    if title := parts[0].title or title_of(blocks):
        metadata["title"] = title
    return Document(content, metadata, blocks, starts)


def count_pages(data: bytes, source: Source) -> int:
    """Return the number of pages; raises the same errors as ``parse_pdf``."""
    pdf = _open(data, source)
    try:
        return _count_pages(pdf, source)
    finally:
        pdf.close()


def _open(data: bytes, source: Source) -> PdfDocument:
    from pypdfium2 import PdfDocument, PdfiumError  # pyright: ignore[reportMissingTypeStubs]

    try:
        pdf = PdfDocument(data)
        len(pdf)
    except PdfiumError as error:
        if error.err_code == _PASSWORD:  # pyright: ignore[reportUnknownMemberType] - untyped
            raise DocumentEncryptedError(source.name) from error
        raise DocumentBrokenError(source.name, str(error)) from error
    if b"startxref" not in data[-_TAIL_BYTES:] and b"%%EOF" not in data[-_TAIL_BYTES:]:
        # pdfium would repair a truncated file, and a part would be taken for the whole.
        pdf.close()
        raise DocumentBrokenError(source.name, "the file is truncated")
    return pdf


def _count_pages(pdf: PdfDocument, source: Source) -> int:
    total = len(pdf)
    if total > source.max_pages:
        raise TooManyPagesError(source.name, total, source.max_pages)
    return total


def _lines(page: PdfPage) -> Iterator[PdfLine]:
    text = page.get_textpage()
    try:
        position = 0
        for piece in text.get_text_range().split("\n"):
            line = _HYPHENATION.sub("", piece).strip()
            if line:
                indent = len(piece) - len(piece.lstrip())
                yield PdfLine(line.replace("\0", ""), _height(text, position + indent))
            position += len(piece) + 1
    finally:
        text.close()


def _has_image(page: Any) -> bool:
    return any(page.get_objects(filter=[_IMAGE], max_depth=3))


def _height(text: Any, index: int) -> float:
    from pypdfium2 import PdfiumError  # pyright: ignore[reportMissingTypeStubs] - has none

    try:
        _, bottom, _, top = text.get_charbox(index, loose=True)
    except (PdfiumError, ValueError, IndexError):
        return 0.0  # in rare files the indexes of text and characters differ
    return round(float(top - bottom), 1)


def _join_pages(pages: list[list[PdfLine]]) -> tuple[str, list[int]]:
    """Return the text of all pages, and the start of each."""
    levels = _levels([line for lines in pages for line in lines])
    content, starts = "", list[int]()
    for lines in pages:
        if content and not content.endswith("\n\n"):
            content += "\n\n"
        starts.append(len(content))
        content += _page_text(lines, levels)
    return content.rstrip(), starts


def _page_text(lines: list[PdfLine], levels: dict[float, int]) -> str:
    parts: list[str] = []
    for line in lines:
        level = levels.get(line.height)
        is_heading = level is not None and len(line.text) <= _HEADING_LENGTH
        if is_heading and any(sign.isalpha() for sign in line.text):
            parts.append(f"\n\n{'#' * (level or 1)} {line.text}\n\n")
        else:
            parts.append(f"{escape_markdown(line.text)}\n")
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip("\n")


def _levels(lines: list[PdfLine]) -> dict[float, int]:
    """Map font heights clearly above the median to heading levels, largest first."""
    known = [line for line in lines if line.height > 0]
    if len(known) < 2:
        return {}
    # Weighted by characters, so that many short headings do not shift the median.
    usual = statistics.median(
        [height for line in known for height in [line.height] * (1 + len(line.text) // 10)]
    )
    larger = sorted(
        {line.height for line in known if line.height >= usual * _HEADING_RATIO}, reverse=True
    )
    return {height: min(number, _LEVELS) for number, height in enumerate(larger, 1)}
