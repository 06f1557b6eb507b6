"""Flatten deeply nested HTML before it is parsed into a tree.

An HTML parser searches the open elements at nearly every tag, so deeply nested pages take quadratic
time (1.1 MB of ``<div>``: 27 s), and it copies open formatting elements such as ``<b>`` into every
paragraph. This module reads the tags with a list of at most ``MAX_DEPTH`` open elements. It does not
implement all rules of HTML: in doubt an element counts as open, so that a tag may be removed, but
never its text.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape

MAX_DEPTH = 200  # open elements
_MAX_FORMATTING = 8  # open elements such as <b>; only their text is used
_MAX_INDENTS = 8  # open lists and quotations: each adds a mark to every line
_MAX_ATTRIBUTES_LENGTH = 1_000  # characters; longer attributes are reduced to _USED_KEYS

_SPACE = r"[\t\n\f\r ]"
_NAME = r"[^\t\n\f\r />][^\t\n\f\r />=]*+"
_VALUE = r"\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+"
# No group is repeated possessively: Python 3.11.2, which Debian 12 has, does not match such groups
# right. What repeats here never has to give anything back: it ends at ``>`` or at the end of the text.
_ATTRIBUTE = rf"(?P<key>{_NAME})(?:{_SPACE}*+={_SPACE}*+(?P<value>{_VALUE}|(?=>)))?"
_RAW = "script|style|iframe|noembed|noframes|textarea|title|xmp"  # their content has no tags
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<[!?][^>]*+(?:>|\Z)"
    rf"|<(?P<raw>{_RAW})(?=[\t\n\f\r />])[^>]*+(?:>|\Z)"
    rf"(?P<inner>.*?)(?:</(?P=raw)(?=[\t\n\f\r />])[^>]*+(?:>|\Z)|\Z)"
    r"|<(?P<end>/?)(?P<name>[a-z][^\t\n\f\r />]*+)"
    rf"(?P<attributes>(?:[\t\n\f\r /]++|{_NAME}(?:{_SPACE}*+={_SPACE}*+(?:{_VALUE}|(?=>)))?)*)"
    r"(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_ATTRIBUTE_PATTERN = re.compile(_ATTRIBUTE)
_USED_KEYS = frozenset({"role", "hidden", "aria-hidden", "alt"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
)
_FORMATTING = _names("a b big code em font i nobr s small strike strong tt u")
_CELLS = _names("td th")
_ROWS = _CELLS | {"tr"}
_TABLE_PARTS = _ROWS | _names("tbody thead tfoot caption colgroup")
_HEADINGS = _names("h1 h2 h3 h4 h5 h6")
_FOREIGN = _names("math svg")  # only these may be self-closing: <svg/>
_INDENTED = _names("blockquote menu ol ul")
_CLOSE_P = _HEADINGS | _names(
    "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure"
    " footer form header hgroup hr li listing main menu nav ol p plaintext pre search section summary"
    " table ul"
)
# An implied end tag does not close elements outside of these.
_SPECIAL = (
    (_CLOSE_P - _names("address div p"))
    | _TABLE_PARTS
    | _names(
        "applet body button frameset head html marquee math noscript object optgroup option rb rp rt rtc"
        " ruby select svg template"
    )
)
_BOUNDARIES = _names("applet caption html marquee math object svg table td template th")
# Start tag -> the open elements that it closes.
_CLOSED_BY = {
    **{name: frozenset({"p"}) for name in _CLOSE_P},
    "li": frozenset({"p", "li"}),
    **dict.fromkeys(("dd", "dt"), frozenset({"p", "dd", "dt"})),
    **dict.fromkeys(_CELLS, _CELLS),
    "tr": _ROWS,
    **dict.fromkeys(("tbody", "thead", "tfoot"), _TABLE_PARTS),
}
_CLOSED_IF_INNERMOST = {
    **dict.fromkeys(_HEADINGS, _HEADINGS),
    "option": frozenset({"option"}),
    "optgroup": frozenset({"option", "optgroup"}),
}


def flatten_html(html: str) -> str:
    """Limit the nesting of a page to ``MAX_DEPTH`` elements, in linear time."""
    return _Flattener().flatten(html)


class _Flattener:
    def __init__(self) -> None:
        self._open: list[str] = []
        self._formats: Counter[str] = Counter()
        # removed start tags, whose end tags must be removed too
        self._left_out: Counter[str] = Counter()
        self._seen_once: set[str] = (
            set()
        )  # <html> and <body>: repeated ones add attributes to the first

    def flatten(self, html: str) -> str:
        return _TOKEN.sub(self._handle_token, html)

    def _handle_token(self, found: re.Match[str]) -> str:
        if found["raw"] is not None:
            return _handle_raw_text(found["raw"].lower(), found["inner"])
        if found["name"] is None:
            return ""  # a comment, a declaration
        name = found["name"].lower()
        if name in _FOREIGN and found["attributes"].endswith("/"):
            return found[0]
        keep = self._handle_end_tag(name) if found["end"] else self._handle_start_tag(name)
        if not keep:
            return ""
        if len(found["attributes"]) > _MAX_ATTRIBUTES_LENGTH:
            return f"<{found['end']}{name}{_keep_used_attributes(found['attributes'])}>"
        return found[0]

    def _handle_start_tag(self, name: str) -> bool:
        if name in _VOID:
            return True
        if name in {"html", "head", "body"}:
            is_first = name not in self._seen_once
            self._seen_once.add(name)
            return is_first
        if name in _FORMATTING:
            if self._formats.total() >= _MAX_FORMATTING:
                self._left_out[name] += 1
                return False
            self._formats[name] += 1
            return True
        if name in _TABLE_PARTS and "table" not in self._open:
            return False  # ignored outside of a table
        if self._open and self._open[-1] in _CLOSED_IF_INNERMOST.get(name, ()):
            self._open.pop()
        self._close(_CLOSED_BY.get(name, frozenset()))
        if len(self._open) >= MAX_DEPTH or (name in _INDENTED and self._indents() >= _MAX_INDENTS):
            self._left_out[name] += 1
            return False
        self._open.append(name)
        return True

    def _indents(self) -> int:
        return sum(name in _INDENTED for name in self._open)

    def _handle_end_tag(self, name: str) -> bool:
        if self._left_out[name]:
            self._left_out[name] -= 1
            return False
        if name in _FORMATTING:
            self._formats[name] = max(0, self._formats[name] - 1)
            return True
        barriers = _SPECIAL
        if name in _TABLE_PARTS or name == "table":
            barriers = frozenset({"table", "template"})
        elif name in _SPECIAL or name in {"address", "div", "p"}:
            barriers = _BOUNDARIES
        for number in range(len(self._open) - 1, -1, -1):
            if self._open[number] == name:
                del self._open[number:]
                break
            if self._open[number] in barriers:
                break
        return True

    def _close(self, names: frozenset[str]) -> None:
        if names.isdisjoint(self._open):  # ten times as fast as the loop
            return
        for number in range(len(self._open) - 1, -1, -1):
            if self._open[number] in names:
                del self._open[number:]
            elif self._open[number] in _SPECIAL:
                return


def _handle_raw_text(name: str, inner: str) -> str:
    """Keep visible raw text, escaped so that it contains no tags."""
    if name == "title":
        return f"<title>{inner.replace('<', '&lt;')}</title>"
    return f"<pre>{escape(inner)}</pre>" if name == "xmp" else ""


def _keep_used_attributes(attributes: str) -> str:
    found: dict[str, str] = {}
    for attribute in _ATTRIBUTE_PATTERN.finditer(attributes):
        if (key := attribute["key"].lower()) in _USED_KEYS:
            found.setdefault(key, attribute["value"] or '""')
    return "".join(f" {key}={value}" for key, value in found.items())
