"""The stages of an ingestion after parsing, shared by the worker and the durable steps."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio.to_thread
import numpy as np
from attrs import asdict, field, frozen
from numpy.typing import NDArray

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache, embed_with_cache
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.isolation import LARGE_TEXT, Isolation
from lexigram.ai.workers.document_ingestion.types import Document, DocumentChunk
from lexigram.ai.workers.embeddings.batching import batches
from lexigram.ai.workers.vectors.records import chunk_ids
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.ai.rag import ChunkerProtocol, ChunkProtocol
from lexigram.contracts.data.vector import (
    CollectionConfig,
    SearchQuery,
    SearchResult,
    VectorCollectionProtocol,
    VectorRecord,
    VectorStoreProtocol,
)

ProgressCallback = Callable[[int, int], Awaitable[None]]  # (done, total)

MAX_BATCH_TOKENS = 100_000  # per model call, estimated
_FIRST_SEARCH_LIMIT = 64  # most documents have fewer chunks and need one search
HEADING_SEPARATOR = " > "


@frozen(kw_only=True)
class DocumentFacts:
    """The document metadata that is stored with every chunk."""

    document_id: str
    # content_hash() of the bytes
    doc_hash: str
    # hash of the settings of parsing and chunking
    config_key: str
    source: str = ""
    uri: str = ""
    title: str = ""
    mime_type: str = ""
    # given by the caller
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The metadata that changes with the content or the settings."""
        return {"doc_hash": self.doc_hash, "config_key": self.config_key}


def document_id_of(source: str, uri: str) -> str:
    """Return the document id for a source and URI, independent of the content."""
    return hashlib.sha256(f"{source}\0{uri}".encode()).hexdigest()[:32]


def config_key_of(
    chunking: ChunkingConfig, parser: str | None = None, metadata: Mapping[str, Any] | None = None
) -> str:
    """Hash all settings that affect the records of a document."""
    facts = {**asdict(chunking), "parser": parser, "metadata": dict(metadata or {})}
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parsing_notes(document: Document) -> dict[str, Any]:
    """Return the parsing metadata for the result of a job."""
    cache_hits = ("charset", "total_pages", "pages_needing_ocr", "parser", "attachments")
    return {key: document.metadata[key] for key in cache_hits if key in document.metadata}


async def chunk_document_text(
    document: Document, chunker: ChunkerProtocol, isolation: Isolation, name: str
) -> list[DocumentChunk]:
    """Chunk a document with the built-in chunker or a custom one."""
    if isinstance(chunker, DocumentChunker):
        if len(document.content) >= LARGE_TEXT:
            return await isolation.chunks(document, chunker.config, name)
        return await anyio.to_thread.run_sync(chunker.chunk_document, document)
    chunks_without_positions = await anyio.to_thread.run_sync(
        chunker.chunk, document.content, document.metadata
    )
    return _locate_chunks(chunks_without_positions, document)


async def embed_chunks(
    chunks: Sequence[DocumentChunk],
    provider: EmbeddingProviderProtocol,
    cache: EmbeddingCache | None,
    *,
    batch_size: int,
    progress: ProgressCallback | None = None,
) -> tuple[NDArray[np.float32], int]:
    """Embed chunks; returns a matrix with a row per chunk, and the number of cache hits."""
    texts = [text_to_embed(chunk) for chunk in chunks]
    # 4 bytes per number in one block; lists have 32, which is a gigabyte for 50 MB of text.
    numbers = array("f")
    cache_hits = 0
    for part in batches(texts, batch_size, MAX_BATCH_TOKENS):
        found, hits, _ = await embed_with_cache(provider, cache, texts[part.start : part.stop])
        for vector in found:
            numbers.extend(vector)
        cache_hits += hits
        if progress is not None:
            await progress(part.stop, len(texts))
    width = len(numbers) // max(1, len(texts))  # a chunker of others may make no chunk at all
    return np.frombuffer(numbers, np.float32).reshape(len(texts), width), cache_hits


def text_to_embed(chunk: DocumentChunk) -> str:
    """Prefix a chunk with its headings: only the first chunk of a section contains its heading."""
    path = chunk.heading_path
    if path and chunk.text.lstrip("# ").startswith(path[-1]):
        path = path[:-1]
    return f"{HEADING_SEPARATOR.join(path)}\n\n{chunk.text}" if path else chunk.text


def build_records(
    facts: DocumentFacts,
    chunks: Sequence[DocumentChunk],
    vectors: NDArray[np.float32],
    model_id: str,
) -> list[VectorRecord]:
    """Build the vector records of the chunks; ``vectors`` has a row for each."""
    ids = chunk_ids(
        (facts.document_id, HEADING_SEPARATOR.join(chunk.heading_path), chunk.text)
        for chunk in chunks
    )
    return [
        VectorRecord(
            id=record_id,
            vector=array("f", row.tobytes()),  # a list would need eight times the memory
            content=chunk.text,
            metadata=_metadata(facts, chunk, ids, model_id),
        )
        for record_id, chunk, row in zip(ids, chunks, vectors, strict=True)
    ]


async def ensure_collection(
    store: VectorStoreProtocol, name: str, *, model_id: str, dimension: int
) -> VectorCollectionProtocol:
    """Return the collection; it is created if it does not exist.

    Raises CollectionMismatchError if it has vectors of another model.
    """
    return await store.create_collection(
        CollectionConfig(name=name, dimension=dimension, model_id=model_id)
    )


async def find_records(
    collection: VectorCollectionProtocol, document_id: str
) -> Sequence[SearchResult]:
    """Return the stored chunks of a document in text order.

    After an interrupted replace, chunks of an earlier version may be among them.
    """
    direction = [1.0] + [0.0] * (collection.dimension - 1)
    query = SearchQuery(
        vector=direction, top_k=_FIRST_SEARCH_LIMIT, filter={"document_id": document_id}
    )
    found = await collection.search(query)
    if len(found) == _FIRST_SEARCH_LIMIT:
        count = int(found[0].metadata.get("chunk_count", 0))
        found = await collection.search(replace(query, top_k=count + 1))
    return sorted(found, key=lambda one: int(one.metadata.get("chunk_index", 0)))


async def is_stored(collection: VectorCollectionProtocol, facts: DocumentFacts) -> bool:
    """True if the collection has exactly the chunks of these bytes and settings.

    In doubt False: storing is idempotent.
    """
    found = await find_records(collection, facts.document_id)
    return bool(found) and all(
        _is_of(one.metadata, facts) and one.metadata.get("chunk_count") == len(found)
        for one in found
    )


def _is_of(metadata: Mapping[str, Any], facts: DocumentFacts) -> bool:
    return all(metadata.get(key) == value for key, value in facts.fingerprint.items())


def _metadata(
    facts: DocumentFacts, chunk: DocumentChunk, ids: Sequence[str], model_id: str
) -> dict[str, Any]:
    found = {
        **facts.metadata,
        "document_id": facts.document_id,
        **facts.fingerprint,
        "source": facts.source,
        "uri": facts.uri,
        "title": facts.title,
        "mime_type": facts.mime_type,
        "chunk_index": chunk.index,
        "chunk_count": len(ids),
        "heading_path": HEADING_SEPARATOR.join(chunk.heading_path),
        "start": chunk.start,
        "end": chunk.end,
        "model_id": model_id,
    }
    if chunk.page is not None:
        found["page"] = chunk.page
    if chunk.duplicate_of is not None:
        found["duplicate_of"] = ids[chunk.duplicate_of]
    return found


def _locate_chunks(
    chunks_without_positions: Sequence[ChunkProtocol], document: Document
) -> list[DocumentChunk]:
    """Add the positions in the text to the chunks of a custom chunker."""
    chunks: list[DocumentChunk] = []
    position = 0
    for chunk in chunks_without_positions:
        if not chunk.text.strip():
            continue
        found = document.content.find(chunk.text, position)
        start = found if found >= 0 else max(0, document.content.find(chunk.text))
        chunks.append(
            DocumentChunk(
                text=chunk.text,
                start=start,
                end=start + len(chunk.text),
                index=len(chunks),
                page=document.page_at(start),
                metadata=chunk.metadata,
            )
        )
        position = start + 1  # not its end: chunks may overlap
    return chunks
