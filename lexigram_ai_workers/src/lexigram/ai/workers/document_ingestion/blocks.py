"""Find headings, code and paragraphs in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lexigram.ai.workers.document_ingestion.types import Block, BlockKind

# A fence may stand in a list or a quotation, so before it come their marks.
_BEFORE = r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]+|>)*"
_MARK = re.compile(
    rf"^(?:{_BEFORE}(?P<fence>`{{3,}}(?=[^`\n]*$)|~{{3,}})[^\n]*"
    r"|[ ]{0,3}(?P<atx>\#{1,6})(?P<title>[ \t][^\n]*)?"
    r"|[ ]{0,3}(?P<line>=+|-{3,})[ \t]*)$",
    re.MULTILINE,
)
_BLANK = re.compile(r"\n[ \t]*\n\s*")
# A line with one of these above ``---`` is a list, a quotation, a table or code, no title.
_NO_TITLE = re.compile(r"^(?:\t| {4}| {0,3}(?:[-*+>|#]|\d+[.)]))")
_ESCAPED = re.compile(
    r"^([ ]{0,3})(#{1,6}(?=[ \t]|$)|`{3,}|~{3,}|=+[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE
)


def scan(text: str, *, markdown: bool = True) -> list[Block]:
    """The blocks of a text in order; whitespace between them belongs to none.

    Without ``markdown`` there are paragraphs only. A code fence that is never closed is no
    code: one stray mark must not swallow the rest of a document.
    """
    blocks: list[Block] = []
    position = 0
    for block in _marked(text) if markdown else ():
        blocks.extend(_paragraphs(text, position, block.start))
        blocks.append(block)
        position = block.end
    blocks.extend(_paragraphs(text, position, len(text)))
    return blocks


def title_of(blocks: Sequence[Block]) -> str | None:
    """The first heading of the highest level there is."""
    headings = [block for block in blocks if block.kind is BlockKind.HEADING and block.title]
    return min(headings, key=lambda block: block.level).title if headings else None


def escaped(text: str) -> str:
    """Plain text so that no line of it reads as a heading or a code fence of Markdown."""
    return _ESCAPED.sub(r"\1\\\2", text)


def fenced(code: str, language: str = "") -> str:
    """Code in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{language}\n{code.rstrip()}\n{mark}"


def _marked(text: str) -> Iterator[Block]:
    """Headings and closed fences."""
    position = 0
    # By sign, the length of a fence that nothing closes from here on: not looked for again, as
    # a text full of open fences would be read once for each.
    open_ones: dict[str, int] = {}
    while (found := _MARK.search(text, position)) is not None:
        position = found.end()
        start = found.start()
        if found["fence"]:
            fence = found["fence"]
            if len(fence) >= open_ones.get(fence[0], len(fence) + 1):
                continue
            end = _close(text, fence, found.end())
            if end is None:
                open_ones[fence[0]] = len(fence)
            else:
                yield Block(BlockKind.CODE, start, end)
                position = end
        elif found["atx"]:
            title = _closed((found["title"] or "").strip())
            yield Block(BlockKind.HEADING, start, position, len(found["atx"]), title)
        else:
            above = _line_above(text, start)
            if above is not None:
                level = 1 if found["line"].startswith("=") else 2
                title = text[above:start].strip()
                yield Block(BlockKind.HEADING, above, position, level, title)
        if position >= len(text):
            return
        if position == start:
            position += 1


def _closed(title: str) -> str:
    """A title without the signs that may close its line."""
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title


def _close(text: str, fence: str, position: int) -> int | None:
    """The end of the line that closes the fence."""
    # Quotation marks may come before it; a list needs only indentation there.
    mark = re.escape(fence[0])
    closing = re.compile(rf"^[ \t>]*{mark}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
    found = closing.search(text, position + 1) if position < len(text) else None
    return None if found is None else found.end()


def _line_above(text: str, start: int) -> int | None:
    """Where the one line of text above starts; None when it is none, or one of several."""
    if start == 0:
        return None
    above = text.rfind("\n", 0, start - 1) + 1
    line = text[above : start - 1]
    before = text[text.rfind("\n", 0, above - 1) + 1 : above] if above else ""
    if not line.strip() or before.strip() or _NO_TITLE.match(line):
        return None
    return above


def _paragraphs(text: str, start: int, end: int) -> Iterator[Block]:
    position = start
    for blank in (*_BLANK.finditer(text, start, end), None):
        stop = end if blank is None else blank.start()
        piece = text[position:stop]
        inner = piece.strip()
        if inner:
            first = position + len(piece) - len(piece.lstrip())
            yield Block(BlockKind.TEXT, first, first + len(inner))
        if blank is not None:
            position = blank.end()
