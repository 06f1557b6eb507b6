"""The stages of an ingestion after parsing, as the worker and the durable steps call them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio.to_thread
from attrs import asdict, field, frozen

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache, cached_embeddings
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.types import Document, DocumentChunk
from lexigram.ai.workers.embeddings.batching import batches
from lexigram.ai.workers.vectors.ids import chunk_ids
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

Tell = Callable[[int, int], Awaitable[None]]  # how many are done, of how many

MAX_BATCH_TOKENS = 100_000  # of one call of the model, estimated
_MANY = 64  # chunks: most documents have fewer, and need one search
HEADING_SEPARATOR = " > "


@frozen(kw_only=True)
class DocumentFacts:
    """What is stored with every chunk of a document."""

    document_id: str
    # content_hash() of its bytes
    doc_hash: str
    # how it was parsed and cut
    config_key: str
    source: str = ""
    uri: str = ""
    title: str = ""
    mime_type: str = ""
    # of whoever brought it
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    @property
    def is_like(self) -> Mapping[str, str]:
        """What all chunks have in common while neither content nor settings change."""
        return {"doc_hash": self.doc_hash, "config_key": self.config_key}


def document_id_of(source: str, uri: str) -> str:
    """The id of what lies at a place, whatever its content is."""
    return hashlib.sha256(f"{source}\0{uri}".encode()).hexdigest()[:32]


def config_key_of(
    chunking: ChunkingConfig, parser: str | None = None, metadata: Mapping[str, Any] | None = None
) -> str:
    """Changes with everything that makes other records out of the same bytes."""
    facts = {**asdict(chunking), "parser": parser, "metadata": dict(metadata or {})}
    told = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def notes_of(document: Document) -> dict[str, Any]:
    """What a reader of the result should know about the parsing."""
    known = ("charset", "total_pages", "pages_needing_ocr", "parser", "attachments")
    return {key: document.metadata[key] for key in known if key in document.metadata}


async def chunks_of(document: Document, chunker: ChunkerProtocol) -> list[DocumentChunk]:
    """The chunks of a document, by our chunker or one of the application."""
    if isinstance(chunker, DocumentChunker):
        return await anyio.to_thread.run_sync(chunker.chunk_document, document)
    made = await anyio.to_thread.run_sync(chunker.chunk, document.content, document.metadata)
    return _placed(made, document)


async def vectors_of(
    chunks: Sequence[DocumentChunk],
    provider: EmbeddingProviderProtocol,
    cache: EmbeddingCache | None,
    *,
    batch_size: int,
    tell: Tell | None = None,
) -> tuple[list[list[float]], int]:
    """A vector per chunk, and how many of them were known before."""
    texts = [text_to_embed(chunk) for chunk in chunks]
    vectors: list[list[float]] = []
    known = 0
    for part in batches(texts, batch_size, MAX_BATCH_TOKENS):
        found, hits, _ = await cached_embeddings(provider, cache, texts[part.start : part.stop])
        vectors += found
        known += hits
        if tell is not None:
            await tell(len(vectors), len(texts))
    return vectors, known


def text_to_embed(chunk: DocumentChunk) -> str:
    """The chunk under its headings: what is below the first of a long part lacks them."""
    path = chunk.heading_path
    if path and chunk.text.lstrip("# ").startswith(path[-1]):
        path = path[:-1]
    return f"{HEADING_SEPARATOR.join(path)}\n\n{chunk.text}" if path else chunk.text


def records_of(
    facts: DocumentFacts,
    chunks: Sequence[DocumentChunk],
    vectors: Sequence[Sequence[float]],
    model_id: str,
) -> list[VectorRecord]:
    """The chunks as they are stored."""
    ids = chunk_ids(
        (facts.document_id, HEADING_SEPARATOR.join(chunk.heading_path), chunk.text)
        for chunk in chunks
    )
    return [
        VectorRecord(
            id=record_id,
            vector=vector,
            content=chunk.text,
            metadata=_metadata(facts, chunk, ids, model_id),
        )
        for record_id, chunk, vector in zip(ids, chunks, vectors, strict=True)
    ]


async def collection_for(
    store: VectorStoreProtocol, name: str, *, model_id: str, dimension: int
) -> VectorCollectionProtocol:
    """The collection, made for the model where it is missing.

    Raises CollectionMismatchError when it has vectors of another model.
    """
    return await store.create_collection(
        CollectionConfig(name=name, dimension=dimension, model_id=model_id)
    )


async def stored_records(
    collection: VectorCollectionProtocol, document_id: str
) -> Sequence[SearchResult]:
    """The chunks a collection has of a document, in the order of the text.

    Rests of an earlier version that was being replaced are among them, or one of them.
    """
    direction = [1.0] + [0.0] * (collection.dimension - 1)
    query = SearchQuery(vector=direction, top_k=_MANY, filter={"document_id": document_id})
    found = await collection.search(query)
    if len(found) == _MANY:
        count = int(found[0].metadata.get("chunk_count", 0))
        found = await collection.search(replace(query, top_k=count + 1))
    return sorted(found, key=lambda one: int(one.metadata.get("chunk_index", 0)))


async def is_stored(collection: VectorCollectionProtocol, facts: DocumentFacts) -> bool:
    """True when the collection has exactly the chunks that these bytes and settings make.

    False when in doubt: storing again changes nothing.
    """
    found = await stored_records(collection, facts.document_id)
    return bool(found) and all(
        _is_of(one.metadata, facts) and one.metadata.get("chunk_count") == len(found)
        for one in found
    )


def _is_of(metadata: Mapping[str, Any], facts: DocumentFacts) -> bool:
    return all(metadata.get(key) == value for key, value in facts.is_like.items())


def _metadata(
    facts: DocumentFacts, chunk: DocumentChunk, ids: Sequence[str], model_id: str
) -> dict[str, Any]:
    found = {
        **facts.metadata,
        "document_id": facts.document_id,
        **facts.is_like,
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


def _placed(made: Sequence[ChunkProtocol], document: Document) -> list[DocumentChunk]:
    """Chunks of another chunker, with the places where their texts are found."""
    chunks: list[DocumentChunk] = []
    position = 0
    for chunk in made:
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
        position = start + 1  # not the end: chunks may overlap
    return chunks
