"""Puts the maintenance worker and the dead letter worker together from what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.ai.workers.batch_embedding.worker import QUEUE_NAME as EMBEDDING_QUEUE
from lexigram.ai.workers.config import DeadLetterConfig, MaintenanceConfig
from lexigram.ai.workers.dlq.notices import LogNotifier, NotifierProtocol, WebhookNotifier
from lexigram.ai.workers.dlq.sources import BUS, JOBS, BusLetters, JobLetters, LetterSource
from lexigram.ai.workers.dlq.store import LetterStore, MemoryLetters
from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
from lexigram.ai.workers.document_ingestion.worker import QUEUE_NAME as INGESTION_QUEUE
from lexigram.ai.workers.errors import WorkerSetupError
from lexigram.ai.workers.hooks import WorkerJobCompletedHook, WorkerJobStartedHook
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
from lexigram.ai.workers.types import MaintenanceTaskType
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import DLQProtocol, TaskQueueProtocol
from lexigram.contracts.infra.tasks.types import JobStatus
from lexigram.hooks import HookRegistry
from lexigram.tasks.dead_letters import JobDeadLetters
from lexigram.tasks.queue import InMemoryTaskQueue, SqlTaskQueue, TaskQueue

if TYPE_CHECKING:
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules
    from lexigram.schedule.callbacks import Callbacks
    from lexigram.schedule.scheduler import Scheduler
    from lexigram.sql.database import Database

QUEUES = {"embedding": EMBEDDING_QUEUE, "ingestion": INGESTION_QUEUE}
LEVELS = (JobStatus.PENDING, JobStatus.RETRYING, JobStatus.RUNNING, JobStatus.FAILED)
_KNOWN_SOURCES = (JOBS, BUS)


class JobCounts:
    """How many jobs of each kind this process began and did, by the hooks of the workers."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._hooks: HookRegistry | None = None

    def listen(self, hooks: HookRegistry | None) -> None:
        """Count from now on."""
        self._hooks = hooks
        if hooks is not None:
            hooks.on(WorkerJobStartedHook, self._started)
            hooks.on(WorkerJobCompletedHook, self._completed)

    def stop_listening(self) -> None:
        """Count no more."""
        if self._hooks is not None:
            self._hooks.off(WorkerJobStartedHook, self._started)
            self._hooks.off(WorkerJobCompletedHook, self._completed)
            self._hooks = None

    def __call__(self) -> Mapping[str, float]:
        """The counts so far."""
        return dict(self._counts)

    def _started(self, told: WorkerJobStartedHook) -> None:
        self._counts[f"{told.job_type}.started"] += 1

    def _completed(self, told: WorkerJobCompletedHook) -> None:
        self._counts[f"{told.job_type}.completed"] += 1


def own_queue(database: Database | None) -> TaskQueue:
    """A queue for an application that has none."""
    return InMemoryTaskQueue() if database is None else SqlTaskQueue(database)


def dead_letter_worker(
    config: DeadLetterConfig,
    queue: TaskQueueProtocol,
    *,
    jobs: DLQProtocol | None,
    bus: DLQProtocol | None,
    database: Database | None,
    check_interval: float,
) -> DeadLetterQueueWorker:
    """With the letters of jobs and bus, as far as there are such and they are wanted."""
    _check_sources(config.sources)
    if jobs is None and isinstance(queue, TaskQueue):
        jobs = JobDeadLetters(queue)
    sources: list[LetterSource] = []
    if jobs is not None and JOBS in config.sources:
        sources.append(JobLetters(jobs, queue))
    if bus is not None and BUS in config.sources:
        sources.append(BusLetters(bus))
    notifiers: list[NotifierProtocol] = [LogNotifier()]
    if config.webhook:
        notifiers.append(WebhookNotifier(config.webhook, config.webhook_timeout))
    return DeadLetterQueueWorker(
        queue,
        check_interval=check_interval,
        max_retries=config.max_retries,
        base_backoff=config.base_backoff,
        sources=sources,
        store=_letters(database),
        notifiers=notifiers,
        automatic=config.automatic,
        confirm=config.confirm,
    )


def maintenance_worker(
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
) -> MaintenanceWorker:
    """With the built-in tasks that the settings name a time for."""

    async def waiting() -> Mapping[str, float]:
        return {
            f"{kind}.{status.value}": await queue.count(name, status)
            for kind, name in QUEUES.items()
            for status in LEVELS
        }

    async def queue_answers(timeout: float) -> HealthCheckResult:
        try:
            with anyio.fail_after(timeout):
                await queue.get_task_count()
        except (TaskQueueError, TimeoutError) as error:
            told = str(error) or f"no answer within {timeout:g} s"
            return HealthCheckResult("queue", HealthStatus.UNHEALTHY, told)
        return HealthCheckResult("queue")

    worker = MaintenanceWorker(
        store,
        check_interval=config.check_interval,
        schedules=_schedules(scheduler, callbacks),
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
        },
        keep_figures=config.keep_figures_days * 24 * 3600,
        hooks=hooks,
        **_stores(database),
    )
    _register_built_ins(worker, config)
    return worker


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


def _letters(database: Database | None) -> LetterStore:
    if database is None:
        return MemoryLetters()
    from lexigram.ai.workers.dlq.store_sql import SqlLetters

    return SqlLetters(database)


def _stores(database: Database | None) -> dict[str, Any]:
    if database is None:
        return {}
    from lexigram.ai.workers.maintenance.store_sql import SqlRuns
    from lexigram.ai.workers.store_figures import Figures

    return {"runs": SqlRuns(database), "figures": Figures(database)}


def _schedules(scheduler: Scheduler | None, callbacks: Callbacks | None) -> TaskSchedules | None:
    if scheduler is None or callbacks is None:
        return None
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules

    return TaskSchedules(scheduler, callbacks)


def _check_sources(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _KNOWN_SOURCES]
    if unknown:
        raise WorkerSetupError(
            f"ai_workers.dead_letters.sources names {', '.join(unknown)}",
            details={"unknown": unknown},
            hint=f"there are: {', '.join(_KNOWN_SOURCES)}",
        )
