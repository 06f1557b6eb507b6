"""Ingests documents in background jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.batch_embedding.worker import PERMANENT
from lexigram.ai.workers.document_ingestion.chunker import chunking_config
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig, IngestionConfig
from lexigram.ai.workers.document_ingestion.errors import (
    IngestionInputError,
    IngestionQueueError,
)
from lexigram.ai.workers.document_ingestion.parser import (
    DocumentParser,
    UniversalDocumentParser,
)
from lexigram.ai.workers.document_ingestion.processor import DocumentProcessor
from lexigram.ai.workers.document_ingestion.progress import ProgressTracker
from lexigram.ai.workers.document_ingestion.types import (
    DocumentChunk,
    DocumentIngestionJob,
    IngestionProgress,
    IngestionResult,
    IngestionStatus,
)
from lexigram.ai.workers.queued_worker import QueuedWorker, own_id
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.protocols import (
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
)
from lexigram.contracts.infra.tasks.types import JobResult, JobStatus
from lexigram.hooks import HookRegistry
from lexigram.tasks.handlers import JobRetry, job

HANDLER_NAME = "ingest_document"
QUEUE_NAME = "ai.document_ingestion"  # of its own: pools of others have no handler for these jobs


class DocumentIngestionWorker(QueuedWorker[IngestionResult]):
    """Takes files, gives a job id, and has their chunks in the store when the job is done.

    Jobs are on any task queue; ``concurrency`` of them run at a time in the pool that ``start``
    starts. A document that can never be ingested fails at once, anything else is tried again by
    the queue; both end as dead letters. Done twice, a job changes nothing.
    """

    kind = "document_ingestion"

    def __init__(
        self,
        vector_store: VectorStoreProtocol,
        queue: TaskQueueProtocol,
        worker_id: str = "document-ingestion",
        concurrency: int = 3,
        default_chunking_config: Mapping[str, Any] | ChunkingConfig | None = None,
        document_parser: DocumentParser | None = None,
        allowed_root: Path | Sequence[Path] | None = None,
        *,
        embedding_provider: EmbeddingProviderProtocol | None = None,
        cache: EmbeddingCache | None = None,
        config: IngestionConfig | None = None,
        hooks: HookRegistry | None = None,
        task_worker_class: TaskWorkerFactoryProtocol | None = None,
        retry: JobRetry | None = None,
    ) -> None:
        super().__init__(
            queue,
            worker_id,
            concurrency,
            retry or JobRetry(abort_on=(IngestionInputError, *PERMANENT)),
            hooks=hooks,
            task_worker_class=task_worker_class,
        )
        self.vector_store = vector_store
        self.progress_tracker = ProgressTracker()
        files = (
            document_parser
            if isinstance(document_parser, UniversalDocumentParser)
            else UniversalDocumentParser(allowed_root, config=config)
        )
        if default_chunking_config is None and config is not None:
            default_chunking_config = config.chunking
        self.processor = DocumentProcessor(
            vector_store,
            self.progress_tracker,
            default_chunking_config,
            document_parser=document_parser,
            embedding_provider=embedding_provider,
            cache=EmbeddingCache() if cache is None else cache,
            files=files,
        )
        self.document_parser = self.processor.document_parser
        self.embedding_provider = self.processor.embedding_provider

    # --- for callers ----------------------------------------------------------------------------

    async def ingest_document(
        self,
        document_id: str,
        file_path: str | Path,
        collection_name: str,
        parser: str | None = None,
        chunking_config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        priority: int = 0,
        batch_size: int = 50,
    ) -> str:
        """Hand in a file and return the id of the job.

        ``parser`` names a registered one; ``chunking_config`` lies over the worker's own, and a
        key that does not exist is refused here.
        """
        asked = DocumentIngestionJob(
            document_id,
            file_path,
            collection_name,
            parser,
            None if chunking_config is None else dict(chunking_config),
            metadata or {},
            batch_size,
        ).to_job_kwargs()
        self._check(asked)
        job_id = await self._enqueue(asked, priority, IngestionQueueError, "ingestion")
        # The pool may have begun, or even ended it in the meantime.
        if await self.progress_tracker.get_progress(job_id) is None:
            await self.progress_tracker.initialize_progress(job_id, document_id)
        return job_id

    async def get_progress(self, job_id: str) -> IngestionProgress | None:
        """How far the job is; of one that runs elsewhere, only whether it has ended.

        None when it is unknown or no longer kept.
        """
        known = await self.progress_tracker.get_progress(job_id)
        if known is not None and known.status is not IngestionStatus.PENDING:
            return known
        ended = await self.get_result(job_id)
        if ended is None:
            return known
        progress = known or IngestionProgress(ended.document_id)
        progress.total_chunks = ended.chunks_created
        progress.update(
            IngestionStatus.COMPLETED, chunks_processed=ended.chunks_created, error=ended.error
        )
        return progress

    async def get_result(self, job_id: str) -> IngestionResult | None:
        """How the job ended; None while it has not, and when it is unknown or no longer kept."""
        result = await super().get_result(job_id)
        if result is None or result.document_id:
            return result
        # A job that was given up left no result; what it was asked says which document it was.
        asked = await self.queue.get_job(job_id)
        return result if asked is None else evolve(result, document_id=asked.kwargs["document_id"])

    async def get_chunks(self, job_id: str) -> list[DocumentChunk]:
        """The chunks that the job left in the store; empty while it has not ended well."""
        job = await self.queue.get_job(job_id)
        result = await self.get_result(job_id)
        if job is None or result is None or not result.success:
            return []
        asked = job.kwargs
        return await self.processor.stored_chunks(asked["document_id"], asked["collection_name"])

    def get_stats(self) -> dict[str, Any]:
        """What it does and has done in this process."""
        return {**super().get_stats(), **self.progress_tracker.get_stats()}

    # --- doing a job ----------------------------------------------------------------------------

    def _check(self, asked: Mapping[str, Any]) -> None:
        """Refuse now what could only fail later."""
        chunking_config(asked["chunking_config"], self.processor.default_chunking_config)
        if asked["parser_name"] is not None:
            self.processor.files.check_parser(asked["parser_name"])

    def _handler(self, retry: JobRetry) -> Callable[..., Any]:
        @job(HANDLER_NAME, queue=QUEUE_NAME, retry=retry)
        async def ingest_document(
            document_id: str,
            file_path: str,
            collection_name: str,
            parser_name: str | None = None,
            chunking_config: Any = None,
            metadata: Any = None,
            batch_size: int = 50,
            job_id: str | None = None,
        ) -> dict[str, Any]:
            known = own_id(job_id)
            await self._announcer.job_started(HANDLER_NAME)
            await self.progress_tracker.initialize_progress(known, document_id)
            result = await self.processor.process_document(
                document_id,
                file_path,
                collection_name,
                parser_name,
                metadata,
                batch_size,
                chunking=chunking_config,
                job_id=known,
            )
            self._keep(known, result)
            await self._announcer.job_completed(HANDLER_NAME)
            return result.to_dict()

        return ingest_document

    def _read_result(self, told: Mapping[str, Any]) -> IngestionResult:
        return IngestionResult(**told)

    def _other_end(self, found: JobResult) -> IngestionResult:
        if found.status is JobStatus.COMPLETED:
            return IngestionResult("", True)
        return IngestionResult.failure_result(
            "", found.error or found.status.value, 0.0, {"reason": found.reason}
        )
