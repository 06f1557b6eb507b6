"""Parse and chunk large or risky documents in separate processes.

Native parsers may loop, exhaust the memory or crash, and a thread cannot be terminated. The functions
here run in a process pool; they take and return plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from attrs import asdict

from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig, IngestionConfig
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentMemoryError,
    DocumentTimeoutError,
    ParserCrashedError,
)
from lexigram.ai.workers.document_ingestion.formats.source import ParseFunction, Source
from lexigram.ai.workers.document_ingestion.types import (
    Block,
    BlockKind,
    Document,
    DocumentChunk,
)
from lexigram.processes import (
    ProcessCrashedError,
    ProcessMemoryError,
    ProcessPool,
    ProcessTimeoutError,
)

LARGE_TEXT = 1024 * 1024  # characters; chunking so many takes 0.2 s
_FORMATS = "lexigram.ai.workers.document_ingestion.formats"

T = TypeVar("T")
# The fields of a Document, in order.
_Plain: TypeAlias = tuple[str, dict[str, Any], "list[tuple[Any, ...]] | None", list[int]]


class Isolation:
    """Runs functions in another process with the configured time and memory limits.

    Without a ``pool`` each call starts a process, which takes a few tenths of a second.
    """

    def __init__(self, config: IngestionConfig, pool: ProcessPool | None = None) -> None:
        self._config = config
        self._pool = pool

    async def run(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """Run a function that processes the document ``name``.

        Raises DocumentTimeoutError and DocumentMemoryError at the limits, ParserCrashedError when
        the process crashes.
        """
        if self._pool is not None:
            return await self._run(self._pool, name, function, *args)
        async with ProcessPool(1) as pool:
            return await self._run(pool, name, function, *args)

    async def parse(self, function_path: str, data: bytes, source: Source) -> Document:
        """Parse bytes with ``module:function`` of the formats."""
        return _document(await self.run(source.name, _parse, function_path, data, asdict(source)))

    async def pdf_pages(self, data: bytes, source: Source) -> tuple[Any, ...]:
        """Read some pages of a PDF, for ``join_pdf``."""
        return await self.run(source.name, _read_pdf_pages, data, asdict(source))

    async def join_pdf(self, parts: Sequence[tuple[Any, ...]], name: str) -> Document:
        """Join the parts to a document."""
        return _document(await self.run(name, _join_pdf, list(parts)))

    async def chunks(
        self, document: Document, config: ChunkingConfig, name: str
    ) -> list[DocumentChunk]:
        """Chunk a document; only ranges are transferred between the processes."""
        text = document.content
        plain = _plain(Document(text, {}, document.blocks, document.page_starts))
        return [
            DocumentChunk(
                text=text[start:end],
                start=start,
                end=end,
                index=index,
                heading_path=path,
                page=page,
                duplicate_of=duplicate_of,
                metadata=document.metadata,
            )
            for index, (start, end, path, page, duplicate_of) in enumerate(
                await self.run(name, _chunk_ranges, plain, asdict(config))
            )
        ]

    async def _run(self, pool: ProcessPool, name: str, function: Callable[..., T], *args: Any) -> T:
        seconds, memory = self._config.process_timeout, self._config.process_memory
        try:
            return await pool.run(function, *args, timeout=seconds, memory=memory)
        except ProcessTimeoutError as error:
            raise DocumentTimeoutError(name, seconds, cause=error) from error
        except ProcessMemoryError as error:
            raise DocumentMemoryError(name, memory, cause=error) from error
        except ProcessCrashedError as error:
            exit_code = error.details["exit_code"]
            raise ParserCrashedError(name, cause=error).with_details(exit_code=exit_code) from error


def parse_function(function_path: str) -> ParseFunction:
    """Return a function of the formats by ``module:function``; imported on first use."""
    module, _, function = function_path.partition(":")
    found: ParseFunction = getattr(import_module(f"{_FORMATS}.{module}"), function)
    return found


# --- in the other process -----------------------------------------------------------------------


def _parse(function_path: str, data: bytes, source: Mapping[str, Any]) -> _Plain:
    return _plain(parse_function(function_path)(data, Source(**source)))


def count_pdf_pages(data: bytes, source: Mapping[str, Any]) -> int:
    """Return the number of pages; raises the same errors as parsing."""
    from lexigram.ai.workers.document_ingestion.formats.pdf import count_pages

    return count_pages(data, Source(**source))


def _read_pdf_pages(data: bytes, source: Mapping[str, Any]) -> tuple[Any, ...]:
    from lexigram.ai.workers.document_ingestion.formats.pdf import read_pages

    found = read_pages(data, Source(**source))
    pages = [[(line.text, line.height) for line in page] for page in found.pages]
    return pages, found.scanned, found.total, found.title


def _join_pdf(parts: Sequence[tuple[Any, ...]]) -> _Plain:
    from lexigram.ai.workers.document_ingestion.formats.pdf import PdfLine, PdfPages, document_of

    return _plain(
        document_of(
            [
                PdfPages([[PdfLine(*line) for line in page] for page in pages], *rest)
                for pages, *rest in parts
            ]
        )
    )


def _chunk_ranges(plain: _Plain, config: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    chunker = DocumentChunker(ChunkingConfig(**config))
    return [
        (chunk.start, chunk.end, chunk.heading_path, chunk.page, chunk.duplicate_of)
        for chunk in chunker.stream(_document(plain))
    ]


# --- documents as plain values ------------------------------------------------------------------


def _plain(document: Document) -> _Plain:
    blocks = document.blocks
    return (
        document.content,
        dict(document.metadata),
        None
        if blocks is None
        else [(str(b.kind), b.start, b.end, b.level, b.title) for b in blocks],
        list(document.page_starts),
    )


def _document(plain: _Plain) -> Document:
    content, metadata, blocks, page_starts = plain
    restored = None
    if blocks is not None:
        restored = [Block(BlockKind(kind), *rest) for kind, *rest in blocks]
    return Document(content, metadata, restored, page_starts)
