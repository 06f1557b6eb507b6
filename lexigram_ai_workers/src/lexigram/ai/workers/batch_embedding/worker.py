"""Embeds chunks in background jobs and stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio

from lexigram import clock
from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache, cached_embeddings
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
from lexigram.ai.workers.embeddings.checks import checked_texts
from lexigram.ai.workers.embeddings.errors import (
    EmbeddingEndpointError,
    EmbeddingInputError,
    EmbeddingLibraryError,
    EmbeddingModelError,
    ModelsMixedError,
)
from lexigram.ai.workers.queued_worker import QueuedWorker, own_id
from lexigram.ai.workers.vectors.errors import CollectionMismatchError, VectorRecordError
from lexigram.ai.workers.vectors.ids import chunk_ids
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
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger
from lexigram.sql.leasing.backoff import Backoff
from lexigram.tasks.context import ambient_job
from lexigram.tasks.handlers import JobRetry, job

logger = get_logger(__name__)

HANDLER_NAME = "batch_embed"
QUEUE_NAME = "ai.batch_embedding"  # of its own: pools of others have no handler for these jobs
DEFAULT_COLLECTION = "default"
MAX_QUEUE_DEPTH = 1000
MAX_BATCH_TOKENS = 100_000  # of one call of the model, estimated

# What is wrong with the texts, the model or the collection is wrong at the next try too.
PERMANENT: tuple[type[Exception], ...] = (
    EmbeddingInputError,
    EmbeddingEndpointError,
    EmbeddingModelError,
    EmbeddingLibraryError,
    ModelsMixedError,
    CollectionMismatchError,
    VectorRecordError,
)

_POLL = Backoff(first=0.02, cap=1.0)


class BatchEmbeddingWorker(QueuedWorker[BatchEmbeddingResult]):
    """Takes chunks, gives a job id, and has their vectors in the store when the job is done.

    Jobs are on any task queue. ``concurrency`` of them run at a time, in the pool that
    ``start`` starts; ``handlers`` are what it does, for pools of others. A job computes all its
    vectors, then stores them: one that fails has stored nothing, raises, and so is tried again
    by the queue and in the end kept as a dead letter. Done twice it changes nothing: ids come
    from the chunks.
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
        task_worker_class: TaskWorkerFactoryProtocol | None = None,
        retry: JobRetry | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        max_queue_depth: int | None = MAX_QUEUE_DEPTH,
        when_full: Literal["wait", "refuse"] = "wait",
        queue_wait: float = 60.0,
    ) -> None:
        super().__init__(
            queue,
            worker_id,
            concurrency,
            retry or JobRetry(abort_on=PERMANENT),
            hooks=hooks,
            task_worker_class=task_worker_class,
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
        # Callers come one by one: two that look at the depth together would both fit.
        self._gate = anyio.Lock()

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
        """Hand in a job and return its id.

        A chunk is a text, an object with ``text`` and ``metadata``, or a mapping with these
        keys; with an ``id`` it is stored under that. ``model_name`` None is the model of this
        worker; any other name than its own is refused with ModelsMixedError. While too many
        jobs wait, this waits too, or raises EmbeddingQueueFullError, as it was set up.
        """
        asked = BatchEmbeddingJob(
            chunks, collection_name, model_name, batch_size or self.default_batch_size, use_cache
        ).to_job_kwargs()
        checked_texts([chunk["text"] for chunk in asked["chunks"]])
        self._check_model(asked["model_name"])
        # The model that is meant now: a worker with another one must not take the job later.
        asked["model_name"] = self.embedding_provider.model_id
        async with self._gate:
            await self._room()
            job_id = await self._enqueue(asked, priority, EmbeddingEnqueueError, "embedding")
        # The pool may have begun, or even ended it in the meantime.
        if await self.progress_tracker.get_progress(job_id) is None:
            await self.progress_tracker.initialize_job(job_id, len(asked["chunks"]))
        return job_id

    async def get_progress(self, job_id: str) -> BatchEmbeddingProgress | None:
        """How far the job is; of one that runs elsewhere, only whether it has ended.

        None when it is unknown or no longer kept.
        """
        known = await self.progress_tracker.get_progress(job_id)
        if known is not None and known.status is not EmbeddingStatus.PENDING:
            return known
        ended = await self.get_result(job_id)
        if ended is None:
            return known
        progress = known or BatchEmbeddingProgress(job_id, EmbeddingStatus.PENDING)
        total = int(ended.metadata.get("texts", progress.total_texts))
        progress.total_texts = total
        progress.update(
            EmbeddingStatus.COMPLETED,
            texts_processed=total if ended.success else None,
            cache_hits=ended.cache_hits,
            cache_misses=ended.embeddings_generated - ended.cache_hits,
            error=ended.error,
        )
        return progress

    def get_stats(self) -> dict[str, Any]:
        """What it does and has done in this process."""
        return {
            **super().get_stats(),
            "cache_size": self.cache.size(),
            "cache_enabled": self.enable_cache,
            **self.progress_tracker.get_stats(),
        }

    async def clear_cache(self) -> None:
        """Forget the vectors that are remembered."""
        await self.cache.clear()

    # --- handing in -----------------------------------------------------------------------------

    def _check_model(self, name: str | None) -> None:
        own = self.embedding_provider.model_id
        if name is not None and name != own:
            raise ModelsMixedError(
                name,
                own,
                f"worker {self.worker_id}",
                hint="leave model_name out, or bind a worker with that model",
            )

    async def _room(self) -> None:
        """Come back when fewer jobs wait than allowed."""
        if self.max_queue_depth is None:
            return
        give_up = clock.monotonic() + (self._queue_wait if self._when_full == "wait" else 0.0)
        tries = 0
        while (depth := await self._depth()) >= self.max_queue_depth:
            tries += 1
            if clock.monotonic() >= give_up:
                raise EmbeddingQueueFullError(
                    f"{depth} embedding jobs wait, and no more than {self.max_queue_depth} may",
                    details={"depth": depth, "limit": self.max_queue_depth},
                    hint="hand in less at a time, start more workers, or raise "
                    "embeddings.max_queue_depth",
                )
            await anyio.sleep(_POLL.delay(tries))

    async def _depth(self) -> int:
        waiting = await self.queue.count(QUEUE_NAME, JobStatus.PENDING)
        return waiting + await self.queue.count(QUEUE_NAME, JobStatus.RETRYING)

    # --- doing a job ----------------------------------------------------------------------------

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
            asked = BatchEmbeddingJob(
                chunks,
                collection_name,
                model_name,
                batch_size or self.default_batch_size,
                use_cache,
            )
            return (await self._do(own_id(job_id), asked)).to_dict()

        return batch_embed

    async def _do(self, job_id: str, asked: BatchEmbeddingJob) -> BatchEmbeddingResult:
        tracker = self.progress_tracker
        await self._announcer.job_started(HANDLER_NAME)
        await tracker.initialize_job(job_id, len(asked.chunks), EmbeddingStatus.PROCESSING)
        # What a cancelled attempt leaves: the job waits for its next one.
        left = EmbeddingStatus.PENDING
        try:
            result = await self._embed_and_store(job_id, asked)
            left = EmbeddingStatus.COMPLETED
        except Exception as error:
            left = EmbeddingStatus.FAILED
            await tracker.update_progress(job_id, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            await tracker.update_progress(job_id, status=left)
        self._keep(job_id, result)
        await self._announcer.job_completed(HANDLER_NAME)
        return result

    async def _embed_and_store(self, job_id: str, asked: BatchEmbeddingJob) -> BatchEmbeddingResult:
        began, provider, tracker = clock.monotonic(), self.embedding_provider, self.progress_tracker
        told = asked.to_job_kwargs()
        chunks: list[dict[str, Any]] = told["chunks"]
        self._check_model(told["model_name"])
        collection = await self._collection(asked.collection_name, make=bool(chunks))
        texts = checked_texts([chunk["text"] for chunk in chunks])
        cache = self.cache if asked.use_cache and self.enable_cache else None
        vectors: list[list[float]] = []
        known = 0
        for part in batches(texts, asked.batch_size, self._max_batch_tokens):
            found, hits, misses = await cached_embeddings(
                provider, cache, texts[part.start : part.stop]
            )
            vectors += found
            known += hits
            await tracker.update_progress(
                job_id, texts_processed=len(vectors), cache_hits=hits, cache_misses=misses
            )
            await _tell(len(vectors), len(texts))
        if collection is not None:
            await tracker.update_progress(job_id, status=EmbeddingStatus.STORING)
            await collection.upsert(_records(chunks, vectors, provider.model_id))
        return BatchEmbeddingResult.success_result(
            job_id,
            len(vectors),
            known,
            clock.monotonic() - began,
            {
                "collection": asked.collection_name,
                "model_id": provider.model_id,
                "dimension": provider.dimension,
                "texts": len(texts),
            },
        )

    async def _collection(self, name: str, *, make: bool) -> VectorCollectionProtocol | None:
        """Where the vectors go, once it is sure that they may; before any is computed."""
        provider = self.embedding_provider
        if not make:
            return None
        if not await self.vector_store.collection_exists(name):
            config = CollectionConfig(
                name=name, dimension=provider.dimension, model_id=provider.model_id
            )
            return await self.vector_store.create_collection(config)
        found = await self.vector_store.get_collection(name)
        if found.model_id not in (None, provider.model_id) or (
            found.dimension != provider.dimension
        ):
            raise ModelsMixedError(
                f"{provider.model_id} ({provider.dimension})",
                f"{found.model_id or 'vectors of an unknown model'} ({found.dimension})",
                f"collection {name!r}",
                details={"collection": name},
                hint="use another collection for this model, or embed all documents again",
            )
        return found

    def _read_result(self, told: Mapping[str, Any]) -> BatchEmbeddingResult:
        return BatchEmbeddingResult(**told)

    def _other_end(self, found: JobResult) -> BatchEmbeddingResult:
        if found.status is JobStatus.COMPLETED:
            return BatchEmbeddingResult(found.job_id, True)
        return BatchEmbeddingResult.failure_result(
            found.job_id, found.error or found.status.value, 0.0, {"reason": found.reason}
        )


async def _tell(done: int, total: int) -> None:
    """Report to whoever follows the job by the progress of the task queue."""
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
    told = (chunk["metadata"].get(key) for key in ("document_id", "uri", "source"))
    return next((str(item) for item in told if item), "")


def _heading(chunk: Mapping[str, Any]) -> str:
    return str(chunk["metadata"].get("heading_path") or "")
