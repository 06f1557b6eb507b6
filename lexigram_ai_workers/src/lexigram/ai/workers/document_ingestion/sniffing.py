"""Detect the type of a document by its content, and decode text.

Text is decoded by byte order mark, else as UTF-8, the declared charset, or Windows-1252.
"""

from __future__ import annotations

import codecs
import io
import zipfile

from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBinaryError,
    DocumentCharsetError,
)

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


# --- charset ---

FALLBACK_CHARSET = "cp1252"
# "latin-1" decodes anything and, as on the web, means Windows-1252. The others are internal codecs of
# Python or for host names: no document uses them, and some take quadratic time.
_IGNORED_CHARSETS = frozenset(
    (
        *("utf-8", "iso8859-1", "ascii"),
        *("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"),
    )
)
# UTF-32 first: its little-endian mark starts with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes, name: str, declared: str | None = None) -> tuple[str, str]:
    """Return the text with normalized newlines, and its charset.

    UTF-8 is tried before the declared charset: wrong declarations are common, text that is
    valid UTF-8 by chance is rare.
    """
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return _decode_strictly(data[len(mark) :], name, [charset])
    if b"\0" in data:
        raise DocumentBinaryError(name, "it contains zero bytes")
    return _decode_strictly(data, name, ["utf-8", *_find_charset(declared), FALLBACK_CHARSET])


def looks_like_text(data: bytes) -> bool:
    """True unless there are zero bytes without a UTF-16 or UTF-32 mark."""
    return b"\0" not in data or any(data.startswith(mark) for mark, _ in _MARKS)


def is_unicode(data: bytes) -> bool:
    """True for valid UTF-8, and for data with a byte order mark."""
    if any(data.startswith(mark) for mark, _ in _MARKS):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_strictly(data: bytes, name: str, charsets: list[str]) -> tuple[str, str]:
    position = 0
    for charset in charsets:
        try:
            text = data.decode(charset)
        except UnicodeDecodeError as error:
            position = error.start
        else:
            return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""), charset
    raise DocumentCharsetError(name, charsets, position)


def _find_charset(declared: str | None) -> list[str]:
    """Return the declared charset if Python has a text codec for it and it is worth trying."""
    try:
        found = codecs.lookup(declared or "")
    except LookupError:
        return []
    if not found._is_text_encoding or found.name in _IGNORED_CHARSETS:  # noqa: SLF001
        return []
    return [found.name]
