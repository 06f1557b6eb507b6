"""Bytes to text: a byte order mark, then UTF-8, then what was declared, then Windows-1252."""

from __future__ import annotations

import codecs

from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBinaryError,
    DocumentCharsetError,
)

LAST_RESORT = "cp1252"
# UTF-32 first: its little-endian mark starts with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes, name: str, declared: str | None = None) -> tuple[str, str]:
    """The text with plain newlines, and the charset it was in.

    A declared charset comes after UTF-8: a text that is valid UTF-8 by chance is rare, a wrong
    declaration is not.
    """
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], name, [charset])
    if b"\0" in data:
        raise DocumentBinaryError(name, "it has zero bytes")
    return _strictly(data, name, ["utf-8", *_known(declared), LAST_RESORT])


def looks_like_text(data: bytes) -> bool:
    """True unless there are zero bytes without a mark of UTF-16 or UTF-32."""
    return b"\0" not in data or any(data.startswith(mark) for mark, _ in _MARKS)


def _strictly(data: bytes, name: str, charsets: list[str]) -> tuple[str, str]:
    position = 0
    for charset in charsets:
        try:
            text = data.decode(charset)
        except UnicodeDecodeError as error:
            position = error.start
        else:
            return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""), charset
    raise DocumentCharsetError(name, charsets, position)


def _known(declared: str | None) -> list[str]:
    """The declared charset when Python knows it as a text one and it adds something."""
    try:
        found = codecs.lookup(declared or "")
    except LookupError:
        return []
    # "latin-1" decodes anything; as on the web it means Windows-1252.
    if not found._is_text_encoding or found.name in ("utf-8", "iso8859-1", "ascii"):  # noqa: SLF001
        return []
    return [found.name]
