"""Registers the job queue and all around it, and runs the workers of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup
from attrs import evolve

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import (
    DLQProtocol,
    IdempotencyManagerProtocol,
    JobControlProtocol,
    JobLeasingProtocol,
    ProgressTrackerProtocol,
    TaskExecutorProtocol,
    TaskManagerProtocol,
    TaskQueueProtocol,
    TaskWorkerProtocol,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
from lexigram.di import Provider, ProviderPriority, unbound
from lexigram.events.lifecycle import ApplicationStarted
from lexigram.observability import get_logger
from lexigram.sql.database import Database
from lexigram.tasks._pools import WorkerPools
from lexigram.tasks.config import PoolSettings, TasksConfig
from lexigram.tasks.context import JobContext, current_job
from lexigram.tasks.dead_letters import JobDeadLetters
from lexigram.tasks.executor import TaskExecutor
from lexigram.tasks.handlers import JobDefinition, context_names, definition_of
from lexigram.tasks.idempotency import IdempotencyManager, MemorySubmissions, SubmissionStore
from lexigram.tasks.jobs import Jobs
from lexigram.tasks.manager import TaskManager
from lexigram.tasks.progress import MemoryProgress, ProgressStore, ProgressTracker
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.store import JobStore
from lexigram.tasks.store_memory import MemoryStore
from lexigram.tasks.store_side import SqlProgress, SqlSubmissions
from lexigram.tasks.store_sql import SqlStore
from lexigram.tasks.worker import TaskWorker

logger = get_logger(__name__)

T = TypeVar("T")

WORKER_CLASS = "TaskWorkerClass"
_PURGE_SECONDS = 3600.0


class TasksProvider(Provider):
    """Binds ``Jobs``, ``TaskQueue`` and the contracts; workers start with the application."""

    name = "tasks"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = "tasks"
    config_model = TasksConfig
    # the second: a store of others, such as jobs over the bus
    optional_dependencies = ("sql", "queue_jobs")

    config: TasksConfig

    def __init__(self, config: TasksConfig | None = None, handlers: Sequence[Any] = ()) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        # Pools to run instead of those of the configuration, whatever it says of ``workers``.
        self.pools: Mapping[str, PoolSettings] | None = None
        self._handlers = handlers
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._events: EventBusProtocol | None = None
        self._queue: TaskQueue | None = None
        self._executor = TaskExecutor()
        self._manager = TaskManager()
        self._pools: WorkerPools | None = None
        self._idempotency: IdempotencyManager | None = None
        self._progress: ProgressTracker | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind everything; what an application binds itself for a contract wins over ours."""
        container.singleton(TasksConfig, self.config)
        container.singleton(TasksProvider, self)
        container.singleton(TaskExecutor, self._executor)
        container.singleton(TaskManager, self._manager)
        container.singleton(TaskQueue, factory=self._make_queue)
        container.singleton(ProgressTracker, factory=self._make_progress)
        container.singleton(IdempotencyManager, factory=self._make_idempotency)
        container.singleton(JobDeadLetters)
        container.singleton(Jobs)
        container.singleton(WorkerPools, factory=self._make_pools)
        container.singleton(WORKER_CLASS, factory=_default_worker_class, when=unbound)
        container.singleton(TaskQueueProtocol, factory=_queue, when=unbound)
        container.singleton(JobControlProtocol, factory=_control, when=unbound)
        container.singleton(JobLeasingProtocol, factory=_leasing, when=unbound)
        container.singleton(TaskExecutorProtocol, self._executor, when=unbound)
        container.singleton(TaskManagerProtocol, self._manager, when=unbound)
        container.singleton(DLQProtocol, factory=_dead_letters, when=unbound)
        container.singleton(DLQProtocol, factory=_dead_letters, name="jobs")
        container.singleton(IdempotencyManagerProtocol, factory=_idempotency, when=unbound)
        container.singleton(ProgressTrackerProtocol, factory=_progress, when=unbound)
        container.singleton(TaskWorkerProtocol, factory=_pools, when=unbound)
        container.transient(JobContext, factory=current_job)
        check_handlers(container, self._handlers)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the queue; workers wait for the application, so that all handlers are known."""
        self._queue = await container.resolve(TaskQueue)
        self._pools = await container.resolve(WorkerPools)
        self._progress = await container.resolve(ProgressTracker)
        self._idempotency = await container.resolve(IdempotencyManager)
        self._events = await container.resolve(EventBusProtocol)
        self.handle(self._handlers, container)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        if (self.config.workers or self.pools is not None) and self.background_enabled:
            self._events.subscribe(ApplicationStarted, self._start)

    def handle(self, handlers: Sequence[Any], container: Any) -> None:
        """Take handlers of a module; their services are what that module sees."""
        self._executor.add(*handlers, services=container)

    async def shutdown(self) -> None:
        """Let running jobs end, hand back the rest."""
        if self._events is not None:
            self._events.unsubscribe(ApplicationStarted, self._start)
        if self._pools is not None:
            await self._pools.stop()
        await self._manager.shutdown(timeout=10.0)
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stack.aclose()
        if self._queue is not None:
            await self._queue.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """UNHEALTHY when the queue does not answer or a pool has failed; DEGRADED after a restart."""
        problem, waiting = await self._ask_queue(timeout)
        pools = self._pools
        failed = {} if pools is None else pools.failed
        restarted = {} if pools is None else pools.restarted
        status = HealthStatus.UNHEALTHY if problem or failed else HealthStatus.HEALTHY
        if restarted and status is HealthStatus.HEALTHY:
            status = HealthStatus.DEGRADED
        if problem is None and (failed or restarted):
            reasons = sorted(f"{name} ({text})" for name, text in {**restarted, **failed}.items())
            problem = f"worker pools that failed: {', '.join(reasons)}"
        working = "works here" if pools is not None and pools.workers else "does not work here"
        return HealthCheckResult(
            component=self.name,
            status=status,
            message=problem or f"{waiting} jobs wait; {working}",
            error=problem,
            details={"waiting": waiting, "workers": sorted(pools.workers) if pools else []},
        )

    async def _ask_queue(self, timeout: float) -> tuple[str | None, int]:
        assert self._queue is not None
        try:
            with anyio.fail_after(timeout):
                return None, await self._queue.get_task_count()
        except (TaskQueueError, TimeoutError) as error:
            return str(error) or f"the queue gave no answer within {timeout:g} s", 0

    async def _start(self, _: ApplicationStarted) -> None:
        assert self._pools is not None
        assert self._tasks is not None
        await self._pools.start()
        self._tasks.start_soon(self._pools.keep_alive)
        if self.config.retention is not None:
            self._tasks.start_soon(self._forget_old, self.config.retention)

    async def _forget_old(self, retention: float) -> None:
        assert self._queue is not None
        assert self._progress is not None
        assert self._idempotency is not None
        while True:
            for purge in (self._queue.purge, self._progress.purge, self._idempotency.purge):
                try:
                    await purge(retention)
                except TaskQueueError as error:
                    logger.warning("old jobs were not purged; next try later", error=str(error))
            await anyio.sleep(min(_PURGE_SECONDS, retention))

    # --- what is made when it is first asked for ------------------------------------------------

    def _make_queue(
        self,
        database: Database | None,
        bound: JobStore | None,
        metrics: MetricsProtocol,
        events: EventBusProtocol,
        tracer: TracerProtocol,
    ) -> TaskQueue:
        return TaskQueue(
            self._choose_store(bound) or self._store(self._database(database)),
            result_ttl=self.config.result_ttl,
            declared=self._executor.declared,
            metrics=metrics,
            events=events,
            tracer=_recording(tracer),
        )

    def _store(self, database: Database | None) -> JobStore:
        if database is None:
            return MemoryStore(poll=self.config.poll)
        return SqlStore(database, poll=self.config.poll)

    def _make_progress(
        self, database: Database | None, bound: ProgressStore | None, queue: TaskQueue
    ) -> ProgressTracker:
        taken = self._choose_store(bound)
        if taken is not None:
            return ProgressTracker(taken, queue)
        chosen = self._database(database)
        store = (
            MemoryProgress(poll=self.config.poll)
            if chosen is None
            else SqlProgress(chosen, poll=self.config.poll)
        )
        return ProgressTracker(store, queue)

    def _make_idempotency(
        self, database: Database | None, bound: SubmissionStore | None
    ) -> IdempotencyManager:
        taken = self._choose_store(bound)
        if taken is not None:
            return IdempotencyManager(taken)
        chosen = self._database(database)
        return IdempotencyManager(MemorySubmissions() if chosen is None else SqlSubmissions(chosen))

    def _make_pools(
        self,
        queue: TaskQueue,
        progress: ProgressTracker,
        metrics: MetricsProtocol,
        events: EventBusProtocol,
        tracer: TracerProtocol,
        container: BootContainerProtocol,
    ) -> WorkerPools:
        worker_class = container.get(WORKER_CLASS)
        config = self.config if self.pools is None else evolve(self.config, pools=self.pools)
        return WorkerPools(
            config,
            worker_class,
            queue,
            self._executor,
            progress,
            metrics,
            events,
            _recording(tracer),
        )

    def _choose_store(self, bound: T | None) -> T | None:
        """The bound store, unless the configuration names another."""
        return bound if self.config.backend == "auto" else None

    def _database(self, database: Database | None) -> Database | None:
        if self.config.backend == "memory":
            return None
        if self.config.backend == "sql" and database is None:
            raise ConfigurationError(
                "tasks.backend is sql, but the application has no database",
                hint="add SqlModule.configure(...), or take backend memory",
            )
        return database


class JobHandlersProvider(Provider):
    """Brings the handlers of a feature; they see what the importing module sees."""

    priority = ProviderPriority.NORMAL
    dependencies = ("tasks",)

    def __init__(self, handlers: Sequence[Any]) -> None:
        places = [_place(definition_of(handler)) for handler in handlers]
        super().__init__(name=f"jobs {', '.join(places)}")
        self._handlers = handlers

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Have the handlers checked with the graph."""
        check_handlers(container, self._handlers)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Give the handlers to the one registry."""
        provider = await container.resolve(TasksProvider)
        provider.handle(self._handlers, container)


def check_handlers(container: ContainerRegistrarProtocol, handlers: Sequence[Any]) -> None:
    """Have the services of job handlers checked when the graph is frozen."""
    for definition in map(definition_of, handlers):
        function = definition.function
        given, role = context_names(function), f"job {definition.name!r}"
        container.check_entry(function, given=given, arguments=True, role=role)


def _place(definition: JobDefinition) -> str:
    function = definition.function
    return f"{function.__module__}.{getattr(function, '__qualname__', definition.name)}"


def _recording(tracer: TracerProtocol) -> TracerProtocol | None:
    """None for the tracer that does nothing: then nobody asks it per job."""
    return None if isinstance(tracer, NoOpTracer) else tracer


def _default_worker_class() -> Any:
    return TaskWorker


def _queue(queue: TaskQueue) -> TaskQueueProtocol:
    return queue


def _control(queue: TaskQueue) -> JobControlProtocol:
    return queue


def _leasing(queue: TaskQueue) -> JobLeasingProtocol:
    return queue


def _dead_letters(queue: JobDeadLetters) -> DLQProtocol:
    return queue


def _idempotency(manager: IdempotencyManager) -> IdempotencyManagerProtocol:
    return manager


def _progress(tracker: ProgressTracker) -> ProgressTrackerProtocol:
    return tracker


def _pools(pools: WorkerPools) -> TaskWorkerProtocol:
    return pools
