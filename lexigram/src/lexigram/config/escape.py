"""Show the characters that steer a terminal as text, wherever texts of others are printed."""

from __future__ import annotations

import re
from typing import Final

# C0, DEL and C1 steer the terminal; bidi controls reorder what is read; U+2028 and U+2029 end a line
# for some readers; a lone surrogate cannot be encoded. Tabs are among them: a table would be torn.
_LINE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_TEXT: Final = re.compile(f"(?!\n){_LINE.pattern}")
_NAMES: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def escape_text(text: str) -> str:
    r"""The text with every control character but the line feed shown as ``\x1b`` or ``\u202e``."""
    return text if text.isprintable() else _TEXT.sub(_show, text)


def escape_line(text: str) -> str:
    r"""The same in one line: a line feed is shown as ``\n`` too."""
    return text if text.isprintable() else _LINE.sub(_show, text)


def escape_json(document: str) -> str:
    r"""A JSON document with those characters as ``\u009b``: other text, the same values."""
    return document if document.isprintable() else _TEXT.sub(_show_json, document)


def indent_lines(text: str) -> str:
    """``escape_text`` with the second and later lines indented: none can pass for a record."""
    return escape_text(text).replace("\n", "\n    ")


def _show(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _NAMES.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _show_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
