"""Ingests documents in background jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.document_ingestion.chunker import chunking_config
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig, IngestionConfig
from lexigram.ai.workers.document_ingestion.errors import IngestionQueueError
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
from lexigram.ai.workers.queued_worker import QueuedWorker, current_job_id
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.protocols import (
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
)
from lexigram.contracts.infra.tasks.types import JobResult, JobStatus
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.hooks import HookRegistry
from lexigram.processes import ProcessPool
from lexigram.tasks.handlers import JobRetry, job

HANDLER_NAME = "ingest_document"
QUEUE_NAME = "ai.document_ingestion"  # separate: other pools have no handler for these jobs


class DocumentIngestionWorker(QueuedWorker[IngestionResult]):
    """Ingests files in background jobs: parses, chunks, embeds and stores them.

    Jobs are on any task queue; ``start`` runs a pool with ``concurrency`` jobs at a time. An
    invalid document fails permanently, other failures are retried by the queue; in the end both
    are dead letters. Jobs are idempotent.
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
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        task_worker_class: TaskWorkerFactoryProtocol | None = None,
        retry: JobRetry | None = None,
        processes: ProcessPool | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(
            queue,
            worker_id,
            concurrency,
            retry or JobRetry(),
            telemetry=Telemetry(hooks, tracer, metrics),
            task_worker_class=task_worker_class,
            timeout=timeout,
        )
        self.vector_store = vector_store
        self.progress_tracker = ProgressTracker()
        files = (
            document_parser
            if isinstance(document_parser, UniversalDocumentParser)
            else UniversalDocumentParser(allowed_root, config=config, processes=processes)
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
        """Enqueue a file and return the job id.

        ``parser`` is the name of a registered parser. ``chunking_config`` overrides the settings
        of the worker; an unknown key raises here.
        """
        job_kwargs = DocumentIngestionJob(
            document_id,
            file_path,
            collection_name,
            parser,
            None if chunking_config is None else dict(chunking_config),
            metadata or {},
            batch_size,
        ).to_job_kwargs()
        self._check(job_kwargs)
        job_id = await self._enqueue(job_kwargs, priority, IngestionQueueError, "ingestion")
        # The pool may have started or even finished it in the meantime.
        if await self.progress_tracker.get_progress(job_id) is None:
            await self.progress_tracker.initialize_progress(job_id, document_id)
        return job_id

    async def get_progress(self, job_id: str) -> IngestionProgress | None:
        """Return the progress of a job; of a job in another process, only its result.

        None for an unknown or evicted job.
        """
        progress = await self.progress_tracker.get_progress(job_id)
        if progress is not None and progress.status is not IngestionStatus.PENDING:
            return progress
        result = await self.get_result(job_id)
        if result is None:
            return progress
        progress = progress or IngestionProgress(result.document_id)
        progress.total_chunks = result.chunks_created
        progress.update(
            IngestionStatus.COMPLETED, chunks_processed=result.chunks_created, error=result.error
        )
        return progress

    async def get_result(self, job_id: str) -> IngestionResult | None:
        """Return the result of a job; None while it runs, or for an unknown or expired job."""
        result = await super().get_result(job_id)
        if result is None or result.document_id:
            return result
        # A failed job has no result value; the document id is in its arguments.
        job_kwargs = await self.queue.get_job(job_id)
        return (
            result
            if job_kwargs is None
            else evolve(result, document_id=job_kwargs.kwargs["document_id"])
        )

    async def get_chunks(self, job_id: str) -> list[DocumentChunk]:
        """Return the chunks that a job stored; empty unless it succeeded."""
        job = await self.queue.get_job(job_id)
        result = await self.get_result(job_id)
        if job is None or result is None or not result.success:
            return []
        job_kwargs = job.kwargs
        return await self.processor.list_chunks(
            job_kwargs["document_id"], job_kwargs["collection_name"]
        )

    def get_stats(self) -> dict[str, Any]:
        """Return the statistics of this worker in this process."""
        return {**super().get_stats(), **self.progress_tracker.get_stats()}

    # --- running a job ----------------------------------------------------------------------------

    def _check(self, job_kwargs: Mapping[str, Any]) -> None:
        """Raise for arguments that would make the job fail."""
        chunking_config(job_kwargs["chunking_config"], self.processor.default_chunking_config)
        if job_kwargs["parser_name"] is not None:
            self.processor.files.check_parser(job_kwargs["parser_name"])

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
            progress = current_job_id(job_id)
            async with self._telemetry.job(HANDLER_NAME):
                await self.progress_tracker.initialize_progress(progress, document_id)
                result = await self.processor.process_document(
                    document_id,
                    file_path,
                    collection_name,
                    parser_name,
                    metadata,
                    batch_size,
                    chunking=chunking_config,
                    job_id=progress,
                )
                self._store_result(progress, result)
            return result.to_dict()

        return ingest_document

    def _parse_result(self, data: Mapping[str, Any]) -> IngestionResult:
        return IngestionResult(**data)

    def _result_without_value(self, job_result: JobResult) -> IngestionResult:
        if job_result.status is JobStatus.COMPLETED:
            return IngestionResult("", True)
        return IngestionResult.failure_result(
            "", job_result.error or job_result.status.value, 0.0, {"reason": job_result.reason}
        )
