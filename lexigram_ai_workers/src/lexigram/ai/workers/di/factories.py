"""Create the maintenance worker and the dead-letter worker from the settings and services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.ai.workers.batch_embedding.worker import QUEUE_NAME as EMBEDDING_QUEUE
from lexigram.ai.workers.config import DeadLetterConfig, MaintenanceConfig
from lexigram.ai.workers.dlq.notifiers import LogNotifier, NotifierProtocol, WebhookNotifier
from lexigram.ai.workers.dlq.sources import (
    BUS,
    JOBS,
    BusDeadLetterSource,
    DeadLetterSource,
    JobDeadLetterSource,
)
from lexigram.ai.workers.dlq.store import DeadLetterStore, MemoryDeadLetterStore
from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
from lexigram.ai.workers.document_ingestion.worker import QUEUE_NAME as INGESTION_QUEUE
from lexigram.ai.workers.errors import WorkerSetupError
from lexigram.ai.workers.hooks import (
    WorkerJobCompletedHook,
    WorkerJobFailedHook,
    WorkerJobStartedHook,
)
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
from lexigram.ai.workers.types import MaintenanceTaskType
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import DLQProtocol, TaskQueueProtocol
from lexigram.contracts.infra.tasks.types import JobStatus
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.hooks import HookRegistry
from lexigram.tasks.dead_letters import JobDeadLetters
from lexigram.tasks.queue import InMemoryTaskQueue, SqlTaskQueue, TaskQueue

if TYPE_CHECKING:
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules
    from lexigram.schedule.callbacks import Callbacks
    from lexigram.schedule.scheduler import Scheduler
    from lexigram.sql.database import Database

QUEUES = {"embedding": EMBEDDING_QUEUE, "ingestion": INGESTION_QUEUE}
COUNTED_STATUSES = (JobStatus.PENDING, JobStatus.RETRYING, JobStatus.RUNNING, JobStatus.FAILED)
_KNOWN_SOURCES = (JOBS, BUS)


class JobCounts:
    """Counts started, completed and failed jobs of this process by type, using the worker hooks."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._hooks: HookRegistry | None = None

    def listen(self, hooks: HookRegistry | None) -> None:
        """Start counting."""
        self._hooks = hooks
        if hooks is not None:
            hooks.on(WorkerJobStartedHook, self._count_started)
            hooks.on(WorkerJobCompletedHook, self._count_completed)
            hooks.on(WorkerJobFailedHook, self._count_failed)

    def stop_listening(self) -> None:
        """Stop counting."""
        if self._hooks is not None:
            self._hooks.off(WorkerJobStartedHook, self._count_started)
            self._hooks.off(WorkerJobCompletedHook, self._count_completed)
            self._hooks.off(WorkerJobFailedHook, self._count_failed)
            self._hooks = None

    def __call__(self) -> Mapping[str, float]:
        """Return the counts."""
        return dict(self._counts)

    def _count_started(self, hook: WorkerJobStartedHook) -> None:
        self._counts[f"{hook.job_type}.started"] += 1

    def _count_completed(self, hook: WorkerJobCompletedHook) -> None:
        self._counts[f"{hook.job_type}.completed"] += 1

    def _count_failed(self, hook: WorkerJobFailedHook) -> None:
        self._counts[f"{hook.job_type}.failed"] += 1


def create_queue(database: Database | None) -> TaskQueue:
    """Create a task queue for an application without one."""
    return InMemoryTaskQueue() if database is None else SqlTaskQueue(database)


def create_dead_letter_worker(
    config: DeadLetterConfig,
    queue: TaskQueueProtocol,
    *,
    jobs: DLQProtocol | None,
    bus: DLQProtocol | None,
    database: Database | None,
    check_interval: float,
    tracer: TracerProtocol,
    metrics: MetricsProtocol,
) -> DeadLetterQueueWorker:
    """Create the dead-letter worker with the configured sources that the application has."""
    _check_sources(config.sources)
    if jobs is None and isinstance(queue, TaskQueue):
        jobs = JobDeadLetters(queue)
    sources: list[DeadLetterSource] = []
    if jobs is not None and JOBS in config.sources:
        sources.append(JobDeadLetterSource(jobs, queue))
    if bus is not None and BUS in config.sources:
        sources.append(BusDeadLetterSource(bus))
    notifiers: list[NotifierProtocol] = [LogNotifier()]
    if config.webhook:
        notifiers.append(WebhookNotifier(config.webhook, config.webhook_timeout))
    return DeadLetterQueueWorker(
        queue,
        check_interval=check_interval,
        max_retries=config.max_retries,
        base_backoff=config.base_backoff,
        sources=sources,
        store=_create_dead_letter_store(database),
        notifiers=notifiers,
        automatic=config.automatic,
        confirm=config.confirm,
        notify_timeout=config.notify_timeout,
        tracer=tracer,
        metrics=metrics,
    )


def create_maintenance_worker(
    config: MaintenanceConfig,
    store: VectorStoreProtocol,
    queue: TaskQueueProtocol,
    cache: AgedCache,
    jobs: JobCounts,
    *,
    database: Database | None,
    scheduler: Scheduler | None,
    callbacks: Callbacks | None,
    hooks: HookRegistry | None,
    tracer: TracerProtocol,
    metrics: MetricsProtocol,
    embeddings: EmbeddingProviderProtocol,
) -> MaintenanceWorker:
    """Create the maintenance worker with the scheduled built-in tasks."""

    async def waiting() -> Mapping[str, float]:
        return {
            f"{kind}.{status.value}": await queue.count(name, status)
            for kind, name in QUEUES.items()
            for status in COUNTED_STATUSES
        }

    async def queue_answers(timeout: float) -> HealthCheckResult:
        try:
            with anyio.fail_after(timeout):
                await queue.get_task_count()
        except (TaskQueueError, TimeoutError) as error:
            problem = str(error) or f"no response within {timeout:g} s"
            return HealthCheckResult("queue", HealthStatus.UNHEALTHY, problem)
        return HealthCheckResult("queue")

    worker = MaintenanceWorker(
        store,
        check_interval=config.check_interval,
        schedules=_create_schedules(scheduler, callbacks),
        cache=cache,
        counters={
            "jobs": jobs,
            "cache": lambda: {
                "hits": cache.hits,
                "misses": cache.misses,
                "stored": cache.stored,
            },
        },
        levels={"waiting": waiting},
        checks={
            "vector_store": store.health_check,
            "queue": queue_answers,
            "cache": cache.health_check,
            "embeddings": partial(check_embeddings_health, embeddings),
        },
        keep_statistics=config.keep_statistics_days * 24 * 3600,
        hooks=hooks,
        tracer=tracer,
        metrics=metrics,
        **_create_stores(database),
    )
    _register_built_ins(worker, config)
    return worker


async def check_embeddings_health(
    provider: EmbeddingProviderProtocol, timeout: float
) -> HealthCheckResult:
    """Run the health check of the provider; one without a health check is healthy."""
    check = getattr(provider, "health_check", None)
    if check is None:
        return HealthCheckResult("embeddings")
    try:
        with anyio.fail_after(timeout):
            result: HealthCheckResult = await check(timeout)
            return result
    except Exception as error:  # noqa: BLE001 - the boundary to a provider of the application
        why = (
            f"{type(error).__name__}: {error}"
            if str(error)
            else f"no response within {timeout:g} s"
        )
        return HealthCheckResult("embeddings", HealthStatus.UNHEALTHY, error=why)


def _register_built_ins(worker: MaintenanceWorker, config: MaintenanceConfig) -> None:
    async def optimize() -> object:
        return await worker.optimize_vector_indexes()

    async def clean_cache() -> object:
        return await worker.cleanup_old_embeddings_cache(config.cache_max_age_days)

    async def clean_documents() -> object:
        return await worker.cleanup_documents(dry_run=not config.delete_documents)

    for cron, kind, handler in (
        (config.index_optimization, MaintenanceTaskType.INDEX_OPTIMIZATION, optimize),
        (config.cache_cleanup, MaintenanceTaskType.CACHE_CLEANUP, clean_cache),
        (config.document_cleanup, MaintenanceTaskType.DOCUMENT_CLEANUP, clean_documents),
        (config.metrics_rollup, MaintenanceTaskType.METRICS_ROLLUP, worker.aggregate_metrics),
        (config.health_check, MaintenanceTaskType.HEALTH_CHECK, worker.check_health),
    ):
        if cron:
            worker.register_task(
                kind.value, kind, handler, schedule_cron=cron, timeout=config.timeout
            )


def _create_dead_letter_store(database: Database | None) -> DeadLetterStore:
    if database is None:
        return MemoryDeadLetterStore()
    from lexigram.ai.workers.dlq.store_sql import SqlDeadLetterStore

    return SqlDeadLetterStore(database)


def _create_stores(database: Database | None) -> dict[str, Any]:
    if database is None:
        return {}
    from lexigram.ai.workers.maintenance.store_sql import SqlRuns
    from lexigram.ai.workers.statistics_store import SqlStatistics

    return {"runs": SqlRuns(database), "statistics": SqlStatistics(database)}


def _create_schedules(
    scheduler: Scheduler | None, callbacks: Callbacks | None
) -> TaskSchedules | None:
    if scheduler is None or callbacks is None:
        return None
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules

    return TaskSchedules(scheduler, callbacks)


def _check_sources(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _KNOWN_SOURCES]
    if unknown:
        raise WorkerSetupError(
            f"unknown source in ai_workers.dead_letters.sources: {', '.join(unknown)}",
            details={"unknown": unknown},
            hint=f"use: {', '.join(_KNOWN_SOURCES)}",
        )
