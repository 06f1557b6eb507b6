"""Use the ingestion worker as a document loader: submit a file, get its chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from lexigram.ai.workers.document_ingestion.types import DocumentChunk, IngestionResult
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.contracts.ai.errors import RAGError

_DEFAULT_COLLECTION = "default"


class LoaderWorkerBridge:
    """Implements DocumentLoader with an ingestion worker that runs in this or another process."""

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
        """Ingest a file and return its stored chunks in document order.

        ``kwargs`` are passed to ``ingest_document``. Defaults: collection "default", the path as
        the document id. Raises RAGError on failure, or after ``timeout`` seconds.
        """
        path = str(source)
        collection = str(kwargs.pop("collection_name", _DEFAULT_COLLECTION))
        document_id = str(kwargs.pop("document_id", path))
        job_id = await self.worker.ingest_document(document_id, path, collection, **kwargs)
        if not job_id:
            raise RAGError(f"the worker returned no job id for {path}")
        result = await self._wait_for_result(job_id, path)
        if not result.success:
            raise RAGError(
                f"ingestion of {path} failed: {result.error}", details={"job_id": job_id}
            )
        return await self.worker.processor.list_chunks(document_id, collection)

    async def _wait_for_result(self, job_id: str, path: str) -> IngestionResult:
        with anyio.move_on_after(self.timeout):
            while True:
                # Not the progress: FAILED there is one attempt, and a retry may follow.
                result = await self.worker.get_result(job_id)
                if result is not None:
                    return result
                await anyio.sleep(self.poll_interval)
        raise RAGError(
            f"ingestion of {path} did not finish within {self.timeout:g} s; the job continues",
            details={"job_id": job_id},
            hint="check that the ingestion worker is running, or raise the timeout",
        )
