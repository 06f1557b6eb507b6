"""All pools of workers of a process, as its settings want them."""

from __future__ import annotations

import anyio

from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.protocols import (
    TaskWorkerFactoryProtocol,
    TaskWorkerProtocol,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.tasks.config import PoolSettings, TasksConfig
from lexigram.tasks.executor import TaskExecutor
from lexigram.tasks.progress import ProgressTracker
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.worker import TaskWorker


class WorkerPools:
    """Implements TaskWorkerProtocol for the whole process.

    What is bound as ``"TaskWorkerClass"`` makes the workers. The default is one TaskWorker per
    pool, which does ``concurrency`` jobs at a time; a class of your own is told nothing but
    id, queue and handlers, so there are ``concurrency`` of them.
    """

    def __init__(
        self,
        config: TasksConfig,
        make_worker: TaskWorkerFactoryProtocol,
        queue: TaskQueue,
        executor: TaskExecutor,
        progress: ProgressTracker,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
        tracer: TracerProtocol | None = None,
    ) -> None:
        self._config = config
        self._make_worker = make_worker
        self._queue = queue
        self._executor = executor
        self._progress = progress
        self._metrics = metrics
        self._events = events
        self._tracer = tracer
        self.workers: dict[str, TaskWorkerProtocol] = {}

    async def start(self) -> None:
        """Start every pool; a second call while they run does nothing."""
        if not self.workers:
            for name, settings in self._config.pools.items():
                self.workers |= self._made(name, settings)
        for worker in self.workers.values():
            await worker.start()

    async def stop(self) -> None:
        """Stop all side by side; each waits for its running jobs."""
        workers, self.workers = self.workers, {}
        async with anyio.create_task_group() as tasks:
            for worker in workers.values():
                tasks.start_soon(worker.stop)

    async def drain(self) -> int:
        """Do every job that can be done now, in the calling task; how many ended. For tests."""
        return await self.default_worker("drain", PoolSettings()).drain()

    def default_worker(self, name: str, settings: PoolSettings) -> TaskWorker:
        """A TaskWorker on the queue of the application, not started."""
        return TaskWorker(
            name,
            self._queue,
            dict_of(self._executor),
            settings,
            progress=self._progress,
            metrics=self._metrics,
            events=self._events,
            tracer=self._tracer,
        )

    @property
    def is_durable(self) -> bool:
        """True when other processes can work on the jobs too."""
        return self._queue.store.is_durable

    @property
    def dead(self) -> list[str]:
        """Workers that ended against their will."""
        return [
            name
            for name, worker in self.workers.items()
            if isinstance(worker, TaskWorker) and not worker.is_alive
        ]

    def _made(self, name: str, settings: PoolSettings) -> dict[str, TaskWorkerProtocol]:
        if self._make_worker is TaskWorker:
            return {name: self.default_worker(name, settings)}
        handlers = dict_of(self._executor)
        names = [f"{name}-{number}" for number in range(1, settings.concurrency + 1)]
        return {item: self._make_worker(item, self._queue, handlers) for item in names}


def dict_of(executor: TaskExecutor) -> dict[str, object]:
    """The handlers themselves, not a copy: those registered later count too."""
    handlers: dict[str, object] = executor.handlers  # type: ignore[assignment]
    return handlers
