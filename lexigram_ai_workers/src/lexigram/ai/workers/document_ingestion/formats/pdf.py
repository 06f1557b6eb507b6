"""PDF by pdfium: the text of its pages, headings by the size of their letters."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lexigram.ai.workers.document_ingestion.blocks import escaped, scan, title_of
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    DocumentEncryptedError,
    TooManyPagesError,
)
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.types import Document

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage  # type: ignore[import-untyped]

# pdfium may be used by one thread at a time, whatever document.
_pdfium = Lock()
_TAIL = 4096  # a whole file ends with a table of its objects
_PASSWORD = 4  # FPDF_ERR_PASSWORD
_IMAGE = 3  # FPDF_PAGEOBJ_IMAGE
_LARGER = 1.15  # than the usual letters: a heading
_HEADING_LENGTH = 150
_LEVELS = 4
# Where a word was divided at the end of a line, pdfium leaves one of these.
_DIVIDED = re.compile(r"[\x02\ufffe]\r?\n?")


@frozen
class _Line:
    text: str
    # of its letters; 0 when not known
    height: float


@frozen
class PdfPages:
    """The lines of some pages of a file."""

    pages: list[list[_Line]]
    # numbers, from 1, of those that are pictures of a page
    scanned: list[int]
    # of the whole file
    total: int
    title: str | None


def parse_pdf(data: bytes, source: Source) -> Document:
    """The text of all pages, and which of them are pictures of a page."""
    return document_of([read_pages(data, source)])


def read_pages(data: bytes, source: Source) -> PdfPages:
    """The pages that ``source.pages`` names, for files too long for one go."""
    with _pdfium:
        return _pages(data, source)


def document_of(parts: list[PdfPages]) -> Document:
    """The document that the parts are, in order; the same however it was divided."""
    content, starts = _joined([lines for part in parts for lines in part.pages])
    blocks = scan(content)
    metadata: dict[str, Any] = {"total_pages": parts[0].total}
    if scanned := [number for part in parts for number in part.scanned]:
        metadata["pages_needing_ocr"] = scanned
    if title := parts[0].title or title_of(blocks):
        metadata["title"] = title
    return Document(content, metadata, blocks, starts)


def count_pages(data: bytes, source: Source) -> int:
    """How many pages there are; raises what ``parse_pdf`` would raise about the file."""
    with _pdfium:
        pdf = _opened(data, source)
        try:
            return _counted(pdf, source)
        finally:
            pdf.close()


def _pages(data: bytes, source: Source) -> PdfPages:
    from pypdfium2 import PdfiumError  # pyright: ignore[reportMissingTypeStubs] - has none

    pdf = _opened(data, source)
    try:
        total = _counted(pdf, source)
        first, last = source.pages or (1, total)
        pages: list[list[_Line]] = []
        scanned: list[int] = []
        for number in range(first - 1, min(last, total)):
            page = pdf[number]
            lines = list(_lines(page))
            if not lines and _has_picture(page):
                scanned.append(number + 1)
            pages.append(lines)
            page.close()
        title = (pdf.get_metadata_dict().get("Title") or "").strip()
    except PdfiumError as error:
        raise DocumentBrokenError(source.name, str(error)) from error
    finally:
        pdf.close()
    return PdfPages(pages, scanned, total, title or None)


def _opened(data: bytes, source: Source) -> PdfDocument:
    from pypdfium2 import PdfDocument, PdfiumError  # pyright: ignore[reportMissingTypeStubs]

    try:
        pdf = PdfDocument(data)
        len(pdf)
    except PdfiumError as error:
        if error.err_code == _PASSWORD:  # pyright: ignore[reportUnknownMemberType] - untyped
            raise DocumentEncryptedError(source.name) from error
        raise DocumentBrokenError(source.name, str(error)) from error
    if b"startxref" not in data[-_TAIL:] and b"%%EOF" not in data[-_TAIL:]:
        # pdfium guesses the rest of such a file; a part would pass for the whole.
        pdf.close()
        raise DocumentBrokenError(source.name, "its end is missing")
    return pdf


def _counted(pdf: PdfDocument, source: Source) -> int:
    total = len(pdf)
    if total > source.max_pages:
        raise TooManyPagesError(source.name, total, source.max_pages)
    return total


def _lines(page: PdfPage) -> Iterator[_Line]:
    text = page.get_textpage()
    try:
        position = 0
        for piece in text.get_text_range().split("\n"):
            line = _DIVIDED.sub("", piece).strip()
            if line:
                indent = len(piece) - len(piece.lstrip())
                yield _Line(line.replace("\0", ""), _height(text, position + indent))
            position += len(piece) + 1
    finally:
        text.close()


def _has_picture(page: Any) -> bool:
    return any(page.get_objects(filter=[_IMAGE], max_depth=3))


def _height(text: Any, index: int) -> float:
    from pypdfium2 import PdfiumError  # pyright: ignore[reportMissingTypeStubs] - has none

    try:
        _, bottom, _, top = text.get_charbox(index, loose=True)
    except (PdfiumError, ValueError, IndexError):
        return 0.0  # text and characters are counted apart in rare files
    return round(float(top - bottom), 1)


def _joined(pages: list[list[_Line]]) -> tuple[str, list[int]]:
    """The text of all pages, and where each starts."""
    levels = _levels([line for lines in pages for line in lines])
    content, starts = "", list[int]()
    for lines in pages:
        if content and not content.endswith("\n\n"):
            content += "\n\n"
        starts.append(len(content))
        content += _page_text(lines, levels)
    return content.rstrip(), starts


def _page_text(lines: list[_Line], levels: dict[float, int]) -> str:
    parts: list[str] = []
    for line in lines:
        level = levels.get(line.height)
        is_heading = level is not None and len(line.text) <= _HEADING_LENGTH
        if is_heading and any(sign.isalpha() for sign in line.text):
            parts.append(f"\n\n{'#' * (level or 1)} {line.text}\n\n")
        else:
            parts.append(f"{escaped(line.text)}\n")
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip("\n")


def _levels(lines: list[_Line]) -> dict[float, int]:
    """Heights of headings and their levels: those clearly above the usual one, largest first."""
    known = [line for line in lines if line.height > 0]
    if len(known) < 2:
        return {}
    # By characters: many short headings must not pass for the usual text.
    usual = statistics.median(
        [height for line in known for height in [line.height] * (1 + len(line.text) // 10)]
    )
    larger = sorted({line.height for line in known if line.height >= usual * _LARGER}, reverse=True)
    return {height: min(number, _LEVELS) for number, height in enumerate(larger, 1)}
