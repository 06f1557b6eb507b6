"""Find headings, code blocks and paragraphs in a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

from lexigram.ai.workers.document_ingestion.types import Block, BlockKind

# A fence may be inside a list or quotation, after their marks.
_BEFORE = r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]+|>)*"
_MARK = re.compile(
    rf"^(?:{_BEFORE}(?P<fence>`{{3,}}(?=[^`\n]*$)|~{{3,}})[^\n]*"
    r"|[ ]{0,3}(?P<atx>\#{1,6})(?P<title>[ \t][^\n]*)?"
    r"|[ ]{0,3}(?P<line>=+|-{3,})[ \t]*)$",
    re.MULTILINE,
)
# Quotation marks may precede a closing fence; in a list it is only indented.
_FENCE_END = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]*\n\s*")
# A line with one of these above ``---`` is a list, quotation, table or code, not a title.
_NO_TITLE = re.compile(r"^(?:\t| {4}| {0,3}(?:[-*+>|#]|\d+[.)]))")
_ESCAPED = re.compile(
    r"^([ ]{0,3})(#{1,6}(?=[ \t]|$)|`{3,}|~{3,}|=+[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE
)
_PARTS_PER_JOIN = 10_000


def scan(text: str, *, markdown: bool = True) -> list[Block]:
    """Return the blocks of a text in order, without the whitespace between them.

    Without ``markdown`` the text is one block. An unclosed code fence is treated as text, so
    that a stray mark does not turn the rest of the document into code.
    """
    if not markdown:
        return list(_trim(text, 0, len(text)))
    blocks: list[Block] = []
    position = 0
    for block in _find_marked_blocks(text):
        blocks.extend(_paragraphs(text, position, block.start))
        blocks.append(block)
        position = block.end
    blocks.extend(_paragraphs(text, position, len(text)))
    return blocks


def title_of(blocks: Sequence[Block]) -> str | None:
    """Return the first heading of the highest level."""
    headings = [block for block in blocks if block.kind is BlockKind.HEADING and block.title]
    return min(headings, key=lambda block: block.level).title if headings else None


def escape_markdown(text: str) -> str:
    """Escape lines of a plain text that Markdown would read as headings or code fences."""
    return _ESCAPED.sub(r"\1\\\2", text)


def fence_code(code: str, language: str = "") -> str:
    """Put code into a fence longer than any fence in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{language}\n{code.rstrip()}\n{mark}"


def join_lazily(parts: Iterable[str], separator: str) -> str:
    """Like ``separator.join``, but without all parts in memory at once (millions of short rows)."""
    pieces = iter(parts)
    texts = iter(lambda: separator.join(islice(pieces, _PARTS_PER_JOIN)), "")
    return separator.join(texts)


def _find_marked_blocks(text: str) -> Iterator[Block]:
    """Yield headings and closed fences."""
    fences = _Fences(text)
    position = 0
    while (found := _MARK.search(text, position)) is not None:
        position = found.end()
        start = found.start()
        if found["fence"]:
            end = fences.close(found["fence"], found.end())
            if end is not None:
                yield Block(BlockKind.CODE, start, end)
                position = end
        elif found["atx"]:
            title = _strip_closing_marks((found["title"] or "").strip())
            yield Block(BlockKind.HEADING, start, position, len(found["atx"]), title)
        else:
            above = _find_line_above(text, start)
            if above is not None:
                level = 1 if found["line"].startswith("=") else 2
                title = text[above:start].strip()
                yield Block(BlockKind.HEADING, above, position, level, title)
        if position >= len(text):
            return
        if position == start:
            position += 1


class _Fences:
    """The lines of a text that may close a fence; found once, on first use."""

    def __init__(self, text: str) -> None:
        self._text = text
        # by fence character: (start of the line, its end, length of the fence), in order
        self._lines: dict[str, list[tuple[int, int, int]]] = {}
        # by fence character: the longest fence from each line on, so that missing closing fences
        # are detected in constant time
        self._longest: dict[str, list[int]] = {}

    def close(self, fence: str, position: int) -> int | None:
        """Return the end of the line after ``position`` that closes the fence."""
        if not self._lines:
            self._find_fences()
        sign, length = fence[0], len(fence)
        lines, longest = self._lines[sign], self._longest[sign]
        first = bisect_right(lines, (position, 0, 0))
        if first >= len(lines) or longest[first] < length:
            return None
        while lines[first][2] < length:
            first += 1
        return lines[first][1]

    def _find_fences(self) -> None:
        self._lines = {"`": [], "~": []}
        for found in _FENCE_END.finditer(self._text):
            fence = found["fence"]
            self._lines[fence[0]].append((found.start(), found.end(), len(fence)))
        for sign, lines in self._lines.items():
            sizes = (size for _, _, size in reversed(lines))
            self._longest[sign] = list(accumulate(sizes, max))[::-1]


def _strip_closing_marks(title: str) -> str:
    """Remove closing # marks from a title."""
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title


def _find_line_above(text: str, start: int) -> int | None:
    """Return the start of the title line above; None if it is not a single line of text."""
    if start == 0:
        return None
    above = text.rfind("\n", 0, start - 1) + 1
    line = text[above : start - 1]
    before = text[text.rfind("\n", 0, above - 1) + 1 : above] if above else ""
    if not line.strip() or before.strip() or _NO_TITLE.match(line):
        return None
    return above


def _paragraphs(text: str, start: int, end: int) -> Iterator[Block]:
    for blank in _BLANK.finditer(text, start, end):
        yield from _trim(text, start, blank.start())
        start = blank.end()
    yield from _trim(text, start, end)


def _trim(text: str, start: int, end: int) -> Iterator[Block]:
    """Yield the text without surrounding whitespace as a block, if it is not empty."""
    piece = text[start:end]
    inner = piece.strip()
    if inner:
        first = start + len(piece) - len(piece.lstrip())
        yield Block(BlockKind.TEXT, first, first + len(inner))
