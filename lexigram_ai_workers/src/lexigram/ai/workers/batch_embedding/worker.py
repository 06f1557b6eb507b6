"""Embeds chunks in background jobs and stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio

from lexigram import clock
from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache, embed_with_cache
from lexigram.ai.workers.batch_embedding.errors import (
    EmbeddingEnqueueError,
    EmbeddingQueueFullError,
)
from lexigram.ai.workers.batch_embedding.progress import ProgressTracker
from lexigram.ai.workers.batch_embedding.types import (
    DEFAULT_BATCH_SIZE,
    BatchEmbeddingJob,
    BatchEmbeddingProgress,
    BatchEmbeddingResult,
    EmbeddingStatus,
)
from lexigram.ai.workers.embeddings.batching import batches
from lexigram.ai.workers.embeddings.checks import check_texts
from lexigram.ai.workers.embeddings.errors import ModelsMixedError
from lexigram.ai.workers.queued_worker import QueuedWorker, current_job_id
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.ai.workers.vectors.records import chunk_ids
from lexigram.concurrency import call
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.vector import (
    CollectionConfig,
    VectorCollectionProtocol,
    VectorRecord,
    VectorStoreProtocol,
)
from lexigram.contracts.infra.tasks.protocols import (
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
)
from lexigram.contracts.infra.tasks.types import JobResult, JobStatus
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.hooks import HookRegistry
from lexigram.leasing.backoff import Backoff
from lexigram.observability import get_logger
from lexigram.tasks.context import ambient_job
from lexigram.tasks.handlers import JobRetry, job

logger = get_logger(__name__)

HANDLER_NAME = "batch_embed"
QUEUE_NAME = "ai.batch_embedding"  # separate: other pools have no handler for these jobs
DEFAULT_COLLECTION = "default"
MAX_QUEUE_DEPTH = 1000
MAX_BATCH_TOKENS = 100_000  # per model call, estimated

_POLL = Backoff(first=0.02, cap=1.0)


class BatchEmbeddingWorker(QueuedWorker[BatchEmbeddingResult]):
    """Embeds chunks in background jobs and stores the vectors.

    Jobs are on any task queue; ``start`` runs a pool with ``concurrency`` jobs at a time, and
    ``handlers`` are the job handlers for other pools. A job computes all vectors, then stores
    them: a failed job has stored nothing, is retried by the queue and ends as a dead letter. Jobs
    are idempotent: record ids are derived from the chunks.
    """

    kind = "batch_embedding"

    def __init__(
        self,
        vector_store: VectorStoreProtocol,
        embedding_provider: EmbeddingProviderProtocol,
        queue: TaskQueueProtocol,
        worker_id: str = "batch-embedding",
        concurrency: int = 3,
        default_batch_size: int = DEFAULT_BATCH_SIZE,
        enable_cache: bool = True,
        *,
        cache: EmbeddingCache | None = None,
        hooks: HookRegistry | None = None,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        task_worker_class: TaskWorkerFactoryProtocol | None = None,
        retry: JobRetry | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        max_queue_depth: int | None = MAX_QUEUE_DEPTH,
        when_full: Literal["wait", "refuse"] = "wait",
        queue_wait: float = 60.0,
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
        self.embedding_provider = embedding_provider
        self.default_batch_size = default_batch_size
        self.enable_cache = enable_cache
        self.cache = EmbeddingCache() if cache is None else cache
        self.progress_tracker = ProgressTracker()
        self.max_queue_depth = max_queue_depth
        self._max_batch_tokens = max_batch_tokens
        self._when_full = when_full
        self._queue_wait = queue_wait
        # One caller at a time: two that read the same queue depth would both be accepted.
        self._enqueue_lock = anyio.Lock()

    # --- for callers ----------------------------------------------------------------------------

    async def embed_batch(
        self,
        chunks: Sequence[Any],
        collection_name: str = DEFAULT_COLLECTION,
        model_name: str | None = None,
        batch_size: int | None = None,
        use_cache: bool = True,
        priority: int = 0,
    ) -> str:
        """Enqueue a job and return its id.

        A chunk is a text, an object with ``text`` and ``metadata``, or a mapping with these
        keys; an ``id`` is used as the record id. ``model_name`` None is the model of this
        worker; any other model raises ModelsMixedError. While the queue is full, this waits or
        raises EmbeddingQueueFullError, depending on ``when_full``.
        """
        job_kwargs = BatchEmbeddingJob(
            chunks, collection_name, model_name, batch_size or self.default_batch_size, use_cache
        ).to_job_kwargs()
        check_texts([chunk["text"] for chunk in job_kwargs["chunks"]])
        self._check_model(job_kwargs["model_name"])
        # The current model: a worker with another model must not run the job later.
        job_kwargs["model_name"] = self.embedding_provider.model_id
        async with self._enqueue_lock:
            await self._wait_for_capacity()
            job_id = await self._enqueue(job_kwargs, priority, EmbeddingEnqueueError, "embedding")
        # The pool may have started or even finished it in the meantime.
        if await self.progress_tracker.get_progress(job_id) is None:
            await self.progress_tracker.initialize_job(job_id, len(job_kwargs["chunks"]))
        return job_id

    async def get_progress(self, job_id: str) -> BatchEmbeddingProgress | None:
        """Return the progress of a job; of a job in another process, only its result.

        None for an unknown or evicted job.
        """
        progress = await self.progress_tracker.get_progress(job_id)
        if progress is not None and progress.status is not EmbeddingStatus.PENDING:
            return progress
        result = await self.get_result(job_id)
        if result is None:
            return progress
        progress = progress or BatchEmbeddingProgress(job_id, EmbeddingStatus.PENDING)
        total = int(result.metadata.get("texts", progress.total_texts))
        progress.total_texts = total
        progress.update(
            EmbeddingStatus.COMPLETED,
            texts_processed=total if result.success else None,
            cache_hits=result.cache_hits,
            cache_misses=result.embeddings_generated - result.cache_hits,
            error=result.error,
        )
        return progress

    def get_stats(self) -> dict[str, Any]:
        """Return the statistics of this worker in this process."""
        return {
            **super().get_stats(),
            "cache_size": self.cache.size(),
            "cache_enabled": self.enable_cache,
            **self.progress_tracker.get_stats(),
        }

    async def clear_cache(self) -> None:
        """Clear the embedding cache."""
        await self.cache.clear()

    # --- enqueueing -----------------------------------------------------------------------------

    def _check_model(self, name: str | None) -> None:
        own = self.embedding_provider.model_id
        if name is not None and name != own:
            raise ModelsMixedError(
                name,
                own,
                f"worker {self.worker_id}",
                hint="omit model_name, or bind a worker with that model",
            )

    async def _wait_for_capacity(self) -> None:
        """Wait until fewer than ``max_queue_depth`` jobs are pending."""
        if self.max_queue_depth is None:
            return
        deadline = clock.monotonic() + (self._queue_wait if self._when_full == "wait" else 0.0)
        tries = 0
        while (depth := await self._count_waiting()) >= self.max_queue_depth:
            tries += 1
            if clock.monotonic() >= deadline:
                raise EmbeddingQueueFullError(
                    f"{depth} embedding jobs are pending, the limit is {self.max_queue_depth}",
                    details={"depth": depth, "limit": self.max_queue_depth},
                    hint="submit fewer jobs at a time, start more workers, or raise "
                    "embeddings.max_queue_depth",
                )
            await anyio.sleep(_POLL.delay(tries))

    async def _count_waiting(self) -> int:
        waiting = await self.queue.count(QUEUE_NAME, JobStatus.PENDING)
        return waiting + await self.queue.count(QUEUE_NAME, JobStatus.RETRYING)

    # --- running a job ----------------------------------------------------------------------------

    def _handler(self, retry: JobRetry) -> Callable[..., Any]:
        @job(HANDLER_NAME, queue=QUEUE_NAME, retry=retry)
        async def batch_embed(
            chunks: Any,
            collection_name: str = DEFAULT_COLLECTION,
            model_name: str | None = None,
            batch_size: int | None = None,
            use_cache: bool = True,
            job_id: str | None = None,
        ) -> dict[str, Any]:
            job_kwargs = BatchEmbeddingJob(
                chunks,
                collection_name,
                model_name,
                batch_size or self.default_batch_size,
                use_cache,
            )
            async with self._telemetry.job(HANDLER_NAME):
                result = await self._run_job(current_job_id(job_id), job_kwargs)
            return result.to_dict()

        return batch_embed

    async def _run_job(self, job_id: str, job_kwargs: BatchEmbeddingJob) -> BatchEmbeddingResult:
        tracker = self.progress_tracker
        await tracker.initialize_job(job_id, len(job_kwargs.chunks), EmbeddingStatus.PROCESSING)
        # After a cancellation the job waits for its next attempt.
        final_status = EmbeddingStatus.PENDING
        try:
            result = await call(self._embed_and_store, job_id, job_kwargs)
            final_status = EmbeddingStatus.COMPLETED
        except Exception as error:
            final_status = EmbeddingStatus.FAILED
            await tracker.update_progress(job_id, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            await tracker.update_progress(job_id, status=final_status)
        self._store_result(job_id, result)
        return result

    async def _embed_and_store(
        self, job_id: str, job_kwargs: BatchEmbeddingJob
    ) -> BatchEmbeddingResult:
        started, provider, tracker = (
            clock.monotonic(),
            self.embedding_provider,
            self.progress_tracker,
        )
        data = job_kwargs.to_job_kwargs()
        chunks: list[dict[str, Any]] = data["chunks"]
        self._check_model(data["model_name"])
        collection = await self._collection(job_kwargs.collection_name, make=bool(chunks))
        texts = check_texts([chunk["text"] for chunk in chunks])
        cache = self.cache if job_kwargs.use_cache and self.enable_cache else None
        vectors: list[list[float]] = []
        progress = 0
        for part in batches(texts, job_kwargs.batch_size, self._max_batch_tokens):
            job_result, hits, misses = await embed_with_cache(
                provider, cache, texts[part.start : part.stop]
            )
            vectors += job_result
            progress += hits
            await tracker.update_progress(
                job_id, texts_processed=len(vectors), cache_hits=hits, cache_misses=misses
            )
            await _report_progress(len(vectors), len(texts))
        if collection is not None:
            await tracker.update_progress(job_id, status=EmbeddingStatus.STORING)
            await collection.upsert(_records(chunks, vectors, provider.model_id))
        return BatchEmbeddingResult.success_result(
            job_id,
            len(vectors),
            progress,
            clock.monotonic() - started,
            {
                "collection": job_kwargs.collection_name,
                "model_id": provider.model_id,
                "dimension": provider.dimension,
                "texts": len(texts),
            },
        )

    async def _collection(self, name: str, *, make: bool) -> VectorCollectionProtocol | None:
        """Check the model and return the collection, before any vector is computed."""
        provider = self.embedding_provider
        if not make:
            return None
        if not await self.vector_store.collection_exists(name):
            config = CollectionConfig(
                name=name, dimension=provider.dimension, model_id=provider.model_id
            )
            return await self.vector_store.create_collection(config)
        job_result = await self.vector_store.get_collection(name)
        if job_result.model_id not in (None, provider.model_id) or (
            job_result.dimension != provider.dimension
        ):
            raise ModelsMixedError(
                f"{provider.model_id} ({provider.dimension})",
                f"{job_result.model_id or 'an unknown model'} ({job_result.dimension})",
                f"collection {name!r}",
                details={"collection": name},
                hint="use another collection for this model, or embed all documents again",
            )
        return job_result

    def _parse_result(self, data: Mapping[str, Any]) -> BatchEmbeddingResult:
        return BatchEmbeddingResult(**data)

    def _result_without_value(self, job_result: JobResult) -> BatchEmbeddingResult:
        if job_result.status is JobStatus.COMPLETED:
            return BatchEmbeddingResult(job_result.job_id, True)
        return BatchEmbeddingResult.failure_result(
            job_result.job_id,
            job_result.error or job_result.status.value,
            0.0,
            {"reason": job_result.reason},
        )


async def _report_progress(done: int, total: int) -> None:
    """Report progress to the task queue, for subscribers of the job."""
    context = ambient_job()
    if context is not None:
        await context.progress(done, total)


def _records(
    chunks: Sequence[Mapping[str, Any]], vectors: Sequence[Sequence[float]], model_id: str
) -> list[VectorRecord]:
    ids = chunk_ids((_source(chunk), _heading(chunk), chunk["text"]) for chunk in chunks)
    return [
        VectorRecord(
            id=chunk.get("id") or made,
            vector=vector,
            metadata={**chunk["metadata"], "model_id": model_id},
            content=chunk["text"],
        )
        for chunk, vector, made in zip(chunks, vectors, ids, strict=True)
    ]


def _source(chunk: Mapping[str, Any]) -> str:
    data = (chunk["metadata"].get(key) for key in ("document_id", "uri", "source"))
    return next((str(item) for item in data if item), "")


def _heading(chunk: Mapping[str, Any]) -> str:
    return str(chunk["metadata"].get("heading_path") or "")
