"""Decode bytes: by byte order mark, else UTF-8, the declared charset, or Windows-1252."""

from __future__ import annotations

import codecs

from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBinaryError,
    DocumentCharsetError,
)

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
