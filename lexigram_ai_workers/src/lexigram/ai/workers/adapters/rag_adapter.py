"""Chunk parsed documents and submit the chunks to the embedding worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
from lexigram.ai.workers.document_ingestion.content_hash import content_hash
from lexigram.ai.workers.errors import WorkerError
from lexigram.concurrency import call_in_thread
from lexigram.contracts.ai.rag import ChunkerProtocol, ChunkProtocol, DocumentProtocol
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.observability import get_logger

logger = get_logger(__name__)


@frozen
class IngestionReport:
    """What was submitted."""

    document_count: int
    chunk_count: int
    collection: str
    # None when there was nothing to embed
    embedding_job_id: str | None = None
    # documents that could not be chunked
    failed_ids: tuple[str, ...] = ()


@frozen
class IngestionError:
    """Why nothing was submitted. A value, not an exception."""

    reason: str
    document_ids: list[str] = field(factory=list[str])


class RAGIngestionAdapter:
    """Chunks documents with any chunker; the worker embeds and stores the chunks."""

    def __init__(
        self,
        chunker: ChunkerProtocol,
        embedding_worker: BatchEmbeddingWorker,
        vector_store: VectorStoreProtocol,
    ) -> None:
        self.chunker = chunker
        self.embedding_worker = embedding_worker
        self.vector_store = vector_store

    async def ingest_to_rag(
        self,
        documents: Sequence[DocumentProtocol],
        *,
        collection: str = "default",
        model_name: str | None = None,
        batch_size: int = 100,
    ) -> Result[IngestionReport, IngestionError]:
        """Chunk the documents and submit the chunks; ``embedding_job_id`` is the job.

        A document that cannot be chunked is reported in ``failed_ids``; the others continue. Err
        when all failed, or when the collection has vectors of another model. Raises WorkerError
        when the worker does not accept the job.
        """
        if not documents:
            return Ok(IngestionReport(0, 0, collection))
        ids = [_document_id(document) for document in documents]
        mismatch = await self._find_model_mismatch(collection)
        if mismatch is not None:
            return Err(IngestionError(mismatch, ids))
        chunks: list[dict[str, Any]] = []
        failed: list[str] = []
        for document_id, document in zip(ids, documents, strict=True):
            try:
                chunks += await call_in_thread(self._chunk_document, document_id, document)
            except Exception:
                logger.exception("chunking a document failed", document=document_id)
                failed.append(document_id)
        if len(failed) == len(documents):
            return Err(IngestionError("All documents failed chunking", failed))
        job_id = await self._enqueue_chunks(chunks, collection, model_name, batch_size)
        return Ok(
            IngestionReport(
                len(documents) - len(failed), len(chunks), collection, job_id, tuple(failed)
            )
        )

    async def _enqueue_chunks(
        self, chunks: list[dict[str, Any]], collection: str, model: str | None, batch_size: int
    ) -> str | None:
        if not chunks:
            return None
        try:
            return await self.embedding_worker.embed_batch(
                chunks, collection, model, batch_size=batch_size
            )
        except WorkerError:
            raise
        except LexigramError as error:
            raise WorkerError(
                f"the worker did not accept the chunks: {error.message}",
                details={"collection": collection, "chunks": len(chunks)},
                hint=error.hint,
                cause=error,
            ) from error

    async def _find_model_mismatch(self, collection: str) -> str | None:
        """Return why the model does not fit the collection, or None; otherwise the job would fail."""
        if not await self.vector_store.collection_exists(collection):
            return None
        stored = (await self.vector_store.get_collection(collection)).model_id
        own = self.embedding_worker.embedding_provider.model_id
        if stored in (None, own):
            return None
        return f"collection {collection!r} has vectors of model {stored}, the worker uses {own}"

    def _chunk_document(self, document_id: str, document: DocumentProtocol) -> list[dict[str, Any]]:
        metadata = {**document.metadata, "document_id": document_id}
        return [
            _chunk(number, chunk, metadata)
            for number, chunk in enumerate(self.chunker.chunk(document.content, metadata))
        ]


def _chunk(number: int, chunk: ChunkProtocol, document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"chunk_index": number, **document, **chunk.metadata}
    return {"text": chunk.text, "metadata": metadata}


def _document_id(document: DocumentProtocol) -> str:
    """The id in the metadata, else a hash of the text."""
    for key in ("document_id", "id", "uri", "source", "file_path"):
        if document.metadata.get(key):
            return str(document.metadata[key])
    content = document.content.encode("utf-8", "surrogatepass")
    return content_hash(content)
