"""Registers, starts and supervises the AI workers, and reports their health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import anyio

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.constants import CONFIG_SECTION
from lexigram.ai.workers.di.factories import (
    JobCounts,
    check_embeddings_health,
    create_dead_letter_worker,
    create_maintenance_worker,
    create_queue,
)
from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.ai.workers.embeddings.choose import close_embeddings, open_embeddings
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.ai.workers.supervision import Supervisor, WorkerProtocol
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.cache.memory import MemoryCache
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.locks import ResourceLockProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.contracts.infra.tasks.protocols import (
    DLQProtocol,
    TaskExecutorProtocol,
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
    TaskWorkerProtocol,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.di import Provider, ProviderPriority, unbound
from lexigram.di.markers import Inject, Named
from lexigram.events.lifecycle import ApplicationStarted
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger
from lexigram.processes import ProcessPool
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql.database import Database
from lexigram.tasks.worker import TaskWorker

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from lexigram.tasks.queue import TaskQueue

logger = get_logger(__name__)

WORKER_CLASS = "TaskWorkerClass"
WORKERS_NAME = "ai_workers"  # name of the TaskWorkerProtocol for all workers

# In start order; they stop in reverse.
_WORKER_TYPES: tuple[type[WorkerProtocol], ...] = (
    BatchEmbeddingWorker,
    DocumentIngestionWorker,
    MaintenanceWorker,
    DeadLetterQueueWorker,
)


class WorkersProvider(Provider):
    """Registers the workers. An explicit configuration takes precedence over ``ai_workers``.

    Workers are singletons: the resolved instance is the running one. With ``stub=True`` every
    resolve creates a worker and nothing is started.
    """

    name = "workers"
    priority = ProviderPriority.INFRASTRUCTURE
    optional_dependencies = ("sql", "tasks", "cache", "queue", "schedule")
    config_key = CONFIG_SECTION
    config_model = WorkersConfig

    config: WorkersConfig

    def __init__(
        self,
        config: WorkersConfig | None = None,
        enable_scheduler: bool = True,
        *,
        worker_types: Sequence[type[WorkerProtocol]] = (),
        stub: bool = False,
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        # False: maintenance is not started; ``run_task_now`` works
        self.enable_scheduler = enable_scheduler
        self.worker_types = (*_WORKER_TYPES, *worker_types)
        self._is_stub = stub
        self._supervisor = Supervisor(self._resolve_workers, on_failure=self._on_worker_done)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._container: BootContainerProtocol | None = None
        self._events: EventBusProtocol | None = None
        # created if the application has no task queue
        self._queue: TaskQueue | None = None
        self._counts = JobCounts()
        # checked by health_check(); None if no worker was created
        self._embedding: EmbeddingProviderProtocol | None = None

    @classmethod
    def from_config(cls, config: WorkersConfig, **context: Any) -> Self:
        """Create a provider with this configuration; ``context`` are further arguments."""
        return cls(config, **context)

    # --- lifecycle -----------------------------------------------------------------------------------

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Register everything; bindings of the application take precedence."""
        config, enabled = self.config, self.config.enabled
        container.singleton(WorkersConfig, config)
        container.singleton(VectorStores, factory=self._open_vector_stores)
        container.singleton(VectorStoreProtocol, factory=_get_vector_store, when=unbound)
        container.singleton(EmbeddingProviderProtocol, factory=self._open_embeddings, when=unbound)
        container.singleton(ProcessPool, factory=_open_process_pool, when=unbound)
        container.singleton(AgedCache, factory=self._create_aged_cache)
        container.singleton(EmbeddingCache, factory=self._create_embedding_cache)
        container.singleton(IngestionStatistics, IngestionStatistics())
        container.singleton(WORKER_CLASS, factory=_get_default_worker_class, when=unbound)
        bind = container.transient if self._is_stub else container.singleton
        for kind in self.worker_types:
            bind(kind, factory=self._worker_factories().get(kind), when=enabled)
        container.singleton(Supervisor, self._supervisor, when=enabled)
        container.singleton(TaskWorkerProtocol, self._supervisor, name=WORKERS_NAME, when=enabled)
        container.singleton(
            TaskWorkerProtocol, self._supervisor, when=unbound if enabled else False
        )

    async def boot(self, container: BootContainerProtocol) -> None:
        """Create the workers; they start with the application, when all handlers are registered."""
        self._container = container
        if not self.config.enabled:
            return
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._supervisor.open(self._tasks)
        if self._is_stub:
            return
        await self._register_handlers(container)
        for kind in self._select_worker_types():
            await container.resolve(kind)
        self._embedding = await container.resolve(EmbeddingProviderProtocol)
        if self.background_enabled and self.run_worker is not False:
            self._counts.listen(await container.resolve_optional(HookRegistry))
            self._events = await container.resolve(EventBusProtocol)
            self._events.subscribe(ApplicationStarted, self._start)

    async def shutdown(self) -> None:
        """Stop the workers in reverse order; after 30 s the remaining ones are cancelled."""
        if self._events is not None:
            self._events.unsubscribe(ApplicationStarted, self._start)
        try:
            await self._supervisor.stop()
        finally:
            self._counts.stop_listening()
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
            await self._stack.aclose()
            if self._queue is not None:
                await self._queue.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while every enabled worker runs and the model is available.

        DEGRADED after a worker failed, and while the endpoint of the model is unavailable.
        """
        if not self.config.enabled:
            return HealthCheckResult(component=self.name, message="disabled by ai_workers.enabled")
        result = HealthCheckResult(component=self.name, message="no workers run in this process")
        if self._supervisor.entries:
            result = await self._supervisor.health(timeout)
        if self._embedding is None:
            return result
        # Half of the timeout, so that the whole check returns in time.
        model = await check_embeddings_health(self._embedding, timeout / 2)
        if model.is_healthy():
            return result
        problem = f"embeddings: {model.error or model.message or model.status.value}"
        return replace(
            result,
            status=HealthStatus.DEGRADED if result.is_healthy() else result.status,
            message=f"{result.message}; {problem}",
            error=f"{result.error}; {problem}" if result.error else problem,
        )

    async def _start(self, _: ApplicationStarted) -> None:
        await self._supervisor.start()

    async def _resolve_workers(self) -> Sequence[WorkerProtocol]:
        assert self._container is not None
        return [await self._container.resolve(kind) for kind in self._select_worker_types()]

    def _select_worker_types(self) -> Sequence[type[WorkerProtocol]]:
        runs_maintenance = self.config.enable_maintenance and self.enable_scheduler
        return [
            kind for kind in self.worker_types if runs_maintenance or kind is not MaintenanceWorker
        ]

    def _on_worker_done(self, worker: WorkerProtocol, error: BaseException) -> None:
        """Log the failure of a worker; the supervisor restarts it."""
        logger.error("worker failed", worker=type(worker).__name__, exc_info=error)

    async def _register_handlers(self, container: BootContainerProtocol) -> None:
        """Register the job handlers with the pools of the application: they may serve all queues."""
        executor = await container.resolve_optional(TaskExecutorProtocol)
        if executor is None:
            return
        embedding = await container.resolve(BatchEmbeddingWorker)
        ingestion = await container.resolve(DocumentIngestionWorker)
        for name, handler in {**embedding.handlers, **ingestion.handlers}.items():
            executor.register_handler(name, handler)

    # --- factories ------------------------------------------------

    def _worker_factories(self) -> Mapping[type[WorkerProtocol], Callable[..., Any]]:
        """Factories of the built-in workers; other workers are created by their constructor."""
        return {
            BatchEmbeddingWorker: self._create_embedding_worker,
            DocumentIngestionWorker: self._create_ingestion_worker,
            MaintenanceWorker: self._create_maintenance_worker,
            DeadLetterQueueWorker: self._create_dead_letter_worker,
        }

    async def _open_vector_stores(
        self, locks: ResourceLockProtocol | None
    ) -> AsyncIterator[VectorStores]:
        stores = VectorStores(self.config.vectors, locks=locks)
        try:
            yield stores
        finally:
            await stores.close()

    async def _open_embeddings(self) -> AsyncIterator[EmbeddingProviderProtocol]:
        provider = await open_embeddings(self.config.embeddings)
        try:
            yield provider
        finally:
            await close_embeddings(provider)

    def _create_aged_cache(self, cache: CacheBackendProtocol | None) -> AgedCache:
        settings = self.config.embeddings
        return AgedCache(
            MemoryCache(max_entries=settings.cache_entries) if cache is None else cache,
            max_age=self.config.maintenance.cache_max_age_days * 24 * 3600,
            ttl=settings.cache_ttl,
        )

    def _create_embedding_cache(self, cache: AgedCache) -> EmbeddingCache:
        return EmbeddingCache(cache, ttl=self.config.embeddings.cache_ttl)

    def _get_queue(
        self, queue: TaskQueueProtocol | None, database: Database | None
    ) -> TaskQueueProtocol:
        if queue is not None:
            return queue
        if self._queue is None:
            self._queue = create_queue(None if self._is_stub else database)
        return self._queue

    def _create_embedding_worker(
        self,
        store: VectorStoreProtocol,
        provider: EmbeddingProviderProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: EmbeddingCache,
        hooks: HookRegistry | None,
        tracer: TracerProtocol,
        metrics: MetricsProtocol,
        make_worker: Annotated[TaskWorkerFactoryProtocol, Inject(WORKER_CLASS)],
    ) -> BatchEmbeddingWorker:
        settings = self.config.embeddings
        return BatchEmbeddingWorker(
            store,
            provider,
            self._get_queue(queue, database),
            concurrency=self.config.batch_embedding_concurrency,
            default_batch_size=settings.batch_size,
            cache=cache,
            hooks=hooks,
            tracer=tracer,
            metrics=metrics,
            task_worker_class=make_worker,
            max_batch_tokens=settings.max_batch_tokens,
            max_queue_depth=settings.max_queue_depth,
            when_full=settings.when_full,
            queue_wait=settings.queue_wait,
            timeout=self.config.job_timeout,
        )

    def _create_ingestion_worker(
        self,
        store: VectorStoreProtocol,
        provider: EmbeddingProviderProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: EmbeddingCache,
        hooks: HookRegistry | None,
        tracer: TracerProtocol,
        metrics: MetricsProtocol,
        make_worker: Annotated[TaskWorkerFactoryProtocol, Inject(WORKER_CLASS)],
        parser: UniversalDocumentParser | None,
        processes: ProcessPool,
    ) -> DocumentIngestionWorker:
        return DocumentIngestionWorker(
            store,
            self._get_queue(queue, database),
            concurrency=self.config.document_ingestion_concurrency,
            document_parser=parser,
            embedding_provider=provider,
            cache=cache,
            config=self.config.ingestion,
            hooks=hooks,
            tracer=tracer,
            metrics=metrics,
            task_worker_class=make_worker,
            processes=processes,
            timeout=self.config.job_timeout,
        )

    def _create_maintenance_worker(
        self,
        store: VectorStoreProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: AgedCache,
        hooks: HookRegistry | None,
        tracer: TracerProtocol,
        metrics: MetricsProtocol,
        provider: EmbeddingProviderProtocol,
        scheduler: Scheduler | None,
        callbacks: Callbacks | None,
    ) -> MaintenanceWorker:
        durable = not self._is_stub
        return create_maintenance_worker(
            self.config.maintenance,
            store,
            self._get_queue(queue, database),
            cache,
            self._counts,
            database=database if durable else None,
            scheduler=scheduler if durable else None,
            callbacks=callbacks if durable else None,
            hooks=hooks,
            tracer=tracer,
            metrics=metrics,
            embeddings=provider,
        )

    def _create_dead_letter_worker(
        self,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        jobs: Annotated[DLQProtocol, Named("jobs")] | None,
        bus: Annotated[DLQProtocol, Named("bus")] | None,
        tracer: TracerProtocol,
        metrics: MetricsProtocol,
    ) -> DeadLetterQueueWorker:
        return create_dead_letter_worker(
            self.config.dead_letters,
            self._get_queue(queue, database),
            jobs=jobs,
            bus=bus,
            database=None if self._is_stub else database,
            check_interval=self.config.dlq_check_interval,
            tracer=tracer,
            metrics=metrics,
        )


async def _open_process_pool() -> AsyncIterator[ProcessPool]:
    async with ProcessPool() as pool:
        yield pool


def _get_vector_store(stores: VectorStores) -> VectorStoreProtocol:
    return stores.at()


def _get_default_worker_class() -> Any:
    return TaskWorker
