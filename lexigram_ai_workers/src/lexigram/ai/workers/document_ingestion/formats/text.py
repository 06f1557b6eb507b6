"""Plain text and Markdown."""

from __future__ import annotations

import re

from lexigram.ai.workers.document_ingestion.blocks import scan, title_of
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.sniffing import decode
from lexigram.ai.workers.document_ingestion.types import Document

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<body>(?:.*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_TITLE = re.compile(r"^title:(.*)$", re.MULTILINE)


def parse_text(data: bytes, source: Source) -> Document:
    """Parse plain text; it has paragraphs and no headings."""
    text, charset = decode(data, source.name, source.charset)
    return Document(text, {"charset": charset}, scan(text, markdown=False))


def parse_markdown(data: bytes, source: Source) -> Document:
    """Parse Markdown without its front matter, except for the title."""
    text, charset = decode(data, source.name, source.charset)
    metadata: dict[str, object] = {"charset": charset}
    front = _FRONT_MATTER.match(text)
    if front is not None:
        text = text[front.end() :]
        if (title := _title_in(front["body"])) is not None:
            metadata["title"] = title
    blocks = scan(text)
    if "title" not in metadata and (heading := title_of(blocks)) is not None:
        metadata["title"] = heading
    return Document(text, metadata, blocks)


def _title_in(front: str) -> str | None:
    for found in _TITLE.finditer(front):
        title = found[1].strip(" \t")
        if len(title) > 2 and title[0] == title[-1] and title[0] in "'\"":
            title = title[1:-1]
        if title:
            return title
    return None
