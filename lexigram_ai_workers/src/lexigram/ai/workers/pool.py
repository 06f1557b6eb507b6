"""The pool of task workers of an AI worker, for one queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import anyio

from lexigram.ai.workers.errors import WorkerError
from lexigram.contracts.infra.tasks.protocols import (
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
    TaskWorkerProtocol,
)
from lexigram.tasks.config import PoolSettings
from lexigram.tasks.handlers import definition_of, job
from lexigram.tasks.worker import TaskWorker

_DRAIN_SECONDS = 20.0  # for running jobs at stop; less than the 30 s of the provider


class TaskPool:
    """Implements TaskWorkerProtocol with ``concurrency`` jobs at a time.

    The default is one TaskWorker for ``queue_name``. A class bound as ``"TaskWorkerClass"`` gets
    only id, queue and handlers, so ``concurrency`` instances are created. All ``handlers`` share
    the limit, also in other pools: further jobs wait.
    """

    def __init__(
        self,
        name: str,
        queue: TaskQueueProtocol,
        handlers: dict[str, Callable[..., Any]],
        *,
        concurrency: int,
        queue_name: str,
        make_worker: TaskWorkerFactoryProtocol | None = None,
    ) -> None:
        self.name = name
        self.concurrency = concurrency
        self._queue = queue
        self._slots = anyio.CapacityLimiter(concurrency)
        self.handlers = {key: self._limit_concurrency(handler) for key, handler in handlers.items()}
        self._settings = PoolSettings(
            concurrency=concurrency, queues=(queue_name,), drain_timeout=_DRAIN_SECONDS
        )
        self._make_worker = make_worker
        self.workers: list[TaskWorkerProtocol] = []

    async def start(self) -> None:
        """Start the workers; a second call while they run restarts failed ones."""
        if not self.workers:
            self.workers = self._create_workers()
        for worker in self.workers:
            await worker.start()

    async def stop(self) -> None:
        """Stop all workers concurrently, and wait for their running jobs."""
        workers, self.workers = self.workers, []
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(worker.stop)

    async def wait(self) -> None:
        """Wait until the pool ends; raise the error of a failed worker.

        Failures of a custom worker class cannot be detected: it counts as running.
        """
        watched = [worker for worker in self.workers if isinstance(worker, TaskWorker)]
        if not watched:
            await anyio.sleep_forever()
        for worker in watched:
            await worker.wait()
        if self.workers:  # not stopped by ``stop``
            raise WorkerError(f"the task workers of {self.name} ended unexpectedly")

    async def drain(self) -> int:
        """Run all pending jobs in the calling task; returns their number. For tests."""
        return await self._core_worker().drain()

    @property
    def is_alive(self) -> bool:
        """True while the pool runs."""
        return bool(self.workers) and all(
            not isinstance(worker, TaskWorker) or worker.is_alive for worker in self.workers
        )

    def _limit_concurrency(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        definition = definition_of(handler)

        @job(
            definition.name,
            queue=definition.queue,
            priority=definition.priority,
            max_retries=definition.max_retries,
            timeout=definition.timeout,
            max_deliveries=definition.max_deliveries,
            result_ttl=definition.result_ttl,
            retry=definition.retry,
        )
        @wraps(handler)
        async def run_limited(*args: Any, **kwargs: Any) -> Any:
            async with self._slots:
                return await handler(*args, **kwargs)

        return run_limited

    def _create_workers(self) -> list[TaskWorkerProtocol]:
        make = self._make_worker
        if make is None or make is TaskWorker:
            return [self._core_worker()]
        names = [f"{self.name}-{number}" for number in range(1, self.concurrency + 1)]
        return [make(name, self._queue, dict(self.handlers)) for name in names]

    def _core_worker(self) -> TaskWorker:
        return TaskWorker(self.name, self._queue, dict(self.handlers), self._settings)
