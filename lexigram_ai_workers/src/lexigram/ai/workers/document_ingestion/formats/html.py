"""HTML: the main content of a page as Markdown, without scripts, styles and navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lexigram.ai.workers.document_ingestion.blocks import (
    escape_markdown,
    fence_code,
    scan,
    title_of,
)
from lexigram.ai.workers.document_ingestion.formats.nesting import MAX_DEPTH, flatten_html
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.sniffing import decode
from lexigram.ai.workers.document_ingestion.types import Document

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
# Not content, or repeated on every page of a site.
_REMOVED_ELEMENTS = (
    "script, style, noscript, template, svg, math, iframe, object, embed, canvas, dialog, "
    "nav, footer, aside, form, button, select, input, textarea, link, meta, "
    "[role=navigation], [role=banner], [role=contentinfo], [role=search], [role=complementary], "
    "[aria-hidden=true], [hidden]"
)
# The main content, if it has at least this share of the text of the page.
_MAIN = "main, [role=main], article"
_MAIN_SHARE = 0.3
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPHS = frozenset(
    (
        *("p", "div", "section", "article", "main", "body", "header", "figure", "figcaption"),
        *("details", "summary", "address", "dl", "dt", "dd", "fieldset", "center", "hgroup"),
    )
)
_SPACES = re.compile(r"[ \t\r\n\f\v\u00a0]+")


def parse_html(data: bytes, source: Source) -> Document:
    """Parse the main content of a page; links and emphasis become plain text."""
    declared = _DECLARED.search(data[:_DECLARED_WITHIN])
    charset_hint = declared[1].decode("ascii", "ignore") if declared else source.charset
    text, charset = decode(data, source.name, charset_hint)
    content, title = markdown_of(text)
    blocks = scan(content)
    found = title or title_of(blocks)
    return Document(content, {"charset": charset, **({"title": found} if found else {})}, blocks)


def markdown_of(html: str) -> tuple[str, str | None]:
    """Convert a page to Markdown; returns it with the title."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(flatten_html(html))
    title = page.css_first("title")
    title_text = _SPACES.sub(" ", title.text()).strip() if title is not None else ""
    for node in page.css(_REMOVED_ELEMENTS):
        node.decompose()
    main = _main_part(page)
    if main is None:
        return "", title_text or None
    paragraphs = (paragraph.strip("\n") for paragraph in _blocks(main, 0))
    return "\n\n".join(p for p in paragraphs if p.strip()), title_text or None


def _main_part(page: LexborHTMLParser) -> LexborNode | None:
    body = page.body
    if body is None:
        return page.root
    # A header without a heading belongs to the site and is removed.
    for header in body.css("header"):
        if header.css_first("h1") is None:
            header.decompose()
    whole = len(body.text())
    for found in page.css(_MAIN):
        if len(found.text()) >= whole * _MAIN_SHARE:
            return found
    return body


def _blocks(node: LexborNode, depth: int) -> Iterator[str]:
    """Yield the paragraphs of an element, including text between its blocks."""
    inline: list[str] = []
    for child in node.iter(include_text=True):
        tag = child.tag or ""
        if _is_block(tag) or _holds_blocks(child, tag):
            yield _paragraph(inline)
            inline.clear()
            yield from _block(child, tag, depth + 1)
        else:
            inline.append(_inline(child, tag, depth + 1))
    yield _paragraph(inline)


def _block(node: LexborNode, tag: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        yield escape_markdown(_SPACES.sub(" ", node.text()).strip())
    elif tag in _HEADINGS:
        title = _SPACES.sub(" ", node.text()).strip()
        if title:
            yield f"{'#' * _HEADINGS[tag]} {title}"
    elif tag == "pre":
        yield fence_code(node.text())
    elif tag in ("ul", "ol", "menu"):
        yield "\n".join(_items(node, tag == "ol", depth))
    elif tag == "table":
        yield "\n".join(_rows(node))
    elif tag == "blockquote":
        inner = "\n\n".join(filter(None, _blocks(node, depth)))
        yield "\n".join(f"> {line}".rstrip() for line in inner.split("\n"))
    elif tag != "hr":
        yield from _blocks(node, depth)


def _items(node: LexborNode, is_ordered: bool, depth: int) -> Iterator[str]:
    number = 0
    for child in node.iter():
        if child.tag != "li":
            yield from filter(None, _block(child, child.tag or "", depth + 1))
            continue
        number += 1
        mark = f"{number}. " if is_ordered else "- "
        inner = "\n".join(filter(None, _blocks(child, depth + 1)))
        if inner:
            yield mark + inner.replace("\n", "\n" + " " * len(mark))


def _rows(node: LexborNode) -> Iterator[str]:
    is_first = True
    for row in _own_rows(node):
        cells = [
            _SPACES.sub(" ", cell.text()).strip().replace("|", "\\|")
            for cell in row.iter()
            if cell.tag in ("td", "th")
        ]
        if not any(cells):
            continue
        yield f"| {' | '.join(cells)} |"
        if is_first:
            yield f"|{' --- |' * len(cells)}"
            is_first = False


def _own_rows(node: LexborNode) -> Iterator[LexborNode]:
    """Yield the rows of a table without those of nested tables."""
    for child in node.iter():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.iter() if row.tag == "tr")


def _inline(node: LexborNode, tag: str, depth: int) -> str:
    if tag == "-text":
        return node.text_content or ""
    if tag == "br":
        return "\x00"  # a placeholder, as spaces are collapsed later
    if tag == "img":
        return (node.attributes.get("alt") or "") + " "
    if tag == "code":
        code = _SPACES.sub(" ", node.text()).strip()
        return f"`{code}`" if code and "`" not in code else code
    if tag.startswith(("-", "!")):
        return ""
    if depth > MAX_DEPTH:
        return node.text()
    return "".join(
        _inline(child, child.tag or "", depth + 1) for child in node.iter(include_text=True)
    )


def _paragraph(inline: list[str]) -> str:
    text = _SPACES.sub(" ", "".join(inline))
    return escape_markdown("\n".join(line.strip() for line in text.split("\x00")).strip())


def _is_block(tag: str) -> bool:
    return (
        tag in _PARAGRAPHS
        or tag in _HEADINGS
        or tag in ("pre", "ul", "ol", "menu", "li", "table", "blockquote", "hr", "tbody", "tr")
    )


def _holds_blocks(node: LexborNode, tag: str) -> bool:
    """True for an inline element around blocks, such as a link around a heading."""
    return not tag.startswith(("-", "!")) and (
        node.css_first("p, div, h1, h2, h3, h4, h5, h6, ul, ol, table, pre, section, blockquote")
        is not None
    )
