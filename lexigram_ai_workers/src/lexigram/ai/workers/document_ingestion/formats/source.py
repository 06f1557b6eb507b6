"""What a parser is told about the bytes it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from lexigram.ai.workers.document_ingestion.types import Document


@frozen(kw_only=True)
class Source:
    """Where bytes come from, and what is allowed."""

    # for messages: a path or a URI
    name: str
    # lower case, with the dot; "" when there is none
    suffix: str = ""
    mime_type: str | None = None
    # declared by whoever brought the document
    charset: str | None = None
    max_bytes: int
    max_pages: int
    # the first and the last page to read, from 1; None: all
    pages: tuple[int, int] | None = None


# Plain functions: they compute, and run in a thread.
ParseFunction: TypeAlias = Callable[[bytes, Source], Document]
