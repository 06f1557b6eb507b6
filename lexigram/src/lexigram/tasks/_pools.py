"""All pools of workers of a process, as its settings want them."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio

from lexigram.concurrency import TaskSupervisor
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.tasks.protocols import (
    TaskWorkerFactoryProtocol,
    TaskWorkerProtocol,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.leasing import Backoff
from lexigram.sql.errors import is_file_lost
from lexigram.tasks.config import PoolSettings, TasksConfig
from lexigram.tasks.executor import TaskExecutor
from lexigram.tasks.progress import ProgressTracker
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.worker import TaskWorker

RESTART = Backoff(first=0.5, cap=60.0)


class WorkerPools:
    """Implements TaskWorkerProtocol for the whole process.

    What is bound as ``"TaskWorkerClass"`` makes the workers. The default is one TaskWorker per
    pool, which does ``concurrency`` jobs at a time; a class of your own is given nothing but
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
        # the task whose group the supervised tasks are in
        self._host: asyncio.Task[Any] | None = None
        self._supervisor = TaskSupervisor(
            "the task queue", delay=RESTART.delay, host=lambda: self._host, is_final=is_file_lost
        )

    async def start(self) -> None:
        """Start every pool; a second call while they run does nothing."""
        if not self.workers:
            for name, settings in self._config.pools.items():
                self.workers |= self._make_workers(name, settings)
        for worker in self.workers.values():
            await worker.start()

    async def stop(self) -> None:
        """Stop all side by side; each waits for its running jobs."""
        workers, self.workers = self.workers, {}
        async with anyio.create_task_group() as tasks:
            for worker in workers.values():
                tasks.start_soon(worker.stop)

    async def keep_alive(self) -> None:
        """Restart pools that fail, later after every failure in a row; ends when all are stopped.

        One whose database file was deleted or replaced is not: the process must be restarted.
        """
        self._host = asyncio.current_task()
        async with anyio.create_task_group() as tasks:
            for name, worker in self.workers.items():
                if isinstance(worker, TaskWorker):
                    tasks.start_soon(self._keep_running, name, worker)

    async def _keep_running(self, name: str, worker: TaskWorker) -> None:
        try:
            await self._supervisor.run(name, self._run, name, worker)
        except Exception as error:
            if not is_file_lost(error):  # the worker has logged it, and health shows it
                raise

    async def _run(self, name: str, worker: TaskWorker) -> None:
        if self.workers.get(name) is worker:  # else all were stopped
            await worker.start()
            if self.workers.get(name) is not worker:  # meanwhile
                await worker.stop()
            await worker.wait()

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
    def failed(self) -> dict[str, str]:
        """Workers that failed, and have not been restarted, with the error."""
        return {
            name: f"{type(worker.failure).__name__}: {worker.failure}"
            if worker.failure
            else "stopped"
            for name, worker in self.workers.items()
            if isinstance(worker, TaskWorker) and not worker.is_alive
        }

    @property
    def restarted(self) -> dict[str, str]:
        """Workers that failed within the last minute and were restarted, with the error."""
        return self._supervisor.failed

    def _make_workers(self, name: str, settings: PoolSettings) -> dict[str, TaskWorkerProtocol]:
        if self._make_worker is TaskWorker:
            return {name: self.default_worker(name, settings)}
        handlers = dict_of(self._executor)
        names = [f"{name}-{number}" for number in range(1, settings.concurrency + 1)]
        return {item: self._make_worker(item, self._queue, handlers) for item in names}


def dict_of(executor: TaskExecutor) -> dict[str, object]:
    """The handlers themselves, not a copy: those registered later count too."""
    handlers: dict[str, object] = executor.handlers  # type: ignore[assignment]
    return handlers
