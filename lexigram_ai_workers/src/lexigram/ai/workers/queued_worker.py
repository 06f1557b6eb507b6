"""Base class of workers with one type of jobs on a task queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

from lexigram.ai.workers.errors import WorkerError
from lexigram.ai.workers.pool import TaskPool
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks.protocols import (
    JobControlProtocol,
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
)
from lexigram.contracts.infra.tasks.types import JobResult, JobStatus
from lexigram.tasks.context import ambient_job
from lexigram.tasks.handlers import JobRetry, definition_of

MAX_RESULTS = 1000  # stored here for queues without results

R = TypeVar("R")


class QueuedWorker(ABC, Generic[R]):
    """A pool for the jobs of one handler, with their results."""

    # part of the component name in health checks
    kind: str

    def __init__(
        self,
        queue: TaskQueueProtocol,
        worker_id: str,
        concurrency: int,
        retry: JobRetry,
        *,
        telemetry: Telemetry,
        task_worker_class: TaskWorkerFactoryProtocol | None,
        timeout: float | None,
    ) -> None:
        self.queue = queue
        self.worker_id = worker_id
        self.concurrency = concurrency
        # timeout of one attempt at a job, in seconds
        self.timeout = timeout
        self._telemetry = telemetry
        # results of this process, for queues without results
        self._results: OrderedDict[str, R] = OrderedDict()
        handler = self._handler(retry)
        self._job = definition_of(handler)
        self._pool = TaskPool(
            worker_id,
            queue,
            {self._job.name: handler},
            concurrency=concurrency,
            queue_name=self._job.queue,
            make_worker=task_worker_class,
        )

    # --- lifecycle -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the pool; a second call while it runs does nothing."""
        await self._pool.start()

    async def stop(self) -> None:
        """Stop the pool: wait for running jobs, then release unfinished ones."""
        await self._pool.stop()

    async def wait(self) -> None:
        """Wait until the pool ends; raise the error that ended it."""
        await self._pool.wait()

    async def drain(self) -> int:
        """Run all pending jobs without ``start``; returns their number. For tests."""
        return await self._pool.drain()

    @property
    def is_alive(self) -> bool:
        """True while the pool runs."""
        return self._pool.is_alive

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """The job handlers by job name, for other pools.

        All handlers together run ``concurrency`` jobs at a time.
        """
        return self._pool.handlers

    # --- for callers ----------------------------------------------------------------------------

    async def get_result(self, job_id: str) -> R | None:
        """Return the result of a job; None while it runs, or for an unknown or expired job."""
        if isinstance(self.queue, JobControlProtocol):
            job_result = await self.queue.get_result(job_id)
            return None if job_result is None else self._build_result(job_result)
        return self._results.get(job_id)

    def get_stats(self) -> dict[str, Any]:
        """Return the statistics of this worker in this process."""
        alive = self.is_alive
        return {
            "worker_id": self.worker_id,
            "running": alive,
            "concurrency": self.concurrency,
            "active_workers": self.concurrency if alive else 0,
        }

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while the pool runs."""
        alive = self.is_alive
        return HealthCheckResult(
            component=f"worker.{self.kind}.{self.worker_id}",
            status=HealthStatus.HEALTHY if alive else HealthStatus.UNHEALTHY,
            message="running" if alive else "not running: not started, stopped or failed",
            details=self.get_stats(),
        )

    # --- implemented by subclasses -----------------------------------------------------------------

    @abstractmethod
    def _handler(self, retry: JobRetry) -> Callable[..., Any]:
        """Return the job handler, a function with ``@job``. Called by the constructor."""

    @abstractmethod
    def _parse_result(self, data: Mapping[str, Any]) -> R:
        """Parse the stored result of the handler."""

    @abstractmethod
    def _result_without_value(self, job_result: JobResult) -> R:
        """Build the result of a job without a result value: it failed, or the value expired."""

    # --- internals ---------------------------------------------------------------------------------

    async def _enqueue(
        self, arguments: Mapping[str, Any], priority: int, refusal: type[WorkerError], what: str
    ) -> str:
        """Enqueue a job and return its id."""
        job_id = uuid4().hex
        accepted = await self.queue.enqueue(
            {
                "id": job_id,
                "name": self._job.name,
                "args": (),
                "kwargs": {**arguments, "job_id": job_id},
                "priority": priority,
                "queue": self._job.queue,
                **({} if self.timeout is None else {"timeout": self.timeout}),
            }
        )
        if isinstance(accepted, Err):
            error = accepted.unwrap_err()
            raise refusal(
                f"Failed to enqueue {what} job: {error.message}",
                details=error.details,
                hint=error.hint,
                cause=error,
            )
        return job_id

    def _store_result(self, job_id: str, result: R) -> None:
        if isinstance(self.queue, JobControlProtocol):
            return
        self._results[job_id] = result
        while len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def _build_result(self, job_result: JobResult) -> R | None:
        if not job_result.status.is_final:
            return None
        value = job_result.value
        if job_result.status is JobStatus.COMPLETED and isinstance(value, Mapping):
            return self._parse_result(cast("Mapping[str, Any]", value))
        return self._result_without_value(job_result)


def current_job_id(job_id: str | None) -> str:
    """Return the id of the current job; a new id if a handler is called without a queue."""
    context = ambient_job()
    return job_id or (context.job.id if context is not None else uuid4().hex)
