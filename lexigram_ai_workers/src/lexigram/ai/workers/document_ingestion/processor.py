"""Ingest one document: parse, chunk, embed and store it, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
from attrs import evolve

from lexigram import clock
from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker, chunking_config
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.content_hash import content_hash
from lexigram.ai.workers.document_ingestion.errors import DocumentWithoutTextError
from lexigram.ai.workers.document_ingestion.parser import (
    DocumentParser,
    UniversalDocumentParser,
)
from lexigram.ai.workers.document_ingestion.progress import ProgressTracker
from lexigram.ai.workers.document_ingestion.stages import (
    HEADING_SEPARATOR,
    DocumentFacts,
    build_records,
    chunk_document_text,
    config_key_of,
    embed_chunks,
    ensure_collection,
    find_records,
    is_stored,
    parsing_notes,
)
from lexigram.ai.workers.document_ingestion.types import (
    Document,
    DocumentChunk,
    IngestionResult,
    IngestionStatus,
)
from lexigram.ai.workers.embeddings.choose import make_embeddings
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.ai.rag import ChunkerProtocol
from lexigram.contracts.data.vector import SearchResult, VectorStoreProtocol
from lexigram.tasks.context import ambient_job

# The default of the 0.1 line.
DEFAULT_CHUNKING = ChunkingConfig(chunk_size=1000, chunk_overlap=200, unit="characters")
DEFAULT_BATCH_SIZE = 50


class DocumentProcessor:
    """Ingests files into the vector store.

    After an error nothing is stored. A document whose bytes and settings are unchanged is skipped
    before parsing. A changed document replaces all chunks of the old version.
    """

    def __init__(
        self,
        vector_store: VectorStoreProtocol,
        progress_tracker: ProgressTracker | None = None,
        default_chunking_config: Mapping[str, Any] | ChunkingConfig | None = None,
        chunker: ChunkerProtocol | None = None,
        document_parser: DocumentParser | None = None,
        *,
        embedding_provider: EmbeddingProviderProtocol | None = None,
        cache: EmbeddingCache | None = None,
        files: UniversalDocumentParser | None = None,
    ) -> None:
        self.vector_store = vector_store
        self.progress_tracker = progress_tracker or ProgressTracker()
        self.default_chunking_config = chunking_config(default_chunking_config, DEFAULT_CHUNKING)
        self.chunker = chunker
        self.embedding_provider = embedding_provider or make_embeddings(EmbeddingConfig())
        self.cache = cache
        # reads files within the limits, and parses them unless there is a custom parser
        self.files = files or (
            document_parser
            if isinstance(document_parser, UniversalDocumentParser)
            else UniversalDocumentParser()
        )
        self.document_parser = document_parser or self.files

    async def process_document(
        self,
        document_id: str,
        file_path: str | Path,
        collection_name: str,
        parser_name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        chunking: Mapping[str, Any] | ChunkingConfig | None = None,
        job_id: str | None = None,
    ) -> IngestionResult:
        """Ingest a file. IngestionInputError is permanent, other errors may be retried."""
        started = clock.monotonic()
        reporter = _ProgressReporter(self.progress_tracker, document_id, job_id)
        try:
            result = await self._ingest(
                document_id,
                Path(file_path),
                collection_name,
                parser_name,
                metadata or {},
                batch_size,
                chunking_config(chunking, self.default_chunking_config),
                reporter,
                started,
            )
        except Exception as error:
            await reporter.update(error=f"{type(error).__name__}: {error}")
            raise
        await reporter.update(
            IngestionStatus.COMPLETED,
            total=result.chunks_created,
            done=result.chunks_created,
        )
        return result

    async def _ingest(
        self,
        document_id: str,
        path: Path,
        collection_name: str,
        parser_name: str | None,
        metadata: Mapping[str, Any],
        batch_size: int,
        chunking: ChunkingConfig,
        reporter: _ProgressReporter,
        started: float,
    ) -> IngestionResult:
        provider = self.embedding_provider
        collection = await ensure_collection(
            self.vector_store,
            collection_name,
            model_id=provider.model_id,
            dimension=provider.dimension,
        )
        await reporter.update(IngestionStatus.PARSING)
        data = await self.files.read(path)
        facts = DocumentFacts(
            document_id=document_id,
            doc_hash=await anyio.to_thread.run_sync(content_hash, data),
            config_key=config_key_of(chunking, self._parser_key(parser_name), metadata),
            source=str(metadata.get("source") or path),
            uri=str(metadata.get("uri") or path),
            title=str(metadata.get("title") or path.name),
            mime_type=str(metadata.get("mime_type") or self.files.registry.mime_type_of(path.name)),
            metadata=metadata,
        )
        if self.chunker is None and await is_stored(collection, facts):
            return self._result(facts, 0, started, {"skipped": True})
        document = await self._parse(path, data, parser_name)
        await reporter.update(
            IngestionStatus.CHUNKING, pages=int(document.metadata.get("total_pages", 0))
        )
        chunker = self.chunker or DocumentChunker(chunking)
        chunks = await chunk_document_text(document, chunker, self.files.isolation, str(path))
        await reporter.update(IngestionStatus.EMBEDDING, total=len(chunks))
        vectors, known = await embed_chunks(
            chunks, provider, self.cache, batch_size=batch_size, progress=reporter.report_embedded
        )
        await reporter.update(IngestionStatus.STORING)
        records = build_records(_with_title(facts, document), chunks, vectors, provider.model_id)
        await collection.replace({"document_id": document_id}, records)
        return self._result(
            facts, len(records), started, {"cache_hits": known, **parsing_notes(document)}
        )

    async def _parse(self, path: Path, data: bytes, parser_name: str | None) -> Document:
        if parser_name is not None or self.document_parser is self.files:
            return await self.files.parse_bytes(data, str(path), parser=parser_name)
        document = await self.document_parser.parse(path)
        if not document.content.strip():
            raise DocumentWithoutTextError(str(path))
        return document

    def _parser_key(self, parser_name: str | None) -> str | None:
        if parser_name is not None or self.document_parser is self.files:
            return parser_name
        return type(self.document_parser).__qualname__

    async def list_chunks(self, document_id: str, collection_name: str) -> list[DocumentChunk]:
        """Return the stored chunks of a document in text order; empty if nothing is stored."""
        if not await self.vector_store.collection_exists(collection_name):
            return []
        collection = await self.vector_store.get_collection(collection_name)
        return [_chunk(one) for one in await find_records(collection, document_id)]

    def _result(
        self, facts: DocumentFacts, count: int, started: float, metadata: Mapping[str, Any]
    ) -> IngestionResult:
        reporter = {**facts.fingerprint, "model_id": self.embedding_provider.model_id, **metadata}
        return IngestionResult.success_result(
            facts.document_id, count, clock.monotonic() - started, reporter
        )


class _ProgressReporter:
    """Reports the progress of one document."""

    def __init__(self, tracker: ProgressTracker, document_id: str, job_id: str | None) -> None:
        self._tracker = tracker
        self._document_id = document_id
        self._job_id = job_id

    async def update(
        self,
        status: IngestionStatus | None = None,
        *,
        total: int | None = None,
        done: int | None = None,
        pages: int | None = None,
        error: str | None = None,
    ) -> None:
        await self._tracker.update_progress(
            self._document_id, status, total, done, error, job_id=self._job_id, total_pages=pages
        )

    async def report_embedded(self, done: int, total: int) -> None:
        await self.update(total=total, done=done)
        context = ambient_job()
        if context is not None:  # for subscribers of the job
            await context.progress(done, total)


def _chunk(stored: SearchResult) -> DocumentChunk:
    facts = stored.metadata
    return DocumentChunk(
        text=stored.content or "",
        start=int(facts.get("start", 0)),
        end=int(facts.get("end", 0)),
        index=int(facts.get("chunk_index", 0)),
        heading_path=tuple(filter(None, str(facts["heading_path"]).split(HEADING_SEPARATOR))),
        page=facts.get("page"),
        metadata=facts,
    )


def _with_title(facts: DocumentFacts, document: Document) -> DocumentFacts:
    title = facts.metadata.get("title") or document.metadata.get("title")
    return evolve(facts, title=str(title)) if title else facts
