"""The input of a parser besides the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from lexigram.ai.workers.document_ingestion.types import Document


@frozen(kw_only=True)
class Source:
    """Name, type and limits of the bytes of a document."""

    # path or URI, for error messages
    name: str
    # lower case, with the dot; "" if there is none
    suffix: str = ""
    mime_type: str | None = None
    # declared in the MIME type
    charset: str | None = None
    max_bytes: int
    max_pages: int
    # the first and the last page to read, from 1; None: all
    pages: tuple[int, int] | None = None


# CPU-bound: call it in a thread or process.
ParseFunction: TypeAlias = Callable[[bytes, Source], Document]
