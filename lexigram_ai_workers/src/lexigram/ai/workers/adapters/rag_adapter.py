"""Parsed documents to a collection: cut, then handed to the embedding worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
from attrs import field, frozen

from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
from lexigram.ai.workers.document_ingestion.contents import content_hash
from lexigram.ai.workers.errors import WorkerError
from lexigram.contracts.ai.rag import ChunkerProtocol, ChunkProtocol, DocumentProtocol
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.observability import get_logger

logger = get_logger(__name__)


@frozen
class IngestionReport:
    """What was handed in."""

    document_count: int
    chunk_count: int
    collection: str
    # None when there was nothing to embed
    embedding_job_id: str | None = None
    # documents that could not be cut
    failed_ids: tuple[str, ...] = ()


@frozen
class IngestionError:
    """Why nothing was handed in. A value, not an exception."""

    reason: str
    document_ids: list[str] = field(factory=list[str])


class RAGIngestionAdapter:
    """Cuts documents with any chunker and has them embedded and stored by the worker."""

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
        """Cut the documents and hand their chunks in; ``embedding_job_id`` is the job.

        A document that cannot be cut does not keep the others back. Err when none could be cut, or
        the collection has vectors of another model. Raises WorkerError when the worker does not
        take the job.
        """
        if not documents:
            return Ok(IngestionReport(0, 0, collection))
        ids = [_id_of(document) for document in documents]
        mixed = await self._other_model(collection)
        if mixed is not None:
            return Err(IngestionError(mixed, ids))
        chunks: list[dict[str, Any]] = []
        failed: list[str] = []
        for document_id, document in zip(ids, documents, strict=True):
            try:
                chunks += await anyio.to_thread.run_sync(self._cut, document_id, document)
            except Exception:
                logger.exception("a document could not be cut", document=document_id)
                failed.append(document_id)
        if len(failed) == len(documents):
            return Err(IngestionError("All documents failed chunking", failed))
        job_id = await self._embedded(chunks, collection, model_name, batch_size)
        return Ok(
            IngestionReport(
                len(documents) - len(failed), len(chunks), collection, job_id, tuple(failed)
            )
        )

    async def _embedded(
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
                f"the chunks were not handed in: {error.message}",
                details={"collection": collection, "chunks": len(chunks)},
                hint=error.hint,
                cause=error,
            ) from error

    async def _other_model(self, collection: str) -> str | None:
        """Said now, not by a job that fails later."""
        if not await self.vector_store.collection_exists(collection):
            return None
        known = (await self.vector_store.get_collection(collection)).model_id
        own = self.embedding_worker.embedding_provider.model_id
        if known in (None, own):
            return None
        return f"collection {collection!r} has vectors of {known}, the worker makes those of {own}"

    def _cut(self, document_id: str, document: DocumentProtocol) -> list[dict[str, Any]]:
        metadata = {**document.metadata, "document_id": document_id}
        return [
            _chunk(number, chunk, metadata)
            for number, chunk in enumerate(self.chunker.chunk(document.content, metadata))
        ]


def _chunk(number: int, chunk: ChunkProtocol, document: Mapping[str, Any]) -> dict[str, Any]:
    facts = {"chunk_index": number, **document, **chunk.metadata}
    return {"text": chunk.text, "metadata": facts}


def _id_of(document: DocumentProtocol) -> str:
    """What its metadata say, else the same for the same text."""
    for key in ("document_id", "id", "uri", "source", "file_path"):
        if document.metadata.get(key):
            return str(document.metadata[key])
    content = document.content.encode("utf-8", "surrogatepass")
    return content_hash(content)
