"""Texts that every database stores: without NUL, which PostgreSQL refuses, and lone surrogates."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Whether every database takes the text."""
    return text.isprintable() or not _UNSTORABLE.search(text)


def storable_text(text: str) -> str:
    """The text with U+FFFD instead of characters that no database takes; for errors and reports."""
    return text if text.isprintable() else _UNSTORABLE.sub("\ufffd", text)
