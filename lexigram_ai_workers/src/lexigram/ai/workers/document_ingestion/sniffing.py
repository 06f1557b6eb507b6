"""Detect the type of a document by its content."""

from __future__ import annotations

import io
import zipfile

from lexigram.ai.workers.document_ingestion.charset import looks_like_text

_HEAD = 1024
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\x7fELF", "an ELF program"),
    (b"MZ", "a Windows program"),
    (b"SQLite format 3\0", "a SQLite database"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PARTS = (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx"))


def sniff(data: bytes) -> str:
    """Return ``pdf``, ``docx``, ``pptx``, ``xlsx``, ``encrypted office``, ``text``, or another type."""
    head = data[:_HEAD]
    if b"%PDF-" in head:
        return "pdf"
    if is_zip(data):
        return _in_zip(data)
    if head.startswith(_OLE):
        encrypted = "EncryptedPackage".encode("utf-16-le") in data
        return "encrypted office" if encrypted else "an old Office file"
    for magic, what in _MAGIC:
        if head.startswith(magic) and (len(magic) > 2 or not looks_like_text(data)):
            return what
    return "text" if looks_like_text(data) else "binary"


def is_zip(data: bytes) -> bool:
    """True for data that starts like a zip archive, such as Office files."""
    return data.startswith(b"PK\x03\x04")


def looks_like_html(data: bytes) -> bool:
    """True for text that starts like an HTML page."""
    head = data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html"))


def _in_zip(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the library raises many types for damaged archives
        return "a broken zip archive"
    for part, kind in _PARTS:
        if any(name.startswith(part) for name in names):
            return kind
    return "a zip archive"
