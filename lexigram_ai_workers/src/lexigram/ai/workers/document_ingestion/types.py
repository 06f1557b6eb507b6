"""Types of document ingestion: documents, chunks, jobs, progress, results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from attrs import define, field, frozen

from lexigram import clock

ChunkingConfigDict: TypeAlias = dict[str, Any]


class IngestionStatus(StrEnum):
    """Status of an ingestion; COMPLETED and FAILED are final."""

    PENDING = "pending"
    PARSING = "parsing"
    CHUNKING = "chunking"
    EMBEDDING = "embedding"
    STORING = "storing"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True when the attempt has ended."""
        return self in (IngestionStatus.COMPLETED, IngestionStatus.FAILED)


class BlockKind(StrEnum):
    """Kind of a block of a parsed text."""

    HEADING = "heading"
    TEXT = "text"
    CODE = "code"


@frozen
class Block:
    """A block of a parsed text: ``content[start:end]``."""

    kind: BlockKind
    start: int
    end: int
    # of a heading, from 1
    level: int = 0
    # of a heading, without # marks
    title: str = ""


@frozen
class Document:
    """A parsed document: the text as Markdown, and metadata.

    Without ``blocks`` the text is scanned for headings and code.
    """

    content: str
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])
    blocks: Sequence[Block] | None = None
    # start of each page in the text; empty for documents without pages
    page_starts: Sequence[int] = ()

    def page_at(self, position: int) -> int | None:
        """Return the page, from 1, of a position in the text."""
        return bisect_right(self.page_starts, position) or None if self.page_starts else None


@frozen(kw_only=True)
class DocumentChunk:
    """A piece of a document: ``content[start:end]`` is its text. Implements ChunkProtocol."""

    text: str
    start: int
    end: int
    # position in the document, from 0
    index: int
    # headings above the chunk, outermost first
    heading_path: tuple[str, ...] = ()
    page: int | None = None
    # index of an earlier near-duplicate chunk of the document
    duplicate_of: int | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])
    score: float | None = None


@define
class IngestionProgress:
    """Progress of the ingestion of a document."""

    document_id: str
    status: IngestionStatus = IngestionStatus.PENDING
    total_pages: int = 0
    pages_processed: int = 0
    total_chunks: int = 0
    chunks_processed: int = 0
    started_at: datetime = field(factory=clock.now)
    updated_at: datetime = field(factory=clock.now)
    error: str | None = None

    @property
    def progress_percent(self) -> float:
        """Processed chunks in percent; 0 while their number is unknown."""
        return 100.0 * self.chunks_processed / self.total_chunks if self.total_chunks else 0.0

    def update(
        self,
        status: IngestionStatus | None = None,
        pages_processed: int | None = None,
        chunks_processed: int | None = None,
        error: str | None = None,
    ) -> None:
        """Set the given values; an error sets FAILED."""
        if status is not None:
            self.status = status
        if pages_processed is not None:
            self.pages_processed = pages_processed
        if chunks_processed is not None:
            self.chunks_processed = chunks_processed
        if error is not None:
            self.error, self.status = error, IngestionStatus.FAILED
        self.updated_at = clock.now()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "document_id": self.document_id,
            "status": self.status.value,
            "total_pages": self.total_pages,
            "pages_processed": self.pages_processed,
            "total_chunks": self.total_chunks,
            "chunks_processed": self.chunks_processed,
            "progress_percent": self.progress_percent,
            "started_at": self.started_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "error": self.error,
        }


@frozen
class IngestionResult:
    """Result of an ingestion."""

    document_id: str
    success: bool
    chunks_created: int = 0
    duration_seconds: float = 0.0
    error: str | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    @classmethod
    def success_result(
        cls,
        document_id: str,
        chunks_created: int,
        duration: float,
        metadata: Mapping[str, Any] | None = None,
    ) -> IngestionResult:
        """The result of a stored document."""
        return cls(document_id, True, chunks_created, duration, None, metadata or {})

    @classmethod
    def failure_result(
        cls,
        document_id: str,
        error: str,
        duration: float,
        metadata: Mapping[str, Any] | None = None,
    ) -> IngestionResult:
        """The result of a document that was not stored."""
        return cls(document_id, False, 0, duration, error, metadata or {})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "document_id": self.document_id,
            "success": self.success,
            "chunks_created": self.chunks_created,
            "duration_seconds": self.duration_seconds,
            "error": self.error,
            "metadata": dict(self.metadata),
        }


@frozen
class DocumentIngestionJob:
    """One document to ingest."""

    document_id: str
    file_path: str | Path
    collection_name: str
    # name of a registered parser; None: by document type
    parser: str | None = None
    # overrides settings of the worker
    chunking_config: ChunkingConfigDict | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])
    batch_size: int = 50

    def to_job_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the job ``ingest_document``."""
        return {
            "document_id": self.document_id,
            "file_path": str(self.file_path),
            "collection_name": self.collection_name,
            "parser_name": self.parser,
            "chunking_config": self.chunking_config,
            "metadata": dict(self.metadata),
            "batch_size": self.batch_size,
        }
