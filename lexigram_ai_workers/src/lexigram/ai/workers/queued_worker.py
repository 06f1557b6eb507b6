"""What workers have in common that take jobs of one kind from a task queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

from lexigram.ai.workers.announcer import Announcer
from lexigram.ai.workers.errors import WorkerError
from lexigram.ai.workers.pool import TaskPool
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks.protocols import (
    JobControlProtocol,
    TaskQueueProtocol,
    TaskWorkerFactoryProtocol,
)
from lexigram.contracts.infra.tasks.types import JobResult, JobStatus
from lexigram.hooks import HookRegistry
from lexigram.tasks.context import ambient_job
from lexigram.tasks.handlers import JobRetry, definition_of

MAX_RESULTS = 1000  # kept here for queues that keep none

R = TypeVar("R")


class QueuedWorker(ABC, Generic[R]):
    """A pool that does the jobs of one handler, and how these ended."""

    # of the component in health checks
    kind: str

    def __init__(
        self,
        queue: TaskQueueProtocol,
        worker_id: str,
        concurrency: int,
        retry: JobRetry,
        *,
        hooks: HookRegistry | None,
        task_worker_class: TaskWorkerFactoryProtocol | None,
    ) -> None:
        self.queue = queue
        self.worker_id = worker_id
        self.concurrency = concurrency
        self._announcer = Announcer(hooks)
        # of jobs done here, for a queue that keeps no results
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

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to take jobs; a second call while it runs does nothing."""
        await self._pool.start()

    async def stop(self) -> None:
        """Take no more jobs, wait for the running ones, hand back what did not finish."""
        await self._pool.stop()

    async def wait(self) -> None:
        """Return when it was stopped; raise what its pool died of."""
        await self._pool.wait()

    async def drain(self) -> int:
        """Do every job that can be done now, without ``start``; how many ended. For tests."""
        return await self._pool.drain()

    @property
    def is_alive(self) -> bool:
        """True while it takes jobs."""
        return self._pool.is_alive

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """What it does, by the names of jobs, for pools of others.

        All together do ``concurrency`` jobs at a time.
        """
        return self._pool.handlers

    # --- for callers ----------------------------------------------------------------------------

    async def get_result(self, job_id: str) -> R | None:
        """How the job ended; None while it has not, and when it is unknown or no longer kept."""
        if isinstance(self.queue, JobControlProtocol):
            found = await self.queue.get_result(job_id)
            return None if found is None else self._ended(found)
        return self._results.get(job_id)

    def get_stats(self) -> dict[str, Any]:
        """What it does in this process."""
        alive = self.is_alive
        return {
            "worker_id": self.worker_id,
            "running": alive,
            "concurrency": self.concurrency,
            "active_workers": self.concurrency if alive else 0,
        }

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while it takes jobs."""
        alive = self.is_alive
        return HealthCheckResult(
            component=f"worker.{self.kind}.{self.worker_id}",
            status=HealthStatus.HEALTHY if alive else HealthStatus.UNHEALTHY,
            message="takes jobs" if alive else "takes no jobs: not started, stopped, or dead",
            details=self.get_stats(),
        )

    # --- what a kind of jobs says -----------------------------------------------------------------

    @abstractmethod
    def _handler(self, retry: JobRetry) -> Callable[..., Any]:
        """What does a job: a function with ``@job``. Called before the worker is complete."""

    @abstractmethod
    def _read_result(self, told: Mapping[str, Any]) -> R:
        """The result that the handler returned, as a queue kept it."""

    @abstractmethod
    def _other_end(self, found: JobResult) -> R:
        """Of a job that ended without a result: given up, or its result is no longer kept."""

    # --- inside ---------------------------------------------------------------------------------

    async def _enqueue(
        self, asked: Mapping[str, Any], priority: int, refusal: type[WorkerError], what: str
    ) -> str:
        """Hand in a job with these arguments and return its id."""
        job_id = uuid4().hex
        accepted = await self.queue.enqueue(
            {
                "id": job_id,
                "name": self._job.name,
                "args": (),
                "kwargs": {**asked, "job_id": job_id},
                "priority": priority,
                "queue": self._job.queue,
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

    def _keep(self, job_id: str, result: R) -> None:
        if isinstance(self.queue, JobControlProtocol):
            return
        self._results[job_id] = result
        while len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def _ended(self, found: JobResult) -> R | None:
        if not found.status.is_final:
            return None
        value = found.value
        if found.status is JobStatus.COMPLETED and isinstance(value, Mapping):
            return self._read_result(cast("Mapping[str, Any]", value))
        return self._other_end(found)


def own_id(job_id: str | None) -> str:
    """The id of the job that runs here; who calls a handler by hand may have given none."""
    context = ambient_job()
    return job_id or (context.job.id if context is not None else uuid4().hex)
