"""The ingestion worker as a document loader: hand in a file, get its chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from lexigram.ai.workers.document_ingestion.types import DocumentChunk, IngestionResult
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.contracts.ai.errors import RAGError

_DEFAULT_COLLECTION = "default"


class LoaderWorkerBridge:
    """Implements DocumentLoader over a worker whose pool runs, here or elsewhere."""

    def __init__(
        self,
        worker: DocumentIngestionWorker,
        *,
        timeout: float = 300.0,
        poll_interval: float = 1.0,
    ) -> None:
        self.worker = worker
        self.timeout = timeout
        self.poll_interval = poll_interval

    async def load(self, source: str | Path, **kwargs: Any) -> list[DocumentChunk]:
        """Ingest a file and return its chunks as they are stored, in their order.

        ``kwargs`` are those of ``ingest_document``; the collection is "default", the document
        id the path, unless given. RAGError when it fails or takes longer than ``timeout``.
        """
        path = str(source)
        collection = str(kwargs.pop("collection_name", _DEFAULT_COLLECTION))
        document_id = str(kwargs.pop("document_id", path))
        job_id = await self.worker.ingest_document(document_id, path, collection, **kwargs)
        if not job_id:
            raise RAGError(f"{path} was handed in, but the worker gave no job")
        result = await self._ended(job_id, path)
        if not result.success:
            raise RAGError(f"{path} was not ingested: {result.error}", details={"job_id": job_id})
        return await self.worker.processor.stored_chunks(document_id, collection)

    async def _ended(self, job_id: str, path: str) -> IngestionResult:
        with anyio.move_on_after(self.timeout):
            while True:
                # By the result: FAILED in the progress is one attempt, another may follow.
                result = await self.worker.get_result(job_id)
                if result is not None:
                    return result
                await anyio.sleep(self.poll_interval)
        raise RAGError(
            f"{path} was not ingested within {self.timeout:g} s; the job goes on",
            details={"job_id": job_id},
            hint="does the ingestion worker run? give a longer timeout",
        )
