"""The task workers behind an AI worker: one pool on one queue, of the class the application chose."""

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

_DRAIN_SECONDS = 20.0  # for running jobs when the pool stops; the provider gives all 30


class TaskPool:
    """Implements TaskWorkerProtocol with ``concurrency`` jobs at a time.

    The default is one TaskWorker, which takes jobs of ``queue_name`` only. What is bound as
    ``"TaskWorkerClass"`` is told nothing but id, queue and handlers, so there are
    ``concurrency`` of them. ``handlers`` count together, also where pools of others call them:
    a job too many waits for its turn.
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
        self.handlers = {key: self._limited(handler) for key, handler in handlers.items()}
        self._settings = PoolSettings(
            concurrency=concurrency, queues=(queue_name,), drain_timeout=_DRAIN_SECONDS
        )
        self._make_worker = make_worker
        self.workers: list[TaskWorkerProtocol] = []

    async def start(self) -> None:
        """Begin to take jobs; a second call while it runs starts what died."""
        if not self.workers:
            self.workers = self._made()
        for worker in self.workers:
            await worker.start()

    async def stop(self) -> None:
        """Take no more jobs and wait for the running ones, all workers side by side."""
        workers, self.workers = self.workers, []
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(worker.stop)

    async def wait(self) -> None:
        """Return when it was stopped; raise what a worker died of.

        A class of the application's own cannot say when it dies: it counts as running.
        """
        watched = [worker for worker in self.workers if isinstance(worker, TaskWorker)]
        if not watched:
            await anyio.sleep_forever()
        for worker in watched:
            await worker.wait()
        if self.workers:  # not by ``stop``
            raise WorkerError(f"the task workers of {self.name} ended by themselves")

    async def drain(self) -> int:
        """Do every job that can be done now, in the calling task; how many ended. For tests."""
        return await self._core_worker().drain()

    @property
    def is_alive(self) -> bool:
        """True while it takes jobs."""
        return bool(self.workers) and all(
            not isinstance(worker, TaskWorker) or worker.is_alive for worker in self.workers
        )

    def _limited(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        declared = definition_of(handler)

        @job(
            declared.name,
            queue=declared.queue,
            priority=declared.priority,
            max_retries=declared.max_retries,
            timeout=declared.timeout,
            max_deliveries=declared.max_deliveries,
            result_ttl=declared.result_ttl,
            retry=declared.retry,
        )
        @wraps(handler)
        async def in_turn(*args: Any, **kwargs: Any) -> Any:
            async with self._slots:
                return await handler(*args, **kwargs)

        return in_turn

    def _made(self) -> list[TaskWorkerProtocol]:
        make = self._make_worker
        if make is None or make is TaskWorker:
            return [self._core_worker()]
        names = [f"{self.name}-{number}" for number in range(1, self.concurrency + 1)]
        return [make(name, self._queue, dict(self.handlers)) for name in names]

    def _core_worker(self) -> TaskWorker:
        return TaskWorker(self.name, self._queue, dict(self.handlers), self._settings)
