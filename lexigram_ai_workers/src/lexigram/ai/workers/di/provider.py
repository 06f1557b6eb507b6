"""Registers the AI workers and what they need, keeps them running, and reports the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Self

import anyio

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.constants import CONFIG_SECTION
from lexigram.ai.workers.di.parts import (
    JobCounts,
    dead_letter_worker,
    maintenance_worker,
    own_queue,
)
from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.ai.workers.embeddings.choose import close_embeddings, open_embeddings
from lexigram.ai.workers.figures import IngestionFigures
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
from lexigram.ai.workers.supervision import Supervisor, WorkerProtocol
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.cache.memory import MemoryCache
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
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
from lexigram.di import Provider, ProviderPriority, unbound
from lexigram.di.markers import Inject, Named
from lexigram.events.lifecycle import ApplicationStarted
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql.database import Database
from lexigram.tasks.worker import TaskWorker

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from lexigram.tasks.queue import TaskQueue

logger = get_logger(__name__)

WORKER_CLASS = "TaskWorkerClass"
WORKERS_NAME = "ai_workers"  # of the TaskWorkerProtocol that stands for all of them

# In the order in which they start; they stop the other way round.
_WORKER_TYPES: tuple[type[WorkerProtocol], ...] = (
    BatchEmbeddingWorker,
    DocumentIngestionWorker,
    MaintenanceWorker,
    DeadLetterQueueWorker,
)


class WorkersProvider(Provider):
    """Binds the workers. An explicit configuration wins over section ``ai_workers``.

    Running workers are singletons: the one that is resolved is the one that runs. With
    ``background=False`` (a stub) there is a new one for each who asks, and nothing is started.
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
        background: bool = True,
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        # False: maintenance is not started; ``run_task_now`` works
        self.enable_scheduler = enable_scheduler
        self.worker_types = (*_WORKER_TYPES, *worker_types)
        self._background = background
        self._supervisor = Supervisor(self._load, on_death=self._on_worker_done)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._container: BootContainerProtocol | None = None
        self._events: EventBusProtocol | None = None
        # made when the application has no task queue
        self._queue: TaskQueue | None = None
        self._counts = JobCounts()

    @classmethod
    def from_config(cls, config: WorkersConfig, **context: Any) -> Self:
        """A provider with this configuration; ``context`` are further arguments."""
        return cls(config, **context)

    # --- life -----------------------------------------------------------------------------------

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind everything; what an application binds itself for a contract wins over ours."""
        config, enabled = self.config, self.config.enabled
        container.singleton(WorkersConfig, config)
        container.singleton(VectorStores, factory=self._vector_stores)
        container.singleton(VectorStoreProtocol, factory=_vector_store, when=unbound)
        container.singleton(EmbeddingProviderProtocol, factory=self._embeddings, when=unbound)
        container.singleton(AgedCache, factory=self._aged_cache)
        container.singleton(EmbeddingCache, factory=self._embedding_cache)
        container.singleton(IngestionFigures, IngestionFigures())
        container.singleton(WORKER_CLASS, factory=_default_worker_class, when=unbound)
        bind = container.singleton if self._background else container.transient
        for kind in self.worker_types:
            bind(kind, factory=self._factories().get(kind), when=enabled)
        container.singleton(Supervisor, self._supervisor, when=enabled)
        container.singleton(TaskWorkerProtocol, self._supervisor, name=WORKERS_NAME, when=enabled)
        container.singleton(
            TaskWorkerProtocol, self._supervisor, when=unbound if enabled else False
        )

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the workers; they start with the application, once all handlers are known."""
        self._container = container
        if not self.config.enabled:
            return
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._supervisor.open(self._tasks)
        if not self._background:
            return
        await self._lend_handlers(container)
        for kind in self._running_types():
            await container.resolve(kind)
        if self.may_work and self.run_worker is not False:
            self._counts.listen(await container.resolve_optional(HookRegistry))
            self._events = await container.resolve(EventBusProtocol)
            self._events.subscribe(ApplicationStarted, self._start)

    async def shutdown(self) -> None:
        """Stop the workers in reverse within 30 s; then whatever is left is cancelled."""
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
        """HEALTHY while every enabled worker runs, DEGRADED after a death."""
        if not self.config.enabled:
            return HealthCheckResult(component=self.name, message="disabled by ai_workers.enabled")
        if not self._supervisor.seats:
            return HealthCheckResult(component=self.name, message="workers do not run here")
        return await self._supervisor.health(timeout)

    async def _start(self, _: ApplicationStarted) -> None:
        await self._supervisor.start()

    async def _load(self) -> Sequence[WorkerProtocol]:
        assert self._container is not None
        return [await self._container.resolve(kind) for kind in self._running_types()]

    def _running_types(self) -> Sequence[type[WorkerProtocol]]:
        maintains = self.config.enable_maintenance and self.enable_scheduler
        return [kind for kind in self.worker_types if maintains or kind is not MaintenanceWorker]

    def _on_worker_done(self, worker: WorkerProtocol, error: BaseException) -> None:
        """A worker died; the supervisor starts it again."""
        logger.error("a worker died", worker=type(worker).__name__, exc_info=error)

    async def _lend_handlers(self, container: BootContainerProtocol) -> None:
        """Let the application's own pools do the jobs too: they may take from every queue."""
        executor = await container.resolve_optional(TaskExecutorProtocol)
        if executor is None:
            return
        embedding = await container.resolve(BatchEmbeddingWorker)
        ingestion = await container.resolve(DocumentIngestionWorker)
        for name, handler in {**embedding.handlers, **ingestion.handlers}.items():
            executor.register_handler(name, handler)

    # --- what is made when it is first asked for ------------------------------------------------

    def _factories(self) -> Mapping[type[WorkerProtocol], Callable[..., Any]]:
        """How ours are made; a user's worker is made by its constructor."""
        return {
            BatchEmbeddingWorker: self._embedding_worker,
            DocumentIngestionWorker: self._ingestion_worker,
            MaintenanceWorker: self._maintenance_worker,
            DeadLetterQueueWorker: self._dead_letter_worker,
        }

    async def _vector_stores(
        self, locks: ResourceLockProtocol | None
    ) -> AsyncIterator[VectorStores]:
        stores = VectorStores(self.config.vectors, locks=locks)
        try:
            yield stores
        finally:
            await stores.close()

    async def _embeddings(self) -> AsyncIterator[EmbeddingProviderProtocol]:
        provider = await open_embeddings(self.config.embeddings)
        try:
            yield provider
        finally:
            await close_embeddings(provider)

    def _aged_cache(self, cache: CacheBackendProtocol | None) -> AgedCache:
        settings = self.config.embeddings
        return AgedCache(
            MemoryCache(max_entries=settings.cache_entries) if cache is None else cache,
            max_age=self.config.maintenance.cache_max_age_days * 24 * 3600,
            ttl=settings.cache_ttl,
        )

    def _embedding_cache(self, cache: AgedCache) -> EmbeddingCache:
        return EmbeddingCache(cache, ttl=self.config.embeddings.cache_ttl)

    def _jobs(
        self, queue: TaskQueueProtocol | None, database: Database | None
    ) -> TaskQueueProtocol:
        if queue is not None:
            return queue
        if self._queue is None:
            self._queue = own_queue(database if self._background else None)
        return self._queue

    def _embedding_worker(
        self,
        store: VectorStoreProtocol,
        provider: EmbeddingProviderProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: EmbeddingCache,
        hooks: HookRegistry | None,
        make_worker: Annotated[TaskWorkerFactoryProtocol, Inject(WORKER_CLASS)],
    ) -> BatchEmbeddingWorker:
        settings = self.config.embeddings
        return BatchEmbeddingWorker(
            store,
            provider,
            self._jobs(queue, database),
            concurrency=self.config.batch_embedding_concurrency,
            default_batch_size=settings.batch_size,
            cache=cache,
            hooks=hooks,
            task_worker_class=make_worker,
            max_batch_tokens=settings.max_batch_tokens,
            max_queue_depth=settings.max_queue_depth,
            when_full=settings.when_full,
            queue_wait=settings.queue_wait,
        )

    def _ingestion_worker(
        self,
        store: VectorStoreProtocol,
        provider: EmbeddingProviderProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: EmbeddingCache,
        hooks: HookRegistry | None,
        make_worker: Annotated[TaskWorkerFactoryProtocol, Inject(WORKER_CLASS)],
        parser: UniversalDocumentParser | None,
    ) -> DocumentIngestionWorker:
        return DocumentIngestionWorker(
            store,
            self._jobs(queue, database),
            concurrency=self.config.document_ingestion_concurrency,
            document_parser=parser,
            embedding_provider=provider,
            cache=cache,
            config=self.config.ingestion,
            hooks=hooks,
            task_worker_class=make_worker,
        )

    def _maintenance_worker(
        self,
        store: VectorStoreProtocol,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        cache: AgedCache,
        hooks: HookRegistry | None,
        scheduler: Scheduler | None,
        callbacks: Callbacks | None,
    ) -> MaintenanceWorker:
        durable = self._background
        return maintenance_worker(
            self.config.maintenance,
            store,
            self._jobs(queue, database),
            cache,
            self._counts,
            database=database if durable else None,
            scheduler=scheduler if durable else None,
            callbacks=callbacks if durable else None,
            hooks=hooks,
        )

    def _dead_letter_worker(
        self,
        queue: TaskQueueProtocol | None,
        database: Database | None,
        jobs: Annotated[DLQProtocol, Named("jobs")] | None,
        bus: Annotated[DLQProtocol, Named("bus")] | None,
    ) -> DeadLetterQueueWorker:
        return dead_letter_worker(
            self.config.dead_letters,
            self._jobs(queue, database),
            jobs=jobs,
            bus=bus,
            database=database if self._background else None,
            check_interval=self.config.dlq_check_interval,
        )


def _vector_store(stores: VectorStores) -> VectorStoreProtocol:
    return stores.at()


def _default_worker_class() -> Any:
    return TaskWorker
